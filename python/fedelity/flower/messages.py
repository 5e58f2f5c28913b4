"""What travels between a server and its nodes: Fedelity's bytes in Flower's messages.

- `query`: the server asks who a node is. The reply's `node` has `client`, its number, `fedelity`, its version, and
  `keeps-model`, whether it wants the last model.
- `train`: `round` has the `agreement`, `bytes` the `message` of the server. The reply's `bytes` has the `upload`.
- `query.refused`: the server will not use the node; `refusal` has the `reason`.
- `query.model`: the last model, as a safetensors file with its description, in `bytes` as `model`.

An error reply has the reason as text.
"""

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MessageType, RecordDict
from flwr.common.serde import recorddict_to_proto
from flwr.serverapp import Grid

REFUSED = f"{MessageType.QUERY}.refused"
MODEL = f"{MessageType.QUERY}.model"

#: Flower's code for a node that has gone.
GONE = 5
#: Flower's code for an app that raised an exception.
FAILED = 2
#: The longest reason that is sent.
LONGEST = 2000


def with_bytes(name: str, data: bytes, **settings: str | int) -> RecordDict:
    """Content with bytes and some settings."""
    content = RecordDict({"bytes": ArrayRecord({name: Array("uint8", (len(data),), "fedelity", data)})})
    if settings:
        content["round"] = ConfigRecord(settings)
    return content


def bytes_of(message: Message, name: str) -> bytes:
    """The bytes of a message; an error says what is missing."""
    records = message.content.array_records if message.has_content() else {}
    if "bytes" not in records or name not in records["bytes"]:
        raise ValueError(f"the message has no '{name}': it is not from this version of Fedelity")
    return records["bytes"][name].data


def carried(content: RecordDict) -> bytes:
    """What a message carries: Fedelity's bytes if it has some, and otherwise its settings in Flower's form."""
    if "bytes" in content.array_records:
        return b"".join(array.data for array in content.array_records["bytes"].values())
    return bytes(recorddict_to_proto(content).SerializeToString(deterministic=True))


def settings_of(message: Message, name: str) -> dict[str, object]:
    """The settings of a message by the name of their record; empty if there are none."""
    records = message.content.config_records if message.has_content() else {}
    return dict(records.get(name, {}))


def post(grid: Grid, message: Message) -> str | None:
    """Hands a message to Flower; its ID, or nothing if Flower does not take it."""
    for taken in grid.push_messages([message]):
        return taken or None
    return None


def failure(reason: BaseException | str, to: Message) -> Message:
    """A reply that says why there is none."""
    return Message(Error(FAILED, str(reason)[:LONGEST]), reply_to=to)
