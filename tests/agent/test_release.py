from __future__ import annotations

import pytest

from nodeguard.agent.release import Release, left
from nodeguard.model.instant import Instant
from nodeguard.model.slot import NODE


@pytest.mark.parametrize(
    ("release", "slots"),
    [
        (Release(), set()),
        (Release("boot", 11.0), {NODE}),
        (Release("boot", 11.0, ("gpu/0000:1b:00",)), {"gpu/0000:1b:00"}),
        (Release("boot", 10.0), set()),
        (Release("boot before", 11.0), set()),
    ],
)
def test_what_is_left_alone_and_until_when(release: Release, slots: set[str]) -> None:
    assert left(release, Instant(1e9, 10.0, "boot")) == slots
