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
        ({}, {"budget.fleet": "0.1"}, ("budget.fleet: (not set) → 0.1",)),
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
            {"modeRules": f"[{RULE},{OTHER}]"},
            {"modeRules": f"[{OTHER},{RULE},1]"},
            ("modeRules: added 1", "modeRules: another order"),
        ),
        ({"a": "[1,2,1]"}, {"a": "[1,2]"}, ("a: removed 1",)),
        ({"a": "[1,2,1]"}, {"a": "[2,1]"}, ("a: removed 1",)),
        ({"a": "[1]"}, {"a": "[1,1]"}, ("a: added 1",)),
        ({"a": "[1,2]"}, {"a": "[3,1,4,2]"}, ("a: added 3", "a: added 4")),
        ({"a": "[]"}, {"a": "[]"}, ()),
        ({"a": "[1]"}, {"a": "[true]"}, ("a: removed 1", "a: added true")),
        ({}, {"a": '"none"'}, ("a: (not set) → none",)),
        ({"a": "null"}, {}, ("a: null → (not set)",)),
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
