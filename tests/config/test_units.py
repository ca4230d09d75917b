"""Durations as files and command lines write them."""

from __future__ import annotations

import pytest

from nodeguard.config.units import parse_duration, parse_fractional_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("5m", 300.0), ("24h", 86_400.0), ("7d", 604_800.0)]
)
def test_a_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == parse_fractional_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "0s", "05s", "1.5h", "45", "-5s", "5 m", "1w", "1234567890s"])
def test_a_file_writes_a_whole_number_and_a_unit(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        parse_duration(text)


def test_a_command_line_may_write_a_fraction_and_no_unit() -> None:
    assert parse_fractional_duration("0.5s") == 0.5
    assert parse_fractional_duration("45") == 45.0
    with pytest.raises(ValueError, match="soon"):
        parse_fractional_duration("soon")
