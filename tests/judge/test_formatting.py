from __future__ import annotations

import pytest

from nodeguard.judge.formatting import fill_template, format_duration, format_value


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (True, "", "yes"),
        (False, "seconds", "no"),
        (3.0, "", "3"),
        (0.98765, "", "0.9877"),
        (123456.7, "", "123457"),
        ((1, True), "", "1, yes"),
        ("a", "bytes", "a"),
        (0.9712, "ratio", "97.12 %"),
        (1, "ratio", "100 %"),
        (85_520_809_984, "bytes", "79.65 GiB"),
        (512, "bytes", "512 B"),
        (0, "bytes", "0 B"),
        (-2048, "bytes", "-2 KiB"),
        (91.5, "celsius", "91.5 °C"),
        (700, "watts", "700 W"),
        (125.0, "seconds", "2 min 5 s"),
    ],
)
def test_values_are_formatted_with_units(value: object, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0.4 s"),
        (59, "59 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3_466_800, "40 d 3 h"),
        (86_405, "1 d"),
    ],
)
def test_durations_are_formatted_in_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{target} is {level} of {limit~peers}", "GPU 1 is 3 W of 4.5 W"),
        ("{nothing}", "?"),
        ("{on}", "yes"),
        ("no {Place} at all", "no {Place} at all"),
    ],
)
def test_message_template_is_filled_with_values(template: str, text: str) -> None:
    values = {"target": "GPU 1", "level": 3, "limit~peers": 4.5, "on": True}
    assert fill_template(template, values, {"level": "watts", "limit": "watts"}) == text
