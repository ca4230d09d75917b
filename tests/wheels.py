"""The wheels that an installation of nodeguard needs, for tests without a network. Fetched once, with pip's settings."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.image.requirements import requirements
from tests.paths import ROOT


def wheels() -> Path:
    """Return a directory with the wheels for this Python: of the build, the package and the extra `aggregator`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodeguard" / "wheels"
    cache.mkdir(parents=True, exist_ok=True)
    sources = [ROOT / "pyproject.toml", ROOT / "constraints.txt"]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    key = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    target = cache / f"{python}-{key}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            for old in cache.glob(f"{python}-*"):
                shutil.rmtree(old)
            _download(cache / "partial")
            (cache / "partial").rename(target)
    return target


def _download(directory: Path) -> None:
    pyproject = ROOT / "pyproject.toml"
    names = requirements(pyproject, ["build"]) + requirements(pyproject, ["run", "aggregator"])
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    options = ["--only-binary=:all:", f"--constraint={ROOT / 'constraints.txt'}", f"--dest={directory}"]
    subprocess.run([*pip, *options, *dict.fromkeys(names)], check=True)
