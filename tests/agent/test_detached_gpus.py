from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.agent.instructions import DetachedGpus, detach, detached_targets, seconds_until_change
from nodeguard.model.instant import Instant
from nodeguard.model.target import NODE

GPU, OTHER = "gpu/0000:1b:00", "gpu/0000:3b:00"


def at(mono: float) -> Instant:
    return Instant(1e9 + mono, mono, "boot")


@pytest.mark.parametrize(
    ("detached", "slots"),
    [
        (DetachedGpus(), set()),
        (DetachedGpus("boot", {NODE: 11.0}), {NODE}),
        (DetachedGpus("boot", {GPU: 11.0, OTHER: 9.0}), {GPU}),
        (DetachedGpus("boot", {NODE: 10.0}), set()),
        (DetachedGpus("boot before", {NODE: 11.0}), set()),
    ],
)
def test_detached_targets_at_a_time(detached: DetachedGpus, slots: set[str]) -> None:
    assert detached_targets(detached, at(10.0)) == slots


def test_a_second_detachment_keeps_the_first() -> None:
    both = detach(detach(DetachedGpus(), [GPU], 60.0, at(0.0)), [OTHER], 30.0, at(10.0))
    assert both == DetachedGpus("boot", {GPU: 60.0, OTHER: 40.0})
    assert seconds_until_change(both, at(10.0)) == 30.0
    assert detach(both, [], 5.0, at(50.0)) == DetachedGpus("boot", {GPU: 60.0, NODE: 55.0})
    assert seconds_until_change(DetachedGpus(), at(0.0)) is None


@given(st.lists(st.tuples(st.sampled_from([GPU, OTHER]), st.floats(0.1, 100.0)), max_size=8))
def test_at_the_next_change_fewer_targets_are_detached(detachments: list[tuple[str, float]]) -> None:
    detached = DetachedGpus()
    for slot, seconds in detachments:
        detached = detach(detached, [slot], seconds, at(0.0))
    wait = seconds_until_change(detached, at(0.0))
    assert (wait is None) == (not detachments)
    if wait is not None:
        assert detached_targets(detached, at(wait)) < detached_targets(detached, at(0.0))
