"""The losses of all methods, for arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _fedelity

Array = npt.NDArray[np.float32]
Labels = npt.NDArray[np.integer[Any]]
Head = tuple[Array, Array]


@lru_cache(maxsize=64)
def _prepared(method: str, classes: int, features: int, hyper: tuple[tuple[str, type, Any], ...]) -> _fedelity.AloneLoss:
    # Types are part of what is remembered, because 1 and True are equal, but not both are a number.
    return _fedelity.AloneLoss(method, classes, features, {name: value for name, _, value in hyper})


def loss(
    method: str,
    logits: Array,
    labels: Labels,
    teacher_logits: Array | Sequence[Array] | None = None,
    *,
    received: Mapping[str, Array] | None = None,
    counts: Labels | None = None,
    features: Array | None = None,
    teacher_features: Sequence[Array] | None = None,
    head: Head | None = None,
    teacher_heads: Sequence[Head] | None = None,
    seed: int = 0,
    **hyper: Any,
) -> Any:
    """The loss of a method on one batch, and its gradient with respect to the logits: ``(loss, grad)``.

    ``logits`` are ``[sample, class]`` and float32, ``labels`` whole numbers; ``teacher_logits`` are those of the received global
    model, or a list if there are several teachers. ``hyper`` are the method's keys, with their defaults if they are not given.
    The loss is the mean over the batch, cross-entropy included; terms that depend on the weights alone are not part of it.

    >>> import numpy as np
    >>> z, t = np.array([[2, 0, 1]], np.float32), np.array([[1, 3, 0]], np.float32)
    >>> value, grad = loss("fedntd", z, np.array([0]), t, beta=1.0, tau=1.0)
    >>> round(value, 4), grad.shape
    (1.4826, (1, 3))

    Some methods read more: ``received`` is what their server sends beyond the weights, by name (``class-alpha`` of FedCAD,
    ``credibility`` of FedSSD, ``half-gammas`` of FedGKD-VOTE, ``logits`` and ``classes-held`` of FedDistill+, ``generator`` and
    ``labels`` of FedGen), and ``counts`` how many samples of each class the client has (FedDistill). MOON and FedDistill compare
    ``features``, ``[sample, feature]``, with those of their teachers; FedDistill and FedGen also run the last layer of the model by
    itself: ``head`` is its ``(weight, bias)``, ``[class, feature]`` and ``[class]``. FedGen draws noise from ``seed``: give another one
    in every step.

    With ``features``, the result has their gradient as a third part, and with ``head``, that of the weight and the bias as a last
    part, a pair. They are what the loss adds beyond the gradient that reaches them through the logits.
    """
    if teacher_logits is None:
        teachers: Sequence[Array] = ()
    elif isinstance(teacher_logits, np.ndarray):
        teachers = (teacher_logits,)
    else:
        teachers = tuple(teacher_logits)
    if teacher_features and features is None:
        raise TypeError("teacher_features are compared with the model's own: give features=... as well")
    classes = logits.shape[1] if getattr(logits, "ndim", 0) == 2 else 0
    wide = features if features is not None else head[0] if head is not None else None
    width = wide.shape[1] if wide is not None and wide.ndim == 2 else 1
    keys = tuple((name, type(hyper[name]), hyper[name]) for name in sorted(hyper))
    try:
        prepared = _prepared(method, classes, width, keys)
    except TypeError:
        # What cannot be remembered is no value of a key, and the library says so.
        prepared = _fedelity.AloneLoss(method, classes, width, hyper)
    value, grad, grad_features, *grad_head = prepared.compute(
        logits,
        labels,
        teachers,
        dict(received or {}),
        counts,
        features,
        tuple(teacher_features or ()),
        head,
        tuple(teacher_heads or ()),
        seed,
    )
    found: tuple[Any, ...] = (value, grad)
    if features is not None:
        found += (grad_features,)
    if head is not None:
        found += (tuple(grad_head),)
    return found
