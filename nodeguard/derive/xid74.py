"""Xid 74, an NVLink error on Hopper and older GPUs, decoded by its words and its seven registers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from nodeguard.model.catalogue import Catalogue, Xid74Bits
from nodeguard.model.finding import Action

# `NVLink: fatal error detected on link 3(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)`; some logs lose the
# registers.
_FATAL = re.compile(r"[Ff]atal error detected on link (\d+)")
_REGISTERS = re.compile(r"\blink (\d+) ?\(((?:0x[0-9a-fA-F]+(?:, ?| )?)+)")
# The driver writes the first letter in both cases.
_UNTRAINED = re.compile(r"[Ff]ailed to train link (\d+)|training failed")


class XidMeaning(Struct, frozen=True):
    """How one Xid is held.

    response: NVIDIA's word for what to do. why: a half sentence that explains it. verdict, action: empty
    where those of the response count. link: number of the NVLink, -1 where none is named. recoverable:
    whether the error is over when the links of the GPU are active again.
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
    named = fatal or registers
    if named is None:
        untrained = _UNTRAINED.search(message)
        if untrained is None:
            return XidMeaning("unknown")
        link = int(untrained[1] or -1)
        name = f"link {link}" if link >= 0 else "a link"
        return XidMeaning("RESET_GPU", f"{name} failed to train", link=link, recoverable=True)
    link = int(named[1])
    bits = _bits_of(registers[2] if registers else "", table)
    response = max((bit.action for bit in bits), key=lambda word: _rank(word, table), default="unknown")
    why = "; ".join((f"link {link}", *dict.fromkeys(bit.meaning for bit in bits)))
    if fatal is None or table.response(response).verdict != "warning":
        return XidMeaning(response, why, link=link)
    return XidMeaning(response, why, verdict="suspect", action="reset-gpu", link=link, recoverable=True)


def _bits_of(registers: str, table: Catalogue) -> list[Xid74Bits]:
    """Return what the bits that are set mean; harmless bits only where there are no others."""
    values = [int(word, 16) for word in re.findall(r"0x([0-9a-fA-F]+)", registers)]
    meanings = list(_bits(values, table.xid74))
    return [bits for bits in meanings if bits.kind != "ignore"] or meanings


def _bits(values: list[int], table: Iterable[Xid74Bits]) -> Iterator[Xid74Bits]:
    """What the bits that are set mean; those of a register that no row lists are not expected.

    values: the registers, the first one first.
    """
    left = list(values)
    for row in table:
        mask = sum(1 << bit for bit in row.bits)
        if row.register <= len(values) and values[row.register - 1] & mask:
            left[row.register - 1] &= ~mask
            yield row
    for register, value in enumerate(left, 1):
        if value:
            meaning = f"bits that are not expected in register {register}, 0x{value:x}: report them"
            yield Xid74Bits(register, (), "unlisted", "CONTACT_SUPPORT", meaning)


def _rank(word: str, table: Catalogue) -> tuple[int, int]:
    held = table.response(word)
    return ("ignored", "warning", "fatal").index(held.verdict), Action(held.action).rank
