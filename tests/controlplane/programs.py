"""Which programs make up the control plane of the tests, and where they are once built.

The cache is `nodeguard/controlplane` in XDG_CACHE_HOME or ~/.cache. In it each set of modules, flags and machine has a
directory, which appears whole or not at all.
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
    """What keeps the control plane from being there, and the remedy."""


class Part(NamedTuple):
    """A Go module whose tools are built with these flags. manifests: of its packages, kept beside the programs."""

    says: str
    module: Path
    flags: tuple[str, ...]
    manifests: tuple[tuple[str, str], ...] = ()


def _stamp() -> str:
    """Kubernetes takes its version from the linker: unset, it calls itself v0.0.0, and features stay off."""
    pinned = re.search(r"k8s\.io/kubernetes v((\d+)\.(\d+)\S*)", (HERE / "go.mod").read_text())
    assert pinned is not None
    said = {"gitVersion": f"v{pinned[1]}", "gitMajor": pinned[2], "gitMinor": pinned[3]}
    return " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in said.items())


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
    """Where what these very modules and flags give is, or will be."""
    told = hashlib.sha256(platform.machine().encode())
    for part in PARTS:
        told.update(repr((part.flags, part.manifests)).encode())
        for name in ("go.mod", "go.sum"):
            told.update((part.module / name).read_bytes())
    return cache() / told.hexdigest()[:16]


def program(name: str) -> str:
    """Path of a built program. Raises BuildError where it is not."""
    found = directory() / "bin" / name
    if not found.is_file():
        raise BuildError(
            f"{name} is missing: run `make controlplane`, which builds the control plane of the tests"
        )
    return str(found)


def manifests(module: str) -> Path:
    """Directory of the manifests that were kept of a Go module. Raises BuildError where they are not."""
    found = directory() / "manifests" / module
    if not found.is_dir():
        raise BuildError(
            f"the manifests of {module} are missing: run `make controlplane`, which keeps them beside the programs"
        )
    return found
