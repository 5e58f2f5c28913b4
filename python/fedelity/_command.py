"""The command ``fedelity``."""

import signal
import sys

from ._fedelity import command


def main() -> int:
    """Does what the command line says; returns the exit status."""
    # Python's own handler would only act once the command has ended.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return command(["fedelity", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
