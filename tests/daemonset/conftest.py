"""Fixtures of the tests of manifests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import Cluster
from tests.daemonset.manifests import apply, take_away


@pytest.fixture
def applied(controlplane: Cluster) -> Iterator[Cluster]:
    """A cluster with nodeguard's manifests."""
    apply(controlplane)
    yield controlplane
    take_away(controlplane)
