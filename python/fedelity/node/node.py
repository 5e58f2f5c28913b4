"""A node on its way: it joins, answers what arrives, and leaves in order."""

import queue
import signal
import sys
import threading
import time
from pathlib import Path

import fedelity
from flwr.app import Message, RecordDict

from .answers import Answers, Refusal
from .audit import Audit
from .errors import ConnectionLost, KeyRefused, NodeError
from .fleet import Fleet
from .keys import private_key
from .state import State

# Seconds between two looks for messages.
POLL = 0.5
# In the state folder, the message that is being answered.
UNANSWERED = "unanswered"


class Left(Exception):
    """The node was told to leave."""


class RunningNode:
    """One process of a site's node."""

    def __init__(self, site: fedelity.Site) -> None:
        keys = site.keys
        self._site = site
        self._state = State(Path(keys["state"]))
        self._audit = Audit(self._state.folder / "audit.jsonl")
        certificate, key = keys.get("certificate"), keys.get("key")
        self._fleet = Fleet(
            keys["server"],
            None if certificate is None else Path(certificate),
            None if key is None else private_key(Path(key)),
        )
        self._answers = Answers(site, self._state, self._audit)
        self._told: str | None = None
        self._stop = threading.Event()

    def run(self) -> int:
        """Works until it is told to stop; returns the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        try:
            self._join()
            self._go_on()
            while True:
                self._turn()
        except Left:
            self._say("leaving the server")
            self._state.remove(UNANSWERED)
            self._audit.note("left", reason="told to stop")
            return 0
        except NodeError as error:
            self._audit.note("ended", reason=str(error))
            print(f"fedelity-node: {error}", file=sys.stderr, flush=True)
            return error.code
        finally:
            self._fleet.leave()
            self._audit.close()
            self._state.close()

    def _join(self) -> None:
        saved = self._state.read("node")
        known = int(saved) if saved is not None and saved.isdigit() else None
        number = self._fleet.join(known, self._say, self._wait)
        self._state.write("node", str(number).encode())
        self._audit.note("joined", server=self._site.keys["server"], node=str(number), client=self._site.client_number)
        self._say(f"joined {self._site.keys['server']} as client {self._site.client_number}")

    def _go_on(self) -> None:
        """Answers what an earlier process was about to answer when it died: the server does not ask twice."""
        kept = self._state.read(UNANSWERED)
        message = None if kept is None else self._fleet.receive_again(kept)
        if message is not None:
            self._say("answering what was not answered before")
            self._answer(message)
        self._state.remove(UNANSWERED)

    def _turn(self) -> None:
        try:
            message = self._fleet.receive(lambda kept: self._state.write(UNANSWERED, kept))
        except ConnectionLost as lost:
            self._say(f"{lost}; trying again")
            self._wait(2.0)
            self._go_on()
            return
        except KeyRefused:
            # A server that restarted without a database knows nobody; one that removed this node will not let it in.
            self._say("the server does not know this node any more; joining again")
            self._fleet.leave()
            self._join()
            return
        if message is None:
            self._wait(POLL)
            return
        self._answer(message)
        self._state.remove(UNANSWERED)

    def _answer(self, message: Message) -> None:
        started = time.monotonic()
        reply = self._reply(message)
        seconds = time.monotonic() - started
        self._fleet.confirm(message)
        for pause in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0):
            try:
                self._fleet.send(reply, seconds)
                return
            except ConnectionLost as lost:
                self._say(f"{lost}; sending again")
                self._wait(pause)
            except KeyRefused as refused:
                self._audit.note("not sent", reason=str(refused))
                return
        # The server treats this client as absent, and the next message says what counted.
        self._audit.note("not sent", reason="the server could not be reached")

    def _reply(self, message: Message) -> Message:
        try:
            answer, done = self._in_background(message)
        except Refusal as refusal:
            reply = self._answers.refuse(message, refusal)
            self._say(f"refused: {refusal.detail}")
            return reply
        self._say(done)
        return Message(answer, reply_to=message)

    def _in_background(self, message: Message) -> tuple[RecordDict, str]:
        """The answer, made in another thread, so that this one can leave at once when it is told to."""
        done: queue.Queue = queue.Queue()

        def work() -> None:
            try:
                done.put((self._answers.to(message), None))
            except BaseException as error:  # noqa: BLE001 - it is raised again where the answer is awaited
                done.put((None, error))

        threading.Thread(target=work, daemon=True).start()
        while True:
            try:
                answer, error = done.get(timeout=0.2)
            except queue.Empty:
                if self._stop.is_set():
                    raise Left from None
                continue
            if error is not None:
                raise error
            return answer

    def _wait(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Left

    def _say(self, text: str) -> None:
        """Says what is new, once."""
        if text != self._told:
            print(f"fedelity-node: {text}", file=sys.stderr, flush=True)
            self._told = text
