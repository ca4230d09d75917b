"""Decoding of Xids 144 to 150, NVLink 5 errors, by masks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from nodeguard.model.catalogue import Nvlink5Rule

# Driver branch from which the registers in the message have their second layout.
_SECOND_LAYOUT = 575

_FORM = re.compile(
    # Unit, severity and what follows are padded to columns.
    r"(?P<unit>[A-Z0-9_]+(?: \w+)?)\s+(?P<severity>Fatal|Non-?fatal)\s+XC(?P<crossed>[01])\s+"
    r"i(?P<injected>[01])\s+Link\s+(?P<link>-?\d+)\s+\((?P<words>0x[0-9a-fA-F]+(?:,?\s+0x[0-9a-fA-F]+)*)\)"
)


class Nvlink5Error(Struct, frozen=True):
    """The error in a message of Xid 144 to 150.

    link: -1 without one. injected: a test, no fault. rule: of its sub-code; None for a sub-code that the
    table does not list, which has its printed severity only.
    """

    unit: str
    fatal: bool
    injected: bool
    link: int
    rule: Nvlink5Rule | None


def decode_nvlink5(
    xid: int, message: str, rules: Iterable[Nvlink5Rule], driver: int | None
) -> Nvlink5Error | None:
    """Return the error in a message of Xid 144 to 150; None where it has another match.

    driver: branch, such as 580; where it is unknown the layout is the one in which a rule for the printed
    unit matches.
    """
    match = _FORM.search(message)
    if match is None:
        return None
    registers = [int(register, 16) for register in re.findall(r"0x([0-9a-fA-F]+)", match["words"])]
    info, status = registers[0], registers[1] if len(registers) > 1 else 0
    candidates = [rule for rule in rules if rule.xid == xid and status in (rule.errstatus or (status,))]
    if driver is not None:
        rule = _first_match(candidates, info, second=driver >= _SECOND_LAYOUT)
    else:
        of_unit = [rule for rule in candidates if match["unit"] in rule.unit.split("/")]
        rule = (
            _first_match(of_unit, info, second=False)
            or _first_match(of_unit, info, second=True)
            or _first_match(candidates, info, second=False)
            or _first_match(candidates, info, second=True)
        )
    return Nvlink5Error(
        match["unit"], match["severity"] == "Fatal", match["injected"] == "1", int(match["link"]), rule
    )


def _first_match(rules: Iterable[Nvlink5Rule], info: int, *, second: bool) -> Nvlink5Rule | None:
    for rule in rules:
        mask, value = rule.v2 if second else rule.v1
        if info & mask == value:
            return rule
    return None
