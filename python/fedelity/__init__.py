"""Federated learning on non-IID data without forgetting, on a fast CPU engine."""

from ._fedelity import (
    Client,
    ClosedRound,
    ConfigError,
    DataError,
    Error,
    Evaluation,
    Refused,
    Server,
    Site,
    Study,
    __version__,
)
from ._result import Result, Run
from ._run import resume, run

__all__ = [
    "Client",
    "ClosedRound",
    "ConfigError",
    "DataError",
    "Error",
    "Evaluation",
    "Refused",
    "Result",
    "Run",
    "Server",
    "Site",
    "Study",
    "__version__",
    "resume",
    "run",
]
