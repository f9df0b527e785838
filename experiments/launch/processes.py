"""What keeps a run from outliving its launcher."""

import ctypes
import signal
import sys


def die_with_parent() -> None:
    """A killed launcher takes its runs with it (Linux): else they would go on unseen, holding their locks."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
