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

from scripts.image.requirements import requirements

ROOT = Path(__file__).parent.parent

# Of the base image in the Containerfiles.
PYTHON = "3.11"
GLIBC_MINOR = 36


def download(directory: Path, machine: str) -> None:
    """Download the wheels of both images, and those that build nodeguard. Raises CalledProcessError."""
    pyproject = ROOT / "pyproject.toml"
    names = requirements(pyproject, ["build"]) + requirements(pyproject, ["run", "aggregator"])
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    subprocess.run([*pip, *wheel_options(machine), f"--dest={directory}", *dict.fromkeys(names)], check=True)


def wheel_options(machine: str) -> list[str]:
    """Return the options of pip for the wheels of the images, in the versions of constraints.txt."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(5, GLIBC_MINOR + 1)]
    platforms = [f"--platform={tag}" for tag in (*tags, f"manylinux2014_{machine}", f"manylinux1_{machine}")]
    target = ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}", *platforms]
    return [*target, f"--constraint={ROOT / 'constraints.txt'}"]


if __name__ == "__main__":
    match sys.argv[1:]:
        case [directory]:
            download(Path(directory), platform.machine())
        case [directory, machine]:
            download(Path(directory), machine)
        case _:
            sys.exit(__doc__)
