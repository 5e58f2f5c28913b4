"""What a node answers: it trains under the agreement as far as its site allows, and keeps what it is given."""

import hashlib
import os

import fedelity
from flwr.app import Message, RecordDict

from .. import flower
from .audit import Audit
from .state import State


class Refusal(Exception):
    """What the server asks for is not done; the reason is sent and recorded."""


class Answers:
    """The answers of one site."""

    def __init__(self, site: fedelity.Site, state: State, audit: Audit) -> None:
        self._site, self._state, self._audit = site, state, audit
        self._agreement: str | None = None
        self._client: fedelity.Client | None = None

    def to(self, message: Message) -> RecordDict:
        """The answer to a message."""
        kind, run = message.metadata.message_type, message.metadata.run_id
        if kind == flower.WHO:
            self._audit.note("asked", kind=kind, run=run, decision="answered")
            return flower.presentation(self._site.client_number, fedelity.__version__)
        if kind == flower.TRAIN:
            return self._train(message)
        if kind == flower.MODEL:
            return self._keep(message)
        raise Refusal(f"a message of type '{kind}': this node trains, keeps the final model, and says who it is")

    def refuse(self, message: Message, reason: str) -> None:
        """Records a refusal."""
        kind, run = message.metadata.message_type, message.metadata.run_id
        self._audit.note("received", kind=kind, run=run, decision="refused", reason=reason)

    def _train(self, message: Message) -> RecordDict:
        try:
            agreement, task, round = flower.read_task(message.content)
        except ValueError as error:
            raise Refusal(str(error)) from None
        digest = hashlib.sha256(agreement.encode()).hexdigest()
        facts = {"kind": flower.TRAIN, "run": message.metadata.run_id, "round": round, "agreement": digest}
        try:
            client = self._client_for(agreement, digest)
            arrays = client.received(task)["arrays"]
            self._audit.note("received", task, **facts, arrays=arrays, decision="accepted")
            upload = client.train(task)
        except fedelity.Error as error:
            raise Refusal(str(error)) from None
        # What the client remembers is safe before the server can have accepted the upload.
        self._state.write(_memory(digest), client.memory())
        self._audit.note("sent", upload, **facts, arrays=client.sent(upload)["arrays"], decision="sent")
        return flower.answer(upload)

    def _client_for(self, agreement: str, digest: str) -> fedelity.Client:
        if self._client is None or self._agreement != agreement:
            client = self._site.client(agreement, os.urandom(32))
            saved = self._state.read(_memory(digest))
            if saved is not None:
                client.remember(saved)
            self._client, self._agreement = client, agreement
            self._state.write("agreement.json", agreement.encode())
        return self._client

    def _keep(self, message: Message) -> RecordDict:
        run = message.metadata.run_id
        try:
            file = flower.read_model(message.content)
        except ValueError as error:
            raise Refusal(str(error)) from None
        self._state.write("model.safetensors", file)
        self._audit.note("received", file, kind=flower.MODEL, run=run, decision="kept")
        return RecordDict()


def _memory(digest: str) -> str:
    return f"memory-{digest[:16]}.bin"


