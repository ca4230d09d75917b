"""Xid 144 to 150: NVLink 5 errors, decoded by mask. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from nodeguard.model.catalogue import Nvlink5Rule

# Driver branch from which the words of the message have their second layout.
_SECOND_LAYOUT = 575

_FORM = re.compile(
    # Unit, severity and what follows are padded to columns.
    r"(?P<unit>[A-Z0-9_]+(?: \w+)?)\s+(?P<severity>Fatal|Non-?fatal)\s+XC(?P<crossed>[01])\s+"
    r"i(?P<injected>[01])\s+Link\s+(?P<link>-?\d+)\s+\((?P<words>0x[0-9a-fA-F]+(?:,?\s+0x[0-9a-fA-F]+)*)\)"
)


class Nvlink5Error(Struct, frozen=True):
    """What a message of Xid 144 to 150 says.

    link: -1 where the message names none. injected: a test, not a fault. rule: how its sub-code is read, None
    for a sub-code that the table does not list: then the printed severity is all that is known.
    """

    unit: str
    fatal: bool
    injected: bool
    link: int
    rule: Nvlink5Rule | None


def decode_nvlink5(
    xid: int, message: str, rules: Iterable[Nvlink5Rule], driver: int | None
) -> Nvlink5Error | None:
    """Decode a message of Xid 144 to 150; None where it has not their form.

    driver: branch, such as 580; where it is unknown the layout is the one in which a rule for the printed
    unit matches.
    """
    form = _FORM.search(message)
    if form is None:
        return None
    words = [int(word, 16) for word in re.findall(r"0x([0-9a-fA-F]+)", form["words"])]
    info, status = words[0], words[1] if len(words) > 1 else 0
    candidates = [rule for rule in rules if rule.xid == xid and status in (rule.errstatus or (status,))]
    if driver is not None:
        found = _first(candidates, info, second=driver >= _SECOND_LAYOUT)
    else:
        named = [rule for rule in candidates if form["unit"] in rule.unit.split("/")]
        found = (
            _first(named, info, second=False)
            or _first(named, info, second=True)
            or _first(candidates, info, second=False)
            or _first(candidates, info, second=True)
        )
    return Nvlink5Error(
        form["unit"], form["severity"] == "Fatal", form["injected"] == "1", int(form["link"]), found
    )


def _first(rules: Iterable[Nvlink5Rule], info: int, *, second: bool) -> Nvlink5Rule | None:
    for rule in rules:
        mask, value = rule.v2 if second else rule.v1
        if info & mask == value:
            return rule
    return None
