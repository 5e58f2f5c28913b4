"""Federated learning on non-IID data without forgetting, on a fast CPU engine."""

from ._command import command
from ._data import Data
from ._fedelity import (
    Client,
    ClosedRound,
    ConfigError,
    DataError,
    Error,
    Evaluation,
    MethodError,
    Refused,
    Server,
    Site,
    Study,
    __version__,
)
from ._loss import loss
from ._method import Key, Method, Teacher, register
from ._result import Result, Run
from ._run import resume, run
from ._trained import Partition, evaluate, export, methods, partition, predict

__all__ = [
    "Client",
    "ClosedRound",
    "ConfigError",
    "Data",
    "DataError",
    "Error",
    "Evaluation",
    "Key",
    "Method",
    "MethodError",
    "Partition",
    "Refused",
    "Result",
    "Run",
    "Server",
    "Site",
    "Study",
    "Teacher",
    "__version__",
    "command",
    "evaluate",
    "export",
    "loss",
    "methods",
    "partition",
    "predict",
    "register",
    "resume",
    "run",
]
