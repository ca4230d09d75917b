"""The programs of the tests' control plane, and their cache.

The cache is `nodeguard/controlplane` in XDG_CACHE_HOME or ~/.cache. It has a directory for each part and combination
of its module, flags and machine, which is created atomically.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class BuildError(Exception):
    """The control plane is not available. The message has the reason and the remedy."""


class Part(NamedTuple):
    """A Go module, and the flags for the build of its tools.

    programs: the names of its tools, by the name under which Go builds each. manifests: of its packages, copied to the
    cache.
    """

    name: str
    title: str
    module: Path
    flags: tuple[str, ...]
    programs: Mapping[str, str]
    manifests: tuple[tuple[str, str], ...] = ()

    def directory(self) -> Path:
        """Return the directory of the build with the current module and flags, which may not exist yet."""
        key = hashlib.sha256(platform.machine().encode())
        key.update(repr((self.flags, self.manifests)).encode())
        for name in ("go.mod", "go.sum"):
            key.update((self.module / name).read_bytes())
        return cache() / f"{self.name}-{key.hexdigest()[:16]}"


def _stamp() -> str:
    """Return the linker's flags for the version of Kubernetes: v0.0.0 would switch features off."""
    pinned = re.search(r"k8s\.io/kubernetes v((\d+)\.(\d+)\S*)", (HERE / "go.mod").read_text())
    assert pinned is not None
    values = {"gitVersion": f"v{pinned[1]}", "gitMajor": pinned[2], "gitMinor": pinned[3]}
    return " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items())


KUBERNETES = Part(
    "kubernetes",
    "etcd, Kubernetes and Helm",
    HERE,
    (f"-ldflags=-s -w {_stamp()}",),
    {
        "server": "etcd",
        **{
            name: name
            for name in ("helm", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        },
    },
)
KUEUE = Part(
    "kueue",
    "Kueue",
    HERE / "kueue",
    ("-ldflags=-s -w", "-tags=exclude_scheduler_library"),
    {"kueue": "kueue"},
    manifests=(("sigs.k8s.io/kueue", "config/components"),),
)
OWNERS = Part(
    "owners",
    "JobSet and LeaderWorkerSet",
    HERE / "owners",
    ("-ldflags=-s -w",),
    {"jobset": "jobset", "cmd": "lws"},
    manifests=(("sigs.k8s.io/jobset", "config/components"), ("sigs.k8s.io/lws", "config")),
)
KUBELET = Part("kubelet", "the kubelet", HERE / "kubelet", KUBERNETES.flags, {"kubelet": "kubelet"})

PARTS = (KUBERNETES, KUEUE, OWNERS, KUBELET)


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodeguard" / "controlplane"


def program(name: str) -> str:
    """Return the path of a built program. Raises BuildError if it is missing."""
    (part,) = (part for part in PARTS if name in part.programs.values())
    path = part.directory() / "bin" / name
    if not path.is_file():
        raise BuildError(
            f"{name} is missing: run `scripts/controlplane {part.name}`, which builds {part.title} for the tests"
        )
    return str(path)


def manifests(module: str) -> Path:
    """Return the directory of a Go module's manifests. Raises BuildError if it is missing."""
    (part,) = (part for part in PARTS if module in dict(part.manifests))
    path = part.directory() / "manifests" / module
    if not path.is_dir():
        raise BuildError(
            f"the manifests of {module} are missing: run `scripts/controlplane {part.name}`, which copies them to the cache"
        )
    return path
