"""Decoding of Xid 74, an NVLink error on Hopper and older GPUs, by its message and registers. Pure."""

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
    return ("ignored", "warning", "fatal").index(response.verdict), Action(response.action).rank
