"""Clusters that tests share: each is started once, and again after the end of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from tests.controlplane import shared
from tests.controlplane.cluster import API, WHOLE
from tests.controlplane.shared import SharedClusters


def test_a_cluster_is_started_once_until_all_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    started, running = list[object](), list[object]()

    @contextmanager
    def cluster(components: Sequence[str], flags: Mapping[str, Sequence[str]]) -> Iterator[object]:
        made = object()
        started.append((components, *flags["kube-apiserver"]))
        running.append(made)
        yield made
        running.remove(made)

    monkeypatch.setattr(shared, "cluster", cluster)
    clusters = SharedClusters()
    first = clusters.get("first", API)
    assert clusters.get("first", API) is first
    assert started == [(API,)]
    older, whole = clusters.get("older", API, "--emulated-version=1.36"), clusters.get("whole", WHOLE)
    assert running == [first, older, whole]
    clusters.close()
    assert running == []
    assert clusters.get("first", API) is not first
    assert started == [(API,), (API, "--emulated-version=1.36"), (WHOLE,), (API,)]
    clusters.close()
