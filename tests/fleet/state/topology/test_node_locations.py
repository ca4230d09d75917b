from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.fleet.state.topology.node_locations import NodeLocations, is_pattern
from nodeguard.model.policy import NodeLocation

PLACES = NodeLocations(
    (
        NodeLocation("gpu-r1?-*", {"rack": "row-1/any", "power": "feed-a"}),
        NodeLocation("gpu-*", {"rack": "row-2/rest"}),
        NodeLocation("gpu-r12-3", {"rack": "row-9/r12"}),
        NodeLocation("[ab].site", {"power": "feed-b"}),
    )
)


def test_a_name_goes_before_a_pattern_and_the_first_pattern_that_fits_counts() -> None:
    assert PLACES.path("rack", "gpu-r12-3") == "rack/row-9/r12"
    assert PLACES.path("rack", "gpu-r12-4") == "rack/row-1/any"
    assert PLACES.path("rack", "gpu-7") == "rack/row-2/rest"


def test_each_view_is_found_for_itself() -> None:
    assert PLACES.topologies == ("rack", "power")
    assert PLACES.path("power", "gpu-r12-3") == "power/feed-a"
    assert PLACES.path("power", "a.site") == "power/feed-b"


def test_who_fits_nothing_is_nowhere() -> None:
    assert not PLACES.path("rack", "login-1")
    assert not PLACES.path("power", "axsite")
    assert not PLACES.path("power", "a.site2")


NAMES = st.text("ab-", max_size=4)
PATTERNS = st.text("ab-*?[]", min_size=1, max_size=4).filter(is_pattern)


@given(st.lists(PATTERNS, max_size=8), NAMES)
def test_of_patterns_the_first_that_a_shell_would_expand_counts(patterns: list[str], name: str) -> None:
    places = NodeLocations(NodeLocation(pattern, {"rack": f"r{at}"}) for at, pattern in enumerate(patterns))
    fitting = [at for at, pattern in enumerate(patterns) if fnmatchcase(name, pattern)]
    assert (places.path("rack", name) if patterns else "") == (f"rack/r{fitting[0]}" if fitting else "")
