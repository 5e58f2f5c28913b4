"""What must survive a restart of a node: its memory, its place at the server, what it has not answered, and the last model."""

import fcntl
import os
from pathlib import Path

from .errors import SiteError


class State:
    """The state folder of a site. One process at a time has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.chmod(folder, 0o700)
            self._lock = open(folder / "lock", "w")
        except OSError as error:
            raise SiteError(f"state: cannot use the folder {folder}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message = f"{folder} belongs to a node that is running: stop it, or give this one another state folder"
            raise SiteError(message) from None

    def read(self, name: str) -> bytes | None:
        """A file of the folder, if there is one."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> Path:
        """Writes a file: all of it or nothing, and on the disk when this returns."""
        path, part = self.folder / name, self.folder / f"{name}.part"
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return path

    def remove(self, name: str) -> None:
        """Removes a file, if there is one."""
        (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        self._lock.close()
