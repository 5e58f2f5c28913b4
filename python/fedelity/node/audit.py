"""The log of everything that comes into a site and leaves it."""

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path


class Audit:
    """A file with one line per event: what it was, never a sample, a label or a weight."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "ab")
        # A line that was cut off when the machine stopped must not swallow the next one.
        if self._file.tell() > 0:
            with open(path, "rb") as written:
                written.seek(-1, os.SEEK_END)
                if written.read() != b"\n":
                    self._file.write(b"\n")

    def note(self, event: str, data: bytes | None = None, **facts: object) -> None:
        """Adds a line and waits until the disk has it. Of ``data``, size and SHA-256 are written."""
        line: dict[str, object] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
        line.update((name, value) for name, value in facts.items() if value is not None)
        if data is not None:
            line.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
