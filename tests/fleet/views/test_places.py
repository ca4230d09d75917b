from __future__ import annotations

from nodeguard.fleet.views.places import Places
from nodeguard.model.policy import Place

PLACES = Places(
    (
        Place("gpu-r1?-*", {"rack": "row-1/any", "power": "feed-a"}),
        Place("gpu-*", {"rack": "row-2/rest"}),
        Place("gpu-r12-3", {"rack": "row-9/r12"}),
        Place("[ab].site", {"power": "feed-b"}),
    )
)


def test_a_name_goes_before_a_pattern_and_the_first_pattern_that_fits_counts() -> None:
    assert PLACES.path("rack", "gpu-r12-3") == "rack/row-9/r12"
    assert PLACES.path("rack", "gpu-r12-4") == "rack/row-1/any"
    assert PLACES.path("rack", "gpu-7") == "rack/row-2/rest"


def test_each_view_is_found_for_itself() -> None:
    assert PLACES.views == ("rack", "power")
    assert PLACES.path("power", "gpu-r12-3") == "power/feed-a"
    assert PLACES.path("power", "a.site") == "power/feed-b"


def test_who_fits_nothing_is_nowhere() -> None:
    assert not PLACES.path("rack", "login-1")
    assert not PLACES.path("power", "axsite")
    assert not PLACES.path("power", "a.site2")
