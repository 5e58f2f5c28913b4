"""Methods written in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from . import _fedelity
from ._fedelity import ClientView, ModelView, ServerView, StepView, UploadView

Array = npt.NDArray[np.float32]
Terms = float | Mapping[str, float]


class Key:
    """A hyper-parameter with bounds, a description or a choice of words, where a plain default does not say enough.

    >>> Key(0.01, min=0, about="Strength of the pull.").default
    0.01
    """

    def __init__(
        self,
        default: bool | int | float | str,
        *,
        about: str = "",
        min: float | None = None,
        above: float | None = None,
        max: float | None = None,
        below: float | None = None,
        choices: Sequence[str] = (),
    ) -> None:
        self.default = default
        self.about = about
        self.bounds = (min, above, max, below)
        self.choices = tuple(choices)


class Teacher:
    """Frozen weights whose outputs a loss reads; without weights, those that were received in this round."""

    def __init__(self, weights: Array | None = None, *, features: bool = False) -> None:
        self.weights = weights
        self.features = features


class Method:
    """A federated method: its hyper-parameters and the hooks that it changes. Without any, it is FedAvg.

    Class attributes that are numbers, texts or bools are keys of ``[method]``, with the attribute as the default, and have the
    configuration's value in hooks; underscores become hyphens. All arrays are float32, and weights are one flat array. A method
    keeps no state of its own: hooks run on several threads, and a round may be repeated.
    """

    name: ClassVar[str]
    """The name in a configuration."""
    needs: ClassVar[Sequence[str]] = ()
    """What it requires: ``auxiliary``, ``validation`` or ``unlabelled`` samples on the server, ``client-memory``,
    ``each-upload``, ``label-counts-leave-client``."""

    def sends(self, model: ModelView) -> Mapping[str, int]:
        """What clients send beyond the weights: the length of each array."""
        return {}

    def receives(self, model: ModelView) -> Mapping[str, int]:
        """What clients receive beyond the weights: the length of each array."""
        return {}

    def init(self, server: ServerView) -> Mapping[str, Array]:
        """The server's state before the first round."""
        return {}

    def prepare(self, server: ServerView) -> Mapping[str, Array]:
        """What all clients of this round receive beyond the weights."""
        return {}

    def teachers(self, client: ClientView) -> Sequence[Teacher]:
        """The frozen models whose outputs ``loss`` reads; the engine runs them."""
        return ()

    def loss(self, step: StepView) -> tuple[Terms, Array] | tuple[Terms, Array, Array]:
        """The loss of a batch, its gradient with respect to the logits and, if it depends on them, to the features. Several
        terms are a dict, whose names are recorded."""
        raise NotImplementedError

    def adjust(self, client: ClientView, weights: Array, gradient: Array) -> Terms | None:
        """The part of the loss that depends on the weights alone; adds its gradient to ``gradient``."""
        return None

    def finish(self, client: ClientView, weights: Array) -> tuple[Mapping[str, Array], Mapping[str, Array]] | None:
        """After training: what to send beyond the weights, and what to remember once the server has accepted it. ``None`` sends
        nothing and changes nothing."""
        return None

    def collect(self, server: ServerView, upload: UploadView) -> None:
        """Folds in one upload; uploads come in a fixed order."""
        server.add(upload.weights, upload.weight)

    def conclude(self, server: ServerView) -> Array | None:
        """The new global weights; ``None`` for the mean. What it puts into ``server.state`` is there in the next round."""
        return None


_M = TypeVar("_M", bound=type[Method])

_registered: dict[str, type[Method]] = {}


def register(method: _M) -> _M:
    """Makes a method known by its name, in every configuration of this process. It can be used as a decorator; a class that is
    defined again replaces the earlier one.

    >>> @register
    ... class Pull(Method):
    ...     name = "pull"
    ...     mu = 0.01
    ...     def adjust(self, client, weights, gradient):
    ...         apart = weights - client.weights
    ...         gradient += np.float32(self.mu) * apart
    ...         return {"proximal": 0.5 * self.mu * float(apart @ apart)}
    """
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise TypeError(f"register: expected a subclass of fedelity.Method, found {method!r}")
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        raise TypeError(f"{method.__name__}: a method has a name, such as name = {method.__name__.lower()!r}")
    before = _registered.get(name)
    _registered[name] = method
    try:
        # A class that cannot be used is refused here, before it spoils the configurations of other methods.
        _fedelity.methods()
    except BaseException:
        if before is None:
            del _registered[name]
        else:
            _registered[name] = before
        raise
    return method


def registered() -> dict[str, type[Method]]:
    """The methods of this process that are written in Python, by name."""
    return dict(_registered)


_OWN = {"name", "needs"}


def keys(method: type[Method]) -> list[tuple[str, str, Any, str, tuple[float | None, ...], tuple[str, ...]]]:
    """The hyper-parameters of a class: attribute, key, default, description, bounds and words."""
    found: dict[str, Key] = {}
    for owner in reversed(method.__mro__[: method.__mro__.index(Method)]):
        for name, value in vars(owner).items():
            if name.startswith("_") or name in _OWN or isinstance(value, (staticmethod, classmethod, property)):
                continue
            if isinstance(value, Key):
                found[name] = value
            elif isinstance(value, (bool, int, float, str)):
                found[name] = Key(value)
            elif not callable(value):
                raise TypeError(
                    f"{method.__name__}.{name}: a hyper-parameter is a bool, a number or a text, found {value!r}; "
                    "a name that starts with _ is none"
                )
    return [
        (name, name.replace("_", "-"), key.default, key.about, key.bounds, key.choices) for name, key in found.items()
    ]
