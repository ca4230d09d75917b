"""The programs of the tests' control plane, and their cache.

The cache is `nodeguard/controlplane` in XDG_CACHE_HOME or ~/.cache. It has one directory for each combination of
modules, flags and machine, which is created atomically.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class BuildError(Exception):
    """The control plane is not available. The message has the reason and the remedy."""


class Part(NamedTuple):
    """A Go module, and the flags for the build of its tools. manifests: of its packages, copied to the cache."""

    name: str
    module: Path
    flags: tuple[str, ...]
    manifests: tuple[tuple[str, str], ...] = ()


def _stamp() -> str:
    """Return the linker's flags for the version of Kubernetes: v0.0.0 would switch features off."""
    pinned = re.search(r"k8s\.io/kubernetes v((\d+)\.(\d+)\S*)", (HERE / "go.mod").read_text())
    assert pinned is not None
    values = {"gitVersion": f"v{pinned[1]}", "gitMajor": pinned[2], "gitMinor": pinned[3]}
    return " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items())


PARTS = (
    Part("etcd, Kubernetes and Helm", HERE, (f"-ldflags=-s -w {_stamp()}",)),
    Part(
        "Kueue",
        HERE / "kueue",
        ("-ldflags=-s -w", "-tags=exclude_scheduler_library"),
        manifests=(("sigs.k8s.io/kueue", "config/components"),),
    ),
)


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodeguard" / "controlplane"


def directory() -> Path:
    """Return the directory of the build with the current modules and flags, which may not exist yet."""
    key = hashlib.sha256(platform.machine().encode())
    for part in PARTS:
        key.update(repr((part.flags, part.manifests)).encode())
        for name in ("go.mod", "go.sum"):
            key.update((part.module / name).read_bytes())
    return cache() / key.hexdigest()[:16]


def program(name: str) -> str:
    """Return the path of a built program. Raises BuildError if it is missing."""
    path = directory() / "bin" / name
    if not path.is_file():
        raise BuildError(
            f"{name} is missing: run `make controlplane`, which builds the control plane of the tests"
        )
    return str(path)


def manifests(module: str) -> Path:
    """Return the directory of a Go module's manifests. Raises BuildError if it is missing."""
    path = directory() / "manifests" / module
    if not path.is_dir():
        raise BuildError(
            f"the manifests of {module} are missing: run `make controlplane`, which copies them to the cache"
        )
    return path
