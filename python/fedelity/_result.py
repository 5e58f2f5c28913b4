"""What runs have recorded."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _fedelity

if TYPE_CHECKING:
    import pandas as pd

Curve = npt.NDArray[np.float64]


class Run:
    """One method with one seed, as its folder has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Its folder."""
        lines = (path / "rounds.jsonl").read_text(encoding="utf-8").split("\n")
        # A last line without its end was being written when the run was stopped.
        records = [json.loads(line) for line in lines[:-1]]
        self.header: dict[str, Any] = records[0]
        """What describes the run: method, seed, data, model, machine."""
        self.records: list[dict[str, Any]] = records[1:]
        """One record for each round, with the fields of ``rounds.jsonl``."""

    @property
    def method(self) -> str:
        return str(self.header["method"])

    @property
    def seed(self) -> int:
        return int(self.header["seed"])

    @property
    def classes(self) -> list[str]:
        return list(self.header["classes"])

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration: every key, with its default filled in."""
        return tomllib.loads((self.path / "config.toml").read_text(encoding="utf-8"))

    @property
    def summary(self) -> dict[str, Any]:
        """How it ended; empty for a run that has not."""
        file = self.path / "summary.json"
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}

    @property
    def model(self) -> Path:
        """The file of the trained model."""
        return self.path / "model.safetensors"

    def curve(self, field: str = "accuracy") -> Curve:
        """A number of each round by its name in the record; parts have dots, such as ``local.accuracy.mean``. NaN where it was
        not measured."""
        _check(field, [self])
        return self._numbers(field)

    def _numbers(self, field: str) -> Curve:
        return np.array([_number(record, field) for record in self.records], dtype=np.float64)

    def weights(self) -> dict[str, npt.NDArray[np.float32]]:
        """The trained weights by the names of their tensors."""
        return _fedelity.weights(self.path)

    def __repr__(self) -> str:
        return f"<Run {self.method}, seed {self.seed}, {len(self.records)} rounds: {self.path}>"


class Result:
    """The runs of a folder: that of ``run``, or any that the command ``fedelity`` wrote.

    >>> Result("first").runs
    [<Run fedavg, seed 1, 2 rounds: first>]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.runs = [Run(Path(folder)) for folder in _fedelity.run_folders(self.path)]
        """All runs, in the order of the configuration."""

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def curve(self, field: str = "accuracy", method: str | None = None) -> Curve:
        """A number of each round for every run, ``[run, round]``; only those of one method if it is named. NaN where it was not
        measured, or the run has no such round."""
        _check(field, self.runs)
        curves = [run._numbers(field) for run in self.runs if method in (None, run.method)]
        if not curves:
            known = ", ".join(dict.fromkeys(run.method for run in self.runs))
            raise ValueError(f"no run of the method {method!r}: there are runs of {known}")
        whole = np.full((len(curves), max(map(len, curves), default=0)), np.nan)
        for row, curve in zip(whole, curves):
            row[: len(curve)] = curve
        return whole

    def to_pandas(self) -> pd.DataFrame:
        """One row for each run and round, one column for each number of the record."""
        import pandas as pd

        rows = [
            {"method": run.method, "seed": run.seed, **_flat(record)} for run in self.runs for record in run.records
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return _fedelity.table(self.path)

    def _repr_html_(self) -> str:
        return _fedelity.picture(self.path)


def _check(field: str, runs: Sequence[Run]) -> None:
    """Refuses what is not the name of a number that the records of these runs can have."""
    known = _fedelity.round_numbers()
    if field not in known:
        # Terms of the loss and layers, whose names depend on the run.
        own = {name for run in runs for record in run.records for name, value in _flat(record).items() if _is_number(value)}
        known += sorted(own.difference(known))
    if field in known:
        return
    near = difflib.get_close_matches(field, known, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else "."
    raise ValueError(f"no number {field!r} in the record of a round{guess} There are {', '.join(known)}; lists are in records")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(record: dict[str, Any], field: str) -> float:
    found: Any = record
    rest = field
    while isinstance(found, dict):
        # Names of layers have dots.
        part = rest if rest in found else rest.partition(".")[0]
        found, rest = found.get(part), rest[len(part) + 1 :]
    if isinstance(found, list) and found:
        # A value with its interval.
        found = found[0]
    return float(found) if isinstance(found, (int, float)) else float("nan")


def _flat(record: dict[str, Any], before: str = "") -> dict[str, Any]:
    """The numbers and words of a record, with parts of parts by dotted names."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{before}{key}.")
        elif not isinstance(value, list):
            flat[before + key] = value
    return flat
