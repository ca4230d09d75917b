"""Decoding of NVLink errors: Xid 74 by its registers, Xids 144 to 150 (NVLink 5) by masks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from nodeguard.model.catalogue import Catalogue, Nvlink5Rule, Xid74Bits
from nodeguard.model.finding import Action

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


# `NVLink: fatal error detected on link 3(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)`; some logs lose the
# registers.
_FATAL = re.compile(r"[Ff]atal error detected on link (\d+)")
_REGISTERS = re.compile(r"\blink (\d+) ?\(((?:0x[0-9a-fA-F]+(?:, ?| )?)+)")
# The driver writes the first letter in both cases.
_UNTRAINED = re.compile(r"[Ff]ailed to train link (\d+)|training failed")


class XidMeaning(Struct, frozen=True):
    """The meaning of one Xid.

    response: NVIDIA's name for the action. reason: a clause that explains it. verdict, action: empty for
    those of the response. link: number of the NVLink, -1 without one. recoverable: whether the error is
    cleared when the links of the GPU are active again.
    """

    response: str
    reason: str = ""
    verdict: str = ""
    action: str = ""
    link: int = -1
    recoverable: bool = False


def decode_xid74(message: str, table: Catalogue) -> XidMeaning:
    """Return the meaning of an Xid 74.

    A link that failed to train needs a reset. The registers report what happened on a link; of several bits
    the one with the strongest response counts. A fatal error of a link is `suspect` at least, unless NVIDIA's
    catalogue calls each of its bits harmless. An event of NVML has no message, so its meaning is unknown.
    """
    fatal, registers = _FATAL.search(message), _REGISTERS.search(message)
    with_link = fatal or registers
    if with_link is None:
        untrained = _UNTRAINED.search(message)
        if untrained is None:
            return XidMeaning("unknown")
        link = int(untrained[1] or -1)
        name = f"link {link}" if link >= 0 else "a link"
        return XidMeaning("RESET_GPU", f"{name} failed to train", link=link, recoverable=True)
    link = int(with_link[1])
    bits = _bits_of(registers[2] if registers else "", table)
    response = max((bit.action for bit in bits), key=lambda name: _rank(name, table), default="unknown")
    reason = "; ".join((f"link {link}", *dict.fromkeys(bit.meaning for bit in bits)))
    if fatal is None or table.response(response).verdict != "warning":
        return XidMeaning(response, reason, link=link)
    return XidMeaning(response, reason, verdict="suspect", action="reset-gpu", link=link, recoverable=True)


def _bits_of(registers: str, table: Catalogue) -> list[Xid74Bits]:
    """Return the meanings of the bits that are set; harmless ones only without any other."""
    values = [int(register, 16) for register in re.findall(r"0x([0-9a-fA-F]+)", registers)]
    meanings = list(_bits(values, table.xid74))
    return [bits for bits in meanings if bits.kind != "ignore"] or meanings


def _bits(values: list[int], table: Iterable[Xid74Bits]) -> Iterator[Xid74Bits]:
    """Yield the table's row of each set bit, and a row for the unlisted bits of each register.

    values: the registers in order.
    """
    unlisted = list(values)
    for row in table:
        mask = sum(1 << bit for bit in row.bits)
        if row.register <= len(values) and values[row.register - 1] & mask:
            unlisted[row.register - 1] &= ~mask
            yield row
    for register, value in enumerate(unlisted, 1):
        if value:
            meaning = f"bits that are not expected in register {register}, 0x{value:x}: report them"
            yield Xid74Bits(register, (), "unlisted", "CONTACT_SUPPORT", meaning)


def _rank(name: str, table: Catalogue) -> tuple[int, int]:
    response = table.response(name)
    return ("ignored", "warning", "suspect", "fatal").index(response.verdict), Action(response.action).rank
