"""What a node answers: it trains under the agreement as far as its site allows, and keeps what it is given."""

import hashlib
import os

import fedelity
from fedelity._fedelity import weights
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from ..flower.messages import MODEL, REFUSED, bytes_of, carried, failure, settings_of, with_bytes
from .audit import Audit
from .state import State


class Refusal(Exception):
    """What the server asks for is not done. The reason is sent and recorded; `detail` is for the operator of the site alone,
    because it may have names and values of the data."""

    def __init__(self, reason: str, detail: str | None = None, accepted: bool = False, **facts: object) -> None:
        super().__init__(reason)
        self.detail = detail or reason
        #: Whether the log has the message already, and what is known of it.
        self.accepted, self.facts = accepted, facts


class Answers:
    """The answers of one site. What comes and what is answered are in the log before an answer is returned."""

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

    def refuse(self, message: Message, refusal: Refusal) -> Message:
        """The reply that says why something is not done."""
        reply, facts = failure(refusal, message), refusal.facts
        if not refusal.accepted:
            self._received(message, "refused", **facts, reason=str(refusal))
        facts = {name: fact for name, fact in facts.items() if name != "arrays"}
        reason = str(reply.error.reason)
        self._audit.note("sent", reason.encode(), **_origin(message), **facts, decision="refused", reason=reason)
        return reply

    def _received(self, message: Message, decision: str, **facts: object) -> None:
        data = carried(message.content) if message.has_content() else b""
        self._audit.note("received", data, **_origin(message), **facts, decision=decision)

    def _sent(self, message: Message, content: RecordDict, **facts: object) -> RecordDict:
        self._audit.note("sent", carried(content), **_origin(message), **facts, decision="sent")
        return content

    def _who(self, message: Message) -> tuple[RecordDict, str]:
        node = {"client": self._site.client_number, "fedelity": fedelity.__version__, "keeps-model": True}
        self._received(message, "answered")
        return self._sent(message, RecordDict({"node": ConfigRecord(node)}), answer=node), "said who this is"

    def _unused(self, message: Message) -> tuple[RecordDict, str]:
        reason = str(settings_of(message, "refusal").get("reason", ""))
        self._received(message, "noted", reason=reason)
        return self._sent(message, RecordDict()), f"the server does not use this node: {reason}"

    def _train(self, message: Message) -> tuple[RecordDict, str]:
        agreement = str(settings_of(message, "round").get("agreement", ""))
        digest = hashlib.sha256(agreement.encode()).hexdigest()
        facts: dict[str, object] = {"agreement": digest}
        accepted = False
        try:
            task = bytes_of(message, "message")
            facts |= self._site.received(agreement, task)
            client = self._client_for(agreement, digest)
            self._received(message, "accepted", **facts)
            accepted = True
            upload = client.train(task)
            sent = client.sent(upload)
            # What the client remembers is safe before the server can have accepted the upload.
            self._state.write(_memory(digest), client.memory())
        except fedelity.DataError as error:
            reason = "the data of this site cannot be used under the agreement; its operator sees why in the node's output"
            raise Refusal(reason, str(error), accepted, **facts) from None
        except (fedelity.Error, ValueError) as error:
            raise Refusal(str(error), None, accepted, **facts) from None
        except OSError as error:
            reason = "the site cannot save what it must remember; its operator sees why in the node's output"
            raise Refusal(reason, f"state: {error}", accepted, **facts) from None
        return self._sent(message, with_bytes("upload", upload), **{**facts, **sent}), f"trained round {sent['round']}"

    def _client_for(self, agreement: str, digest: str) -> fedelity.Client:
        if self._client is None or self._agreement != agreement:
            client = self._site.client(agreement, os.urandom(32))
            saved = self._state.read(_memory(digest))
            if saved is not None:
                client.remember(saved)
            self._state.write("agreement.json", agreement.encode())
            self._client, self._agreement = client, agreement
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
            raise Refusal("what was sent as the last model cannot be read as a model", str(error)) from None
        except OSError as error:
            reason = "the site cannot save the last model; its operator sees why in the node's output"
            raise Refusal(reason, f"state: {error}") from None
        finally:
            self._state.remove("new.safetensors")
        self._received(message, "kept", arrays=arrays)
        return self._sent(message, RecordDict()), f"the last model is {path}"


def _origin(message: Message) -> dict[str, str]:
    return {"kind": message.metadata.message_type, "run": str(message.metadata.run_id)}


def _memory(digest: str) -> str:
    return f"memory-{digest[:16]}.bin"
