"""The command ``fedelity``."""

import signal
import sys

from collections.abc import Sequence

from . import _fedelity


def command(arguments: Sequence[str]) -> int:
    """Does what ``fedelity`` does with these arguments, in this process, where methods in Python are known; returns the exit
    status: 0 success, 1 training diverged or a verification found a difference, 2 could not run, 130 interrupted.

    >>> command(["check", "--quiet", "no.toml"])
    2
    """
    return _fedelity.command(["fedelity", *arguments])


def main() -> int:
    """Does what the command line says; returns the exit status."""
    # Python's own handler would only act once the command has ended.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return command(sys.argv[1:])
