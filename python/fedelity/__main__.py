"""``python -m fedelity`` is the command ``fedelity``."""

import sys

from ._command import main

sys.exit(main())
