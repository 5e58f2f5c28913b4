"""Which of Flower's nodes is which client."""

import time
from collections.abc import Callable

import fedelity
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from .messages import GONE, REFUSED, post, settings_of

#: A node that died is online to Flower for up to 60 seconds; a second node with its number waits that long.
STALE = 75.0
#: When a node that could not be reached is asked again.
AGAIN = 10.0
#: How long a node may take to say who it is.
ANSWER = 120.0


class Nodes:
    """The nodes of a federation. `refresh` asks new ones who they are and never waits."""

    def __init__(self, grid: Grid, clients: int, say: Callable[[str], None]) -> None:
        self.grid, self.clients, self.say = grid, clients, say
        #: The node of each client that is online.
        self.of: dict[int, int] = {}
        #: Why a node that is online is not used.
        self.refused: dict[int, str] = {}
        #: The nodes that want the last model.
        self.keep_model: set[int] = set()
        self._asked: dict[str, tuple[int, float]] = {}
        # Nodes that Flower could not reach, and when.
        self._lost: dict[int, float] = {}
        # Nodes with the number of another, and since when.
        self._second: dict[int, tuple[int, float]] = {}

    def refresh(self) -> None:
        """Notices nodes that have come or gone."""
        now, online = time.monotonic(), set(self.grid.get_node_ids())
        for client, node in list(self.of.items()):
            if node not in online:
                del self.of[client]
                self.say(f"client {client} is gone (node {node})")
        self._lost = {node: when for node, when in self._lost.items() if now - when < AGAIN}
        for known in (self.refused, self._second):
            for node in [node for node in known if node not in online]:
                del known[node]
        self._asked = {ask: of for ask, of in self._asked.items() if of[0] in online and now - of[1] < ANSWER}
        self._hear()
        known = {*self.of.values(), *self.refused, *self._second, *self._lost, *(node for node, _ in self._asked.values())}
        self._ask(sorted(online - known), now)
        for node, (client, since) in list(self._second.items()):
            if client not in self.of:
                del self._second[node]
                self._take(client, node)
            elif now - since > STALE:
                del self._second[node]
                first = self.of[client]
                self.refuse(
                    node,
                    f"node {node} says that it is client {client}, but so does node {first}, which was first: two nodes "
                    f"must not have one number; stop one of them, or start it with another number (partition-id)",
                )

    def lost(self, client: int, node: int) -> None:
        """Notices that Flower could not reach a node, before it goes offline."""
        if self.of.get(client) == node:
            del self.of[client]
            self._lost[node] = time.monotonic()

    def refuse(self, node: int, reason: str) -> None:
        """Does not use a node, and tells it why."""
        self.refused[node] = reason
        self.say(f"refused: {reason}")
        content = RecordDict({"refusal": ConfigRecord({"reason": reason})})
        post(self.grid, Message(content, dst_node_id=node, message_type=REFUSED, ttl=ANSWER))

    def _ask(self, nodes: list[int], now: float) -> None:
        for node in nodes:
            content = RecordDict({"server": ConfigRecord({"fedelity": fedelity.__version__})})
            ask = Message(content, dst_node_id=node, message_type=MessageType.QUERY, ttl=ANSWER)
            if sent := post(self.grid, ask):
                self._asked[sent] = (node, now)

    def _hear(self) -> None:
        replies = list(self.grid.pull_messages(list(self._asked))) if self._asked else []
        for reply in replies:
            asked = self._asked.pop(reply.metadata.reply_to_message_id, None)
            if asked is None:
                continue
            node = asked[0]
            if reply.has_error() and reply.error.code == GONE:
                self._lost[node] = time.monotonic()
                continue
            if reply.has_error():
                self.refuse(node, f"node {node} does not say which client it is: {reply.error.reason}")
                continue
            said = settings_of(reply, "node")
            client, version = said.get("client"), said.get("fedelity")
            if version != fedelity.__version__:
                ours = fedelity.__version__
                self.refuse(node, f"node {node} runs Fedelity {version}, and this server {ours}: install {ours} there")
            elif not isinstance(client, int) or not 0 <= client < self.clients:
                most = self.clients - 1
                self.refuse(
                    node,
                    f"node {node} says that it is client {client}, but the configuration of the server has clients 0 to "
                    f"{most}: start the node with another number, or change the configuration",
                )
            elif client in self.of:
                self._wants(node, said)
                self._second[node] = (client, time.monotonic())
            else:
                self._wants(node, said)
                self._take(client, node)

    def _wants(self, node: int, said: dict[str, object]) -> None:
        if said.get("keeps-model") is True:
            self.keep_model.add(node)

    def _take(self, client: int, node: int) -> None:
        self.of[client] = node
        self.say(f"client {client} is here (node {node})")
