"""Trained models, partitions and the list of methods."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _fedelity
from ._data import Data
from ._result import Run

Config = Mapping[str, Any] | str | os.PathLike[str]
Target = str | os.PathLike[str] | Run


def _path(target: Target) -> str:
    return os.fspath(target.path if isinstance(target, Run) else target)


def evaluate(
    model: Target,
    x: npt.NDArray[Any] | list[str] | None = None,
    y: npt.NDArray[Any] | None = None,
    *,
    data: str | os.PathLike[str] | None = None,
    part: str | None = None,
) -> _fedelity.Evaluation:
    """Tests a trained model: on arrays, on ``data`` (the name of a set or a configuration with ``[data]``), or on the test data of
    its run. ``model`` is a run, its folder or a model file.

    >>> evaluate("first").samples
    1000
    """
    if (x is None) != (y is None) or (x is not None and (data is not None or part is not None)):
        raise TypeError("evaluate: give x and y, or data, or neither")
    if x is not None:
        return _fedelity.evaluate_arrays(_path(model), x, y)
    options = [*(["--data", os.fspath(data)] if data is not None else []), *(["--part", part] if part else [])]
    return _fedelity.evaluate_files([_path(model), *options])


def predict(model: Target, x: npt.NDArray[Any] | list[str]) -> npt.NDArray[np.float32]:
    """The probability of each class for each sample, ``[sample, class]``. ``x`` is as in ``Data``; numbers are as they were
    measured, not yet normalised.

    >>> import numpy as np
    >>> predict("first", np.zeros((2, 28, 28), np.uint8)).shape
    (2, 10)
    """
    logits, _ = _fedelity.logits(_path(model), x)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True), np.float32)


def export(
    model: Target,
    *,
    onnx: str | os.PathLike[str] | None = None,
    pytorch: str | os.PathLike[str] | None = None,
    safetensors: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a trained model for other programs: ONNX, PyTorch source, or safetensors.

    >>> export("first", onnx="clothes.onnx", pytorch="clothes.py")
    """
    options = []
    for option, file in [("--onnx", onnx), ("--pytorch", pytorch), ("--safetensors", safetensors)]:
        options += [option, os.fspath(file)] if file is not None else []
    _fedelity.perform(["--quiet", "export", _path(model), *options, *(["--overwrite"] if overwrite else [])])


@dataclass(frozen=True)
class Partition:
    """Who holds which training samples."""

    clients: list[npt.NDArray[np.int64]]
    """The places of each client's samples among the training samples."""
    names: list[str]
    """The names of the clients, if they have any."""
    classes: list[str]
    counts: npt.NDArray[np.int64]
    """Samples by client and class."""
    description: str


def partition(config: Config | None = None, *, data: Data | None = None) -> Partition:
    """Divides the data of a configuration over clients, without training.

    >>> partition({"partition": {"kind": "shards", "clients": 5}}).counts.shape
    (5, 10)
    """
    found = _fedelity.partition(dict(config) if isinstance(config, Mapping) else config, data)
    labels, classes = found.pop("labels"), found["classes"]
    counts = [np.bincount(labels[indices], minlength=len(classes)) for indices in found["clients"]]
    return Partition(counts=np.array(counts, np.int64).reshape(-1, len(classes)), **found)


def methods() -> dict[str, dict[str, Any]]:
    """All methods by name, with a summary, the reference, the equation and the keys; those in Python are the last ones.

    >>> methods()["fedprox"]["keys"]["mu"]["default"]
    0.01
    """
    found: dict[str, dict[str, Any]] = json.loads(_fedelity.methods())
    return dict(sorted(found.items(), key=lambda pair: int(pair[1].pop("order"))))
