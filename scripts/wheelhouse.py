"""A directory with the wheels that the images are built from, for a build without a package index.

    python -m scripts.wheelhouse DIRECTORY [MACHINE]

MACHINE: x86_64 or aarch64, of the images; default: of this machine. The versions are those of
constraints.txt. The wheels are for Python 3.11 with glibc, as in the base image. Needs an index: pip's
configuration applies.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from scripts.image.install import wheel_options
from scripts.image.requirements import requirements

ROOT = Path(__file__).parent.parent

# Of the base image in the Containerfiles.
PYTHON = "3.11"


def download(directory: Path, machine: str) -> None:
    """Download the wheels of both images, and those that build nodeguard. Raises CalledProcessError."""
    pyproject = ROOT / "pyproject.toml"
    names = requirements(pyproject, ["build"]) + requirements(pyproject, ["run", "aggregator"])
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    subprocess.run([*pip, *pinned_options(machine), f"--dest={directory}", *dict.fromkeys(names)], check=True)


def pinned_options(machine: str) -> list[str]:
    """Return the options of pip for the wheels of the images, in the versions of constraints.txt."""
    versions = [f"--python-version={PYTHON}", f"--constraint={ROOT / 'constraints.txt'}"]
    return [*wheel_options(machine), *versions]


if __name__ == "__main__":
    match sys.argv[1:]:
        case [directory]:
            download(Path(directory), platform.machine())
        case [directory, machine]:
            download(Path(directory), machine)
        case _:
            sys.exit(__doc__)
