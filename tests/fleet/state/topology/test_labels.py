"""The views that labels make."""

from __future__ import annotations

from typing import get_args

from nodeguard.catalog.check_schema import TopologyName as ViewName
from nodeguard.fleet.state.topology.labels import BUILT_IN


def test_checks_can_vote_in_every_view_and_no_label_stands_twice() -> None:
    assert {view.name for view in BUILT_IN} <= set(get_args(ViewName))
    labels = [label for view in BUILT_IN for label in view.labels]
    assert len(labels) == len(set(labels))


def test_the_coarsest_label_comes_first() -> None:
    paths = [view.labels for view in BUILT_IN]
    assert ("topology.kubernetes.io/region", "topology.kubernetes.io/zone") in paths
    assert [path[-1] for path in paths if path[0].startswith("fabric.topograph")] == [
        "fabric.topograph.run/tier-0"
    ]
