"""The values in which two recorded policies differ."""

from __future__ import annotations

import pytest

from nodeguard.fleet_api.policy_changes import policy_changes

RULE = '{"check":"gpu-lost","mode":"enforce"}'
OTHER = '{"checks":["a","b"],"mode":"observe"}'


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        ({"pause": "false"}, {"pause": "true"}, ("pause: false → true",)),
        ({"defaultMode": '"observe"'}, {"defaultMode": '"enforce"'}, ("defaultMode: observe → enforce",)),
        ({}, {"budget.fleet": "0.1"}, ("budget.fleet: none → 0.1",)),
        (
            {"modeRules": f"[{OTHER}]"},
            {"modeRules": f"[{RULE}]"},
            (
                "modeRules: removed {checks: [a, b], mode: observe}",
                "modeRules: added {check: gpu-lost, mode: enforce}",
            ),
        ),
        ({"pools": f"[{RULE},{OTHER}]"}, {"pools": f"[{OTHER},{RULE}]"}, ("pools: another order",)),
        (
            {"locations": "[]"},
            {"locations": "7500 items, digest 00aa"},
            ("locations: [] → 7500 items, digest 00aa",),
        ),
        ({"a": "1", "b": "2"}, {"a": "1", "b": "2"}, ()),
    ],
)
def test_a_changed_value_is_a_line(
    before: dict[str, str], after: dict[str, str], texts: tuple[str, ...]
) -> None:
    assert policy_changes(before, after) == texts
