"""Installs the packages of an image for its processor, on a builder that may have another one.

    python install.py ARCHITECTURE REQUIREMENTS SITE_PACKAGES

ARCHITECTURE: TARGETARCH of the build, `amd64` or `arm64`; empty for that of the builder. Nothing that is
installed runs: pip only unpacks wheels, with the hashes of REQUIREMENTS. Fails if a library is for another
processor.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Of the base image in the Containerfiles.
GLIBC_MINOR = 36

# Architectures of image platforms as the names of wheels have them.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}

# The field e_machine of ELF files, by machine. Source: elf(5), the System V ABI and its supplements.
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
_MAGIC = b"\x7fELF"


def wheel_options(machine: str) -> list[str]:
    """Return the options of pip for the wheels that run on a machine with the base's Python and glibc."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(5, GLIBC_MINOR + 1)]
    platforms = [f"--platform={tag}" for tag in (*tags, f"manylinux2014_{machine}", f"manylinux1_{machine}")]
    return ["--only-binary=:all:", "--implementation=cp", *platforms]


def elf_machine(path: Path) -> int | None:
    """Return the machine of an ELF file; None for another file."""
    with path.open("rb") as file:
        header = file.read(20)
    # Both architectures of images are little-endian.
    return int.from_bytes(header[18:20], "little") if header.startswith(_MAGIC) else None


def foreign(directory: Path, machine: str) -> Iterator[Path]:
    """Yield the ELF files below a directory that are for another machine."""
    for path in directory.rglob("*"):
        if path.is_file() and elf_machine(path) not in {None, ELF_MACHINES[machine]}:
            yield path


def main(architecture: str, requirements: str, packages: Path) -> None:
    """Install, or exit with the reason."""
    machine = MACHINES.get(architecture) or platform.machine()
    if architecture and architecture not in MACHINES:
        sys.exit(f"no image for {architecture}: build for one of {', '.join(MACHINES)}")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-compile",  # the next steps remove modules, and compile the others
        "--require-hashes",
        f"--requirement={requirements}",
    ]
    subprocess.run([*pip, *wheel_options(machine), f"--target={packages}"], check=True)
    # Commands of the packages, for the interpreter of the builder: the image has only that of nodeguard.
    shutil.rmtree(packages / "bin", ignore_errors=True)
    if wrong := list(foreign(packages, machine)):
        sys.exit(f"not for {machine}: {', '.join(map(str, wrong))}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
