"""Builds the files of a release from the present commit: wheel, sdist, chart, bill of materials, checksums.

    python -m scripts.release [DIRECTORY]

DIRECTORY: default dist. Builds of one commit with the versions of constraints.txt are equal in each byte:
they begin with the files of the commit, and have its time. The workflow of the forge builds the images.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.image.sbom import distribution_component, document
from scripts.version import ROOT, version

_BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
_PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def build(directory: Path) -> None:
    """Write all files of a release. Raises SystemExit for a working tree with changes."""
    if changes := _git("status", "--porcelain"):
        sys.exit(f"a release is built from a commit: commit or remove these changes first:\n{changes}")
    if directory.is_dir() and any(directory.iterdir()):
        sys.exit(f"{directory}: is not empty: remove it, or name another directory")
    directory.mkdir(parents=True, exist_ok=True)
    time = int(_git("log", "-1", "--format=%ct"))
    with TemporaryDirectory(prefix="nodeguard-release-") as scratch:
        tree = Path(scratch) / "tree"
        archive = Path(scratch) / "tree.tar"
        _git("archive", f"--output={archive}", "HEAD")
        _extract(archive, tree)
        # The sdist first: the build of a wheel leaves a directory in the tree.
        sdist = _setuptools("build_sdist", tree, Path(scratch), time)
        _extract(sdist, Path(scratch) / "sdist")
        pack(directory / sdist.name, _files(Path(scratch) / "sdist"), time)
        chart = {f"nodeguard/{name}": path for name, path in _files(tree / "daemonset" / "chart").items()}
        pack(directory / f"nodeguard-{version()}.tgz", chart, time)
        wheel = _setuptools("build_wheel", tree, directory, time)
    bill = directory / f"{wheel.name.partition('-py3')[0]}.cdx.json"
    bill.write_text(json.dumps(_bill(wheel), indent=1) + "\n", "utf-8")
    sums = [f"{sha256(path)}  {path.name}\n" for path in sorted(directory.iterdir())]
    (directory / "SHA256SUMS").write_text("".join(sums), "utf-8")


def pack(target: Path, files: Mapping[str, Path], time: int) -> None:
    """Write a compressed tar that depends only on names, contents, the right to execute, and a time."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=time) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, path in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = path.stat().st_size, time
            member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as content:
                archive.addfile(member, content)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _bill(wheel: Path) -> dict[str, object]:
    """Return the bill of materials of a wheel, with what it needs, as installed where it is built.

    Raises SystemExit where another version than the pinned one is installed.
    """
    pinned = dict(_PINNED.findall((ROOT / "requirements" / "aggregator.txt").read_text("utf-8")))
    installed = {name: distribution(name) for name in pinned}
    for name, package in installed.items():
        if package.version != pinned[name]:
            sys.exit(
                f"{name} {package.version} is installed, not {pinned[name]}: remove .venv, and run make again"
            )
    product = {
        "type": "application",
        "name": "gpu-nodeguard",
        "version": version(),
        "bom-ref": f"pkg:pypi/gpu-nodeguard@{version()}",
        "hashes": [{"alg": "SHA-256", "content": sha256(wheel)}],
    }
    return document(product, map(distribution_component, installed.values()))


def _setuptools(function: str, tree: Path, target: Path, time: int) -> Path:
    """Build a wheel or an sdist of a tree with the installed setuptools; return its path."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time), "PYTHONHASHSEED": "0", "COLUMNS": "80"}
    command = [sys.executable, "-c", _BUILD, function, str(target.resolve())]
    ran = subprocess.run(
        command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True, umask=0o022
    )
    return target / ran.stdout.splitlines()[-1]


def _extract(archive: Path, target: Path) -> None:
    """Extract files with the same modes, whatever the umask is. Python before 3.11.4 has no safe filter."""
    target.mkdir()
    command = ["tar", "-xf", str(archive), "-C", str(target), "--no-same-permissions", "--no-same-owner"]
    subprocess.run(command, check=True, umask=0o022)


def _files(directory: Path) -> dict[str, Path]:
    """Return the files below a directory by their relative names."""
    return {str(path.relative_to(directory)): path for path in directory.rglob("*") if path.is_file()}


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
