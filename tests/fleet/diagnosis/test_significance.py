"""Tests for nodeguard.fleet.diagnosis.significance."""

from __future__ import annotations

from math import comb, log

import pytest

from nodeguard.fleet.diagnosis.significance import fewest_significant, significance


def test_a_domain_too_small_for_significance_needs_more_votes_than_nodes() -> None:
    assert fewest_significant(16, 1e-4, 13.8) == 3
    assert fewest_significant(2, 0.5, 13.8) == 3
    for members, chance in ((16, 0.01), (300, 0.05), (7_500, 0.1)):
        few = fewest_significant(members, chance, 13.8)
        assert significance(few, members, chance) >= 13.8 > significance(few - 1, members, chance)


def test_significance_is_the_tail_of_a_binomial_distribution() -> None:
    for members, chance, voters in ((8, 0.01, 4), (16, 0.2, 16), (300, 0.05, 30)):
        tail = sum(
            comb(members, many) * chance**many * (1 - chance) ** (members - many)
            for many in range(voters, members + 1)
        )
        assert significance(voters, members, chance) == pytest.approx(-log(tail))
    assert significance(1, 16, 0.2) == 0.0
