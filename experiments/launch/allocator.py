"""How a run's process gets its memory, which can only be said before it starts: `ablate run` says it for its runs.

glibc maps large blocks anew for every step and gives them back; told to keep them, and to lay them in huge pages, a ViT
trains up to a fifth faster in bf16, BERT a twentieth, translation the same (`ablate bench`, the rows of "ours").
"""

import os
import platform

NAME = "GLIBC_TUNABLES"
KEEPS = ":".join(f"glibc.malloc.{word}" for word in ("mmap_max=0", "trim_threshold=68719476736", "hugetlb=1"))


def allocator() -> dict[str, str]:
    """The environment of a run; empty where it is no glibc, or where somebody has set it already."""
    return {NAME: KEEPS} if platform.libc_ver()[0] == "glibc" and NAME not in os.environ else {}


def hint() -> str:
    """What to tell who starts a run by hand; empty where there is nothing to gain."""
    return f"hint: a run may be faster with {NAME}={KEEPS}, as `ablate run` sets it" if allocator() else ""
