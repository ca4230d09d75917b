"""Damage of the kinds that disks, kernels, people and attackers do, the same for the same seed."""

from __future__ import annotations

from random import Random
from typing import Any

_NASTY = (
    "", "0", "-1", "18446744073709551616", "9" * 40, "1e999", "nan", "\x00", "\n", "\\x0a", "\\xff", "é", "\U0001f4a5", "{}", "[", "}",
    ",", ";", ":", "(", ")", "%s", "{target}", "..", "/", "true", "null", "~", "N/A", "Unknown", " ", "\t", "A" * 5000,
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63, 2**64, -(2**63), 1e308, 0.5, "", "x", "\x00", "9" * 30, [], [None], [1, 2, 3, 4], {}, {"a": 1},
    {"error": "NVML_ERROR_UNKNOWN"}, {"error": ""}, {"error": 7}, {"error": "stall"}, {"error": "hang"}, {"value": 1},
    {"valueType": 1, "value": -5, "nvmlReturn": 0}, {"valueType": 0, "value": "x", "nvmlReturn": 3},
)  # fmt: skip


def text(seed: str, random: Random) -> str:
    """A damaged text: a few cuts, doublings, swaps and insertions."""
    damaged = seed
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(damaged))
        to = min(len(damaged), at + random.randint(0, 12))
        match random.randrange(6):
            case 0:
                damaged = damaged[:at] + damaged[to:]
            case 1:
                damaged = damaged[:at] + random.choice(_NASTY) + damaged[to:]
            case 2:
                damaged = damaged[:at] + damaged[at:to] * 3 + damaged[to:]
            case 3:
                damaged = damaged[:at] + chr(random.randrange(0x110000 - 0x800)) + damaged[at:]
            case 4:
                damaged = damaged[:at]
            case _:
                damaged = damaged[to:] + damaged[:at]
    return damaged.encode(errors="replace").decode(errors="replace")


def value(random: Random) -> Any:
    """A JSON value where another was expected."""
    return random.choice(_VALUES)
