"""The requirements of pyproject.toml as lines for pip: the dependencies are a layer of their own.

python requirements.py build          what the build of the wheel needs
python requirements.py run [EXTRA]    what nodeguard needs at run time, and an extra
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path


def requirements(pyproject: Path, arguments: Sequence[str]) -> list[str]:
    """Return requirement specifiers. Raises KeyError for an extra that pyproject.toml does not have."""
    document = tomllib.loads(pyproject.read_text())
    project = document["project"]
    match list(arguments):
        case ["build"]:
            selected = document["build-system"]["requires"]
        case ["run", *extras]:
            optional = project["optional-dependencies"]
            selected = [*project["dependencies"], *(line for extra in extras for line in optional[extra])]
        case _:
            sys.exit(__doc__)
    return [str(line) for line in selected]


if __name__ == "__main__":
    print(*requirements(Path("pyproject.toml"), sys.argv[1:]), sep="\n")
