"""Random worlds that once broke an invariant; bench/worlds.py found them."""

from __future__ import annotations

import pytest

from tests.worlds.campaign import run_campaign


@pytest.mark.parametrize("seed", [13006605, 13007953, 13014866, 24003840])
def test_the_invariants_hold(seed: int) -> None:
    assert run_campaign(seed, 1).failures == []
