"""The client's half on Flower, for its SuperNodes and its simulation: one message in, one message out.

A SuperNode starts a new process for every message, so what a client remembers between rounds is in Flower's context or,
if the configuration names a folder, in a file.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import fedelity
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from .messages import bytes_of, failure, settings_of, with_bytes

app = ClientApp()

#: Flower's name for a client's number.
NUMBER = "partition-id"

# A process of the simulation serves many messages: what it has read is kept for the next.
_studies: dict[str, fedelity.Study] = {}
_clients: dict[tuple[str, int], fedelity.Client] = {}


def option(context: Context, key: str) -> str:
    """A setting of this node or, if it has none, of the run; empty if neither has it."""
    return str(context.node_config.get(key) or context.run_config.get(key) or "")


def number(context: Context) -> int:
    """The number of this client."""
    found = context.node_config.get(NUMBER)
    if not isinstance(found, int):
        raise ValueError(f"this node has no number: start it with --node-config '{NUMBER}=0', or another number")
    return found


def study(config: str) -> fedelity.Study:
    """The study of a configuration file, with its data."""
    if config not in _studies:
        if config and not Path(config).exists():
            raise FileNotFoundError(
                f"{config}: no such file on this node; start it with --node-config 'config=\"STUDY.toml\"', the study with "
                "its data here, or 'site=\"SITE.toml\"', a site with data of its own"
            )
        _studies.clear()
        _studies[config] = fedelity.Study(config or None)
    return _studies[config]


def client(context: Context, agreement: str) -> fedelity.Client:
    """The client of this node, with its data."""
    digest, own = hashlib.sha256(agreement.encode()).hexdigest(), number(context)
    if (digest, own) not in _clients:
        site, config = option(context, "site"), option(context, "config")
        if site:
            made = fedelity.Client(agreement, own, data=site)
        else:
            made = fedelity.Client(agreement, own, config=study(config))
        if len(_clients) > 100:
            _clients.clear()
        _clients[digest, own] = made
    return _clients[digest, own]


def memory_file(context: Context, agreement: str) -> Path | None:
    """The file with what this client remembers, if it is told to keep one."""
    folder = option(context, "memory")
    if not folder:
        return None
    digest = hashlib.sha256(agreement.encode()).hexdigest()[:16]
    return Path(folder) / f"{digest}-client-{number(context)}.memory"


def recall(context: Context, file: Path | None) -> bytes | None:
    """What the client remembered after its last round."""
    if file is not None:
        return file.read_bytes() if file.exists() else None
    return context.state["memory"]["bytes"].data if "memory" in context.state else None


def keep(context: Context, file: Path | None, memory: bytes) -> None:
    """Keeps what the client remembers now, whole or not at all."""
    if file is None:
        context.state["memory"] = ArrayRecord({"bytes": with_bytes("memory", memory)["bytes"]["memory"]})
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as out:
        out.write(memory)
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)


def answer(act: Callable[[Message, Context], RecordDict]) -> Callable[[Message, Context], Message]:
    """A handler whose errors become replies that say why."""

    def handle(message: Message, context: Context) -> Message:
        try:
            return Message(act(message, context), reply_to=message)
        except Exception as error:  # whatever it is, the server should know
            print(f"fedelity: {error}", flush=True)
            return failure(error, message)

    return handle


@app.query()
@answer
def who(_: Message, context: Context) -> RecordDict:
    """Says which client this node is."""
    node = {"client": number(context), "fedelity": fedelity.__version__, "keeps-model": False}
    return RecordDict({"node": ConfigRecord(node)})


@app.query("refused")
@answer
def refused(message: Message, _: Context) -> RecordDict:
    """Shows why the server does not use this node."""
    print(f"fedelity: the server does not use this node: {settings_of(message, 'refusal').get('reason')}", flush=True)
    return RecordDict()


@app.train()
@answer
def train(message: Message, context: Context) -> RecordDict:
    """Trains for one round."""
    agreement = str(settings_of(message, "round").get("agreement", ""))
    own, file = client(context, agreement), memory_file(context, agreement)
    # The process may have served this client before another process did.
    own.forget()
    if memory := recall(context, file):
        own.remember(memory)
    upload = own.train(bytes_of(message, "message"))
    keep(context, file, own.memory())
    return with_bytes("upload", upload)
