"""Writes requirements/*.txt: the packages of the images, with the hashes of their wheels.

    python -m scripts.image_hashes

The versions are those of constraints.txt. Needs an index: pip's configuration applies. The files name none.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from scripts.image.install import MACHINES
from scripts.image.requirements import requirements
from scripts.wheelhouse import ROOT, pinned_options

DIRECTORY = ROOT / "requirements"

# What each file has: the arguments of scripts.image.requirements.
FILES = {"build": ["build"], "agent": ["run"], "aggregator": ["run", "aggregator"]}

_HEADER = "# Written by `python -m scripts.image_hashes` from constraints.txt; do not edit.\n"


def resolve(names: Sequence[str], machine: str) -> dict[str, str]:
    """Return the SHA-256 of the wheel of each package that some requirements need, by `name==version`.

    Raises CalledProcessError.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    target = ["--dry-run", "--ignore-installed", "--target=/nonexistent", "--report=-"]
    command = [*pip, *target, *pinned_options(machine), *names]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {
        f"{item['metadata']['name']}=={item['metadata']['version']}": item["download_info"]["archive_info"][
            "hashes"
        ]["sha256"]
        for item in report["install"]
    }


def text(hashes: Sequence[Mapping[str, str]]) -> str:
    """Return the text of a file. hashes: of each machine type, by `name==version`."""
    names = sorted({name for of_machine in hashes for name in of_machine}, key=str.lower)
    lines = []
    for name in names:
        digests = sorted({of_machine[name] for of_machine in hashes if name in of_machine})
        lines.append(" \\\n".join([name, *(f"    --hash=sha256:{value}" for value in digests)]))
    return _HEADER + "\n".join(lines) + "\n"


def main() -> None:
    """Write all files."""
    DIRECTORY.mkdir(exist_ok=True)
    for name, arguments in FILES.items():
        wanted = requirements(ROOT / "pyproject.toml", arguments)
        hashes = [resolve(wanted, machine) for machine in MACHINES.values()]
        (DIRECTORY / f"{name}.txt").write_text(text(hashes), "utf-8")


if __name__ == "__main__":
    main()
