"""The renaming of a damaged file, so that a new one takes its place and a person can look at the old one."""

from __future__ import annotations

import os

# The first ones show how it began, the last one is the latest. A history has 256 MiB by default: damaged ones
# must not fill the disk.
_LIMIT = 3


def set_aside(path: str) -> str:
    """Rename a file to `PATH.damaged`, beside earlier ones to `PATH.damaged-2` or `-3`, and return the name.
    A fourth one replaces the third. Raises OSError.
    """
    names = [f"{path}.damaged", *(f"{path}.damaged-{number}" for number in range(2, _LIMIT + 1))]
    aside = next((name for name in names if not os.path.lexists(name)), names[-1])
    os.replace(path, aside)
    return aside
