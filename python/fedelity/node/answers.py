"""What a node answers: it trains under the agreement as far as its site allows, and keeps what it is given."""

import hashlib
import os

import fedelity
from fedelity._fedelity import weights
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from ..flower.messages import MODEL, REFUSED, bytes_of, settings_of, with_bytes
from .audit import Audit
from .state import State


class Refusal(Exception):
    """What the server asks for is not done. The reason is sent and recorded; `detail` is for the operator of the site alone,
    because it may have names and values of the data."""

    def __init__(self, reason: str, detail: str | None = None, data: bytes | None = None, **facts: object) -> None:
        super().__init__(reason)
        self.detail = detail or reason
        #: What was refused, and what is known of it, for the audit log.
        self.data, self.facts = data, facts


class Answers:
    """The answers of one site."""

    def __init__(self, site: fedelity.Site, state: State, audit: Audit) -> None:
        self._site, self._state, self._audit = site, state, audit
        self._agreement: str | None = None
        self._client: fedelity.Client | None = None

    def to(self, message: Message) -> tuple[RecordDict, str]:
        """The answer to a message, and what was done, in words."""
        match message.metadata.message_type:
            case MessageType.QUERY:
                return self._who(message)
            case MessageType.TRAIN:
                return self._train(message)
            case str(kind) if kind == MODEL:
                return self._keep(message)
            case str(kind) if kind == REFUSED:
                return self._unused(message)
            case kind:
                raise Refusal(f"a message of type '{kind}': this node trains, keeps the last model, and says who it is")

    def refuse(self, message: Message, refusal: Refusal) -> None:
        """Records a refusal."""
        facts = {**_origin(message), **refusal.facts}
        self._audit.note("received", refusal.data, **facts, decision="refused", reason=str(refusal))

    def _who(self, message: Message) -> tuple[RecordDict, str]:
        node = {"client": self._site.client_number, "fedelity": fedelity.__version__, "keeps-model": True}
        self._audit.note("received", **_origin(message), decision="answered", answer=node)
        return RecordDict({"node": ConfigRecord(node)}), "said who this is"

    def _unused(self, message: Message) -> tuple[RecordDict, str]:
        reason = str(settings_of(message, "refusal").get("reason", ""))
        self._audit.note("received", **_origin(message), decision="noted", reason=reason)
        return RecordDict(), f"the server does not use this node: {reason}"

    def _train(self, message: Message) -> tuple[RecordDict, str]:
        agreement = str(settings_of(message, "round").get("agreement", ""))
        digest = hashlib.sha256(agreement.encode()).hexdigest()
        facts: dict[str, object] = {"agreement": digest}
        task, received = None, {}
        try:
            task = bytes_of(message, "message")
            received = self._site.received(agreement, task)
            client = self._client_for(agreement, digest)
            self._audit.note("received", task, **_origin(message), **facts, **received, decision="accepted")
            upload = client.train(task)
            sent = client.sent(upload)
        except fedelity.DataError as error:
            reason = "the data of this site cannot be used under the agreement; its operator sees why in the node's output"
            raise Refusal(reason, str(error), task, **facts, **received) from None
        except (fedelity.Error, ValueError) as error:
            raise Refusal(str(error), None, task, **facts, **received) from None
        # What the client remembers is safe before the server can have accepted the upload.
        try:
            self._state.write(_memory(digest), client.memory())
        except OSError as error:
            reason = "the site cannot save what it must remember; its operator sees why in the node's output"
            raise Refusal(reason, f"state: {error}", task, **facts, **received) from None
        self._audit.note("sent", upload, **_origin(message), **facts, **sent, decision="sent")
        return with_bytes("upload", upload), f"trained round {sent['round']}"

    def _client_for(self, agreement: str, digest: str) -> fedelity.Client:
        if self._client is None or self._agreement != agreement:
            client = self._site.client(agreement, os.urandom(32))
            saved = self._state.read(_memory(digest))
            if saved is not None:
                client.remember(saved)
            self._client, self._agreement = client, agreement
            self._state.write("agreement.json", agreement.encode())
        return self._client

    def _keep(self, message: Message) -> tuple[RecordDict, str]:
        try:
            file = bytes_of(message, "model")
        except ValueError as error:
            raise Refusal(str(error)) from None
        # It is read before it replaces the one before it.
        try:
            new = self._state.write("new.safetensors", file)
            arrays = {name: array.size for name, array in weights(new).items()}
            path = self._state.write("model.safetensors", file)
        except fedelity.Error as error:
            raise Refusal("what was sent as the last model cannot be read as a model", str(error), file) from None
        except OSError as error:
            reason = "the site cannot save the last model; its operator sees why in the node's output"
            raise Refusal(reason, f"state: {error}", file) from None
        finally:
            self._state.remove("new.safetensors")
        self._audit.note("received", file, **_origin(message), arrays=arrays, decision="kept")
        return RecordDict(), f"the last model is {path}"


def _origin(message: Message) -> dict[str, str]:
    return {"kind": message.metadata.message_type, "run": str(message.metadata.run_id)}


def _memory(digest: str) -> str:
    return f"memory-{digest[:16]}.bin"
