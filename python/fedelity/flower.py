"""The messages between a server and its nodes on Flower, as Fedelity's Flower app and node write and read them.

A server sends three kinds. ``query`` asks a node who it is; ``train`` has the agreement and a message of
:class:`fedelity.Server`, and is answered with an upload; ``query.model`` has the final model as a file, which a node keeps.
"""

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

WHO = "query"
TRAIN = "train"
MODEL = "query.model"


def blob(data: bytes) -> Array:
    """Bytes as they are."""
    return Array("uint8", (len(data),), "fedelity", data)


def presentation(client: int, version: str) -> RecordDict:
    """A node's answer to `query`: its number among the clients, and its version of Fedelity."""
    return RecordDict({"node": ConfigRecord({"client": client, "fedelity": version})})


def task(agreement: str, message: bytes, round: int) -> RecordDict:
    """What a client of a round gets. Rounds are counted from 1."""
    facts = ConfigRecord({"agreement": agreement, "round": round})
    return RecordDict({"task": facts, "arrays": ArrayRecord({"message": blob(message)})})


def read_task(content: RecordDict) -> tuple[str, bytes, int]:
    """Agreement, message and round of a task."""
    facts, arrays = _config(content, "task"), _arrays(content)
    return str(facts["agreement"]), _bytes(arrays, "message"), int(facts["round"])  # type: ignore[arg-type]


def answer(upload: bytes) -> RecordDict:
    """What a client of a round sends."""
    return RecordDict({"arrays": ArrayRecord({"upload": blob(upload)})})


def read_answer(content: RecordDict) -> bytes:
    """The upload of an answer."""
    return _bytes(_arrays(content), "upload")


def final_model(file: bytes) -> RecordDict:
    """The final model, as the file that `fedelity evaluate` and other tools read."""
    return RecordDict({"arrays": ArrayRecord({"model": blob(file)})})


def read_model(content: RecordDict) -> bytes:
    """The file of the final model."""
    return _bytes(_arrays(content), "model")


def _config(content: RecordDict, name: str) -> ConfigRecord:
    found = content.get(name)
    if not isinstance(found, ConfigRecord):
        raise ValueError(f"the message has no '{name}': server and node must have the same version of Fedelity")
    return found


def _arrays(content: RecordDict) -> ArrayRecord:
    found = content.get("arrays")
    if not isinstance(found, ArrayRecord):
        raise ValueError("the message has no arrays: server and node must have the same version of Fedelity")
    return found


def _bytes(arrays: ArrayRecord, name: str) -> bytes:
    found = arrays.get(name)
    if found is None or found.stype != "fedelity":
        raise ValueError(f"the message has no '{name}': server and node must have the same version of Fedelity")
    return found.data
