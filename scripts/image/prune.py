"""Removes the generated classes of the library kubernetes from an installation: nodeguard never imports them.

    python prune.py DIRECTORY    DIRECTORY: site-packages of the installation

The library has a class for each kind of object and each group of the API, twice: 120 of its 126 MB. nodeguard
uses its credentials and sends raw requests (docs/decisions/0016-the-aggregators-libraries.md). The packages
import these classes by name on first use only, so that all other parts of the library still work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

# Directories of generated modules. Their __init__.py stay: they list names, and import none.
GENERATED = ("client/models", "client/api", "aio/client/models", "aio/client/api")


def generated(packages: Path) -> Iterator[Path]:
    """Yield the files to remove. Raises SystemExit where the library has another layout."""
    for name in GENERATED:
        directory = packages / "kubernetes" / name
        if not (directory / "__init__.py").is_file():
            sys.exit(
                f"{directory}: not found: this version of kubernetes has another layout; adapt {__file__}"
            )
        for path in directory.rglob("*"):
            if path.is_file() and path.stem.partition(".")[0] != "__init__":
                yield path


def main(packages: Path) -> None:
    """Remove the files, and print how many bytes they had."""
    removed = 0
    for path in list(generated(packages)):
        removed += path.stat().st_size
        path.unlink()
    print(f"removed {removed >> 20} MiB of generated classes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
