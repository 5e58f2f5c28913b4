"""How a run shows that it goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

Show = Callable[[dict[str, Any]], object]


class Line:
    """One line that is written again after each round."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.width = 0
        self.start: tuple[object, int, float] | None = None

    def __call__(self, record: dict[str, Any]) -> None:
        now, run, done = time.monotonic(), (record["method"], record["seed"]), record["round"]
        if self.start is None or self.start[0] != run:
            # Also the first round after a resumption: how long it took is not known.
            self.start = (run, done, now)
        _, first, since = self.start
        text = f"{run[0]}, seed {run[1]}: round {done} of {record['rounds']}"
        if record.get("accuracy") is not None:
            text += f", accuracy {100 * record['accuracy']:.2f} %"
        if done > first:
            left = (now - since) / (done - first) * (record["rounds"] - done)
            text += f", {left:.0f} s left" if left >= 1 else ""
        self.stream.write("\r" + text.ljust(self.width))
        self.stream.flush()
        self.width = len(text)

    def close(self) -> None:
        if self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()


def in_notebook() -> bool:
    """Whether the output of a cell is what the user sees."""
    try:
        shell = sys.modules["IPython"].get_ipython()
    except (KeyError, AttributeError):
        return False
    return shell is not None and "IPKernelApp" in shell.config


def shown(progress: bool | Show | None) -> tuple[Callable[[str], None] | None, Callable[[], None]]:
    """What to call with each round as JSON, and what at the end."""
    if progress is not None and not isinstance(progress, bool):
        show = progress

        def tell(line: str) -> None:
            show(json.loads(line))

        return tell, (lambda: None)
    stream = sys.stdout if in_notebook() else sys.stderr
    if progress is None:
        progress = in_notebook() or stream.isatty()
    if not progress:
        return None, (lambda: None)
    line = Line(stream)
    return (lambda text: line(json.loads(text))), line.close
