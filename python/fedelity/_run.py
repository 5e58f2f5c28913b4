"""Runs a configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _fedelity
from ._data import Data
from ._progress import Show, shown
from ._result import Result

Config = Mapping[str, Any] | str | os.PathLike[str]


def run(
    config: Config | None = None,
    output: str | os.PathLike[str] | None = None,
    *,
    threads: int | None = None,
    progress: bool | Show | None = None,
    checkpoints: bool = True,
    data: Data | None = None,
) -> Result:
    """Trains a federation and records it: what ``fedelity run`` does, with the same results.

    ``config`` is a dict with the keys of a configuration, the path of a file, or TOML as text; without it, everything has
    its default. ``output`` is a new folder for the results; by default, it is made in ``runs``.

    ``progress`` is a function that gets each round's record as a dict, ``True`` or ``False``; by default, there is a line on
    a terminal and in a notebook. Training uses all cores unless ``threads`` says otherwise. ``data`` are samples in memory, instead
    of ``[data]``.

    Ctrl-C, or the stop button of a notebook, ends the run once the clients in training have finished. What it has done is
    kept, and ``resume`` goes on with it; the results are the same.

    >>> result = run({"rounds": 2, "partition": {"clients": 4}, "clients": {"per-round": 2}}, output="first")
    >>> result.curve("accuracy").shape
    (1, 2)
    """
    show, close = shown(progress)
    try:
        config = dict(config) if isinstance(config, Mapping) else config
        path = _fedelity.run(config, output, threads, checkpoints, show, data)
    finally:
        close()
    return Result(path)


def resume(
    folder: str | os.PathLike[str],
    *,
    rounds: int | None = None,
    threads: int | None = None,
    progress: bool | Show | None = None,
    data: Data | None = None,
) -> Result:
    """Resumes the runs of a folder that were stopped, or extends them to more ``rounds``. Data in memory are
    given again.

    >>> short = {"rounds": 1, "partition": {"clients": 4}, "clients": {"per-round": 2}}
    >>> resume(run(short, "second").path, rounds=3).curve("accuracy").shape
    (1, 3)
    """
    show, close = shown(progress)
    try:
        path = _fedelity.resume(folder, rounds, threads, show, data)
    finally:
        close()
    return Result(path)
