"""A hundred thousand damaged inputs: no crash, no traceback."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fuzz.campaign import SHARES

pytestmark = pytest.mark.slow

INPUTS = 100_000


@pytest.mark.parametrize("campaign", SHARES, ids=lambda campaign: campaign.__name__)
def test_damaged_input_is_rejected_or_reported(campaign: Callable[[int, int], int]) -> None:
    wanted = INPUTS * SHARES[campaign] // 100
    assert campaign(wanted, 20261121) >= wanted
