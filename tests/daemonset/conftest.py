"""Fixtures of the tests of manifests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cluster import Cluster
from tests.daemonset.helm import Helm
from tests.daemonset.manifests import apply, take_away


@pytest.fixture
def applied(controlplane: Cluster) -> Iterator[Cluster]:
    """A cluster with nodeguard's manifests."""
    apply(controlplane)
    yield controlplane
    take_away(controlplane)


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """Helm without a cluster. A test that requests it needs the programs of the control plane."""
    return Helm(tmp_path)
