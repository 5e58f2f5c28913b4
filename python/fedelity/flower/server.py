"""The server's half on Flower: an ordinary run folder, whatever the nodes do."""

import time
from pathlib import Path

import fedelity
from flwr.app import Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from .messages import GONE, MODEL, bytes_of, post, with_bytes
from .nodes import Nodes

app = ServerApp()


class Stopped(Exception):
    """The federation cannot go on now; its folder has everything so far."""


def say(text: str) -> None:
    """Writes a line to the log of the run."""
    print(f"fedelity: {text}", flush=True)


def listed(clients: list[int], names: list[str]) -> str:
    """Clients by number and name."""
    shown = [f"{client} ('{names[client]}')" if names else str(client) for client in clients[:10]]
    more = f" and {len(clients) - 10} more" if len(clients) > 10 else ""
    return f"client{'s' if len(clients) > 1 else ''} {', '.join(shown)}{more}"


class Rounds:
    """The rounds of a federation on Flower."""

    def __init__(self, grid: Grid, server: fedelity.Server, join: float, limit: float, poll: float) -> None:
        self.grid, self.server = grid, server
        #: Seconds to wait for a node, and for the uploads of a round.
        self.join, self.limit, self.poll = join, limit, poll
        self.nodes = Nodes(grid, server.clients, say)
        #: Clients that were waited for in vain, until they come back.
        self.given_up: set[int] = set()

    def assemble(self, wanted: int) -> None:
        """Waits until this many clients are here, or stops if there are too few for a round in the end."""
        start, needed = time.monotonic(), self.server.needed
        while True:
            self.nodes.refresh()
            here = len(self.nodes.of)
            if here >= wanted:
                return
            if time.monotonic() - start >= self.join:
                break
            time.sleep(self.poll)
        absent = [client for client in range(self.server.clients) if client not in self.nodes.of]
        missing = listed(absent, self.server.names)
        if here < needed:
            why = "".join(f"\n  {reason}" for reason in self.nodes.refused.values())
            raise Stopped(
                f"{here} of {self.server.clients} clients came within {self.join:g} s, and a round needs {needed}: start the "
                f"nodes of {missing} and run again, or give them more time (join-timeout){why}"
            )
        say(f"{missing} did not come within {self.join:g} s: going on without")
        self.given_up.update(absent)

    def run(self) -> None:
        """Runs the rounds that are left."""
        while not self.server.done:
            self.assemble(self.server.needed)
            if not self.one():
                continue
            record = self.server.record()
            accuracy = record.get("accuracy")
            shown = "" if accuracy is None else f", accuracy {100 * accuracy:.2f} %"
            counted = record.get("accepted", len(record["clients"]))
            say(f"round {record['round']}: {counted} of {len(record['clients'])} uploads{shown}")

    def one(self) -> bool:
        """Runs one round; whether it was closed."""
        chosen, start = self.server.open(), time.monotonic()
        waiting = dict.fromkeys(self.server.missing(), start)
        sent: dict[str, int] = {}
        while (waiting or sent) and time.monotonic() - start < self.limit:
            self.nodes.refresh()
            self.given_up -= self.nodes.of.keys()
            self.collect(sent, waiting)
            self.send(sent, waiting)
            for client, since in list(waiting.items()):
                if client in self.given_up or time.monotonic() - since >= self.join:
                    self.server.absent(client)
                    self.given_up.add(client)
                    del waiting[client]
            if waiting or sent:
                time.sleep(self.poll)
        if sent:
            late = listed(sorted(sent.values()), self.server.names)
            say(f"round {self.server.rounds + 1}: {late} did not answer within {self.limit:g} s (round-timeout)")
        closed = self.server.close()
        if not closed:
            say(f"round {self.server.rounds + 1} of {listed(chosen, self.server.names)}: {closed!r}")
        return bool(closed)

    def send(self, sent: dict[str, int], waiting: dict[int, float]) -> None:
        """Sends the round to clients that are here and have not got it."""
        for client in [client for client in waiting if client in self.nodes.of]:
            content = with_bytes("message", self.server.message(client), agreement=self.server.agreement)
            node, kind = self.nodes.of[client], MessageType.TRAIN
            if taken := post(self.grid, Message(content, dst_node_id=node, message_type=kind, ttl=self.limit)):
                sent[taken] = client
                del waiting[client]
            else:
                # Its node has just gone. If another takes its place in time, that one gets the round.
                self.nodes.lost(client, node)

    def collect(self, sent: dict[str, int], waiting: dict[int, float]) -> None:
        """Takes in the replies that have arrived."""
        for reply in self.grid.pull_messages(list(sent)) if sent else []:
            client = sent.pop(reply.metadata.reply_to_message_id, None)
            if client is None:
                continue
            if not reply.has_error():
                try:
                    self.server.accept(client, bytes_of(reply, "upload"))
                except (fedelity.Refused, ValueError) as reason:
                    say(f"an upload of client {client} is refused: {reason}")
                    self.server.absent(client, str(reason))
            elif reply.error.code == GONE:
                # Its node died. If another takes its place in time, it gets the round again.
                say(f"client {client} is gone: {reply.error.reason}")
                waiting[client] = time.monotonic()
                node = reply.metadata.src_node_id
                self.nodes.lost(client, node)
            else:
                say(f"client {client} failed: {reply.error.reason}")
                self.server.absent(client, reply.error.reason or f"error {reply.error.code}")

    def hand_over(self) -> None:
        """Sends the last model to the nodes that want it."""
        self.nodes.refresh()
        nodes = [node for node in self.nodes.of.values() if node in self.nodes.keep_model]
        if not nodes:
            return
        model, start = self.server.model(), time.monotonic()
        messages = (Message(with_bytes("model", model), dst_node_id=node, message_type=MODEL, ttl=self.join) for node in nodes)
        waiting = {taken for message in messages if (taken := post(self.grid, message))}
        while waiting and time.monotonic() - start < self.join:
            waiting -= {reply.metadata.reply_to_message_id for reply in self.grid.pull_messages(list(waiting))}
            time.sleep(self.poll)
        say(f"the model was sent to {len(nodes) - len(waiting)} of {len(nodes)} nodes")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs a federation, or goes on with it."""
    settings = context.run_config
    seconds = {}
    for key in ("join-timeout", "round-timeout", "poll"):
        value = settings.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e7:
            raise fedelity.ConfigError(f"{key} = {value}: expected a number of seconds above 0")
        seconds[key] = float(value)
    output = Path(str(settings.get("output") or f"runs/flower-{context.run_id}"))
    server = fedelity.Server(str(settings.get("config") or "") or None, output=output)
    for note in server.notes:
        say(note)
    say(f"run folder {output.resolve()}" + (f", going on after round {server.rounds}" if server.rounds else ""))
    rounds = Rounds(grid, server, seconds["join-timeout"], seconds["round-timeout"], seconds["poll"])
    try:
        if not server.done:
            wanted = int(settings.get("min-clients") or 0)
            rounds.assemble(min(wanted, server.clients) if wanted > 0 else server.clients)
            rounds.run()
        rounds.hand_over()
    except Stopped as reason:
        say(str(reason))
        raise
    finally:
        ended = server.finish()
        say(f"{ended}, {server.rounds} rounds, weights {server.hash}")
