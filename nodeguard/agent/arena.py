"""Where the agent's threads allocate."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h of glibc


def one_arena() -> None:
    """Have all threads allocate in one place. To be called before there are any.

    glibc gives each an arena of its own, eight a core, and what a source's thread of a moment leaves there
    is hardly used again. A C library without arenas is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
