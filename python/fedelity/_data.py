"""Data as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[Any] | Sequence[int] | Sequence[str]


class Data:
    """Samples in memory, instead of files: images, rows of numbers or texts, and their labels.

    ``x`` are images as uint8, ``[n, height, width]`` or ``[n, channel, height, width]``; rows of numbers as float32 or float64,
    ``[n, column]``; or a list of texts. ``y`` are class numbers or names. ``client`` says where each sample comes from; then each of
    these is a client, unless the configuration has a partition. Without ``x_test``, ``test_fraction`` of each class are kept for
    testing. Images and columns are normalised by the training samples, or by ``normalisation``, a mean and a standard deviation
    for each channel or column.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 200)
    >>> x = rng.normal(y[:, None], 0.5, (200, 4))
    >>> data = Data(x, y, client=rng.integers(0, 5, 200), classes=["low", "middle", "high"])
    >>> from fedelity import run
    >>> result = run({"rounds": 3, "model": {"name": "mlp"}, "clients": {"per-round": 5}}, "sites", data=data)
    >>> result.runs[0].classes, bool(result.curve()[0, -1] > 0.5)
    (['low', 'middle', 'high'], True)
    """

    def __init__(
        self,
        x: npt.NDArray[Any] | Sequence[str],
        y: Labels,
        *,
        client: Labels | None = None,
        x_test: npt.NDArray[Any] | Sequence[str] | None = None,
        y_test: Labels | None = None,
        client_test: Labels | None = None,
        classes: Sequence[str] | None = None,
        normalisation: tuple[Sequence[float], Sequence[float]] | None = None,
        test_fraction: float = 0.2,
        name: str = "arrays",
    ) -> None:
        if (x_test is None) != (y_test is None):
            raise ValueError("x_test and y_test are given together")
        if not 0 < test_fraction < 1:
            raise ValueError(f"test_fraction = {test_fraction}: expected a number above 0 and below 1")
        labels, tests = np.asarray(y), np.asarray([] if y_test is None else y_test)
        for part, name_of in ((labels, "y"), (tests, "y_test")):
            if part.size and part.dtype.kind not in "iuUS":
                raise TypeError(f"{name_of}: expected class numbers or names, found {part.dtype}")
        if labels.dtype.kind in "US":
            names = list(classes) if classes is not None else sorted({*labels.tolist(), *tests.tolist()})
            places = {str(name): place for place, name in enumerate(names)}
            unknown = next((name for name in [*labels.tolist(), *tests.tolist()] if name not in places), None)
            if unknown is not None:
                raise ValueError(f"y: {unknown!r} is not one of the classes {names}")
            labels = np.array([places[name] for name in labels.tolist()], np.int64)
            tests = np.array([places[name] for name in tests.tolist()], np.int64)
        elif classes is None:
            most = max([int(part.max()) for part in (labels, tests) if part.size and part.dtype.kind in "iu"], default=-1)
            names = [str(number) for number in range(most + 1)]
        else:
            names = list(classes)
        self.name = name
        self.classes = names
        self.x, self.y = x, labels
        self.x_test, self.y_test = x_test, None if y_test is None else tests
        self.clients: list[str] = []
        """The names of the clients, if samples say where they come from."""
        self.client, self.client_test = None, None
        if client is not None:
            of = np.asarray(client)
            # Names in the order in which they come, as in a file; numbers in their own.
            one_each = of.tolist() if of.dtype.kind in "US" else np.unique(of).tolist()
            self.clients = list(dict.fromkeys(str(one) for one in one_each))
            known = {name: place for place, name in enumerate(self.clients)}
            self.client = np.array([known[str(one)] for one in of.tolist()], np.int64)
            if client_test is not None:
                tested = [str(one) for one in np.asarray(client_test).tolist()]
                stranger = next((one for one in tested if one not in known), None)
                if stranger is not None:
                    raise ValueError(f"client_test: {stranger!r} has no training samples")
                self.client_test = np.array([known[one] for one in tested], np.int64)
        self.normalisation = normalisation
        self.test_fraction = test_fraction

    def __repr__(self) -> str:
        clients = f", {len(self.clients)} clients" if self.clients else ""
        return f"<Data {self.name}: {len(self.y)} samples, {len(self.classes)} classes{clients}>"
