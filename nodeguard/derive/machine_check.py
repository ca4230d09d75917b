"""Machine checks of x86 processors, with their severity decoded from the status word. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nodeguard.model.observation import Event
from nodeguard.model.signal import Scalar

LINE, DECODED = "cpu.machine_check.line", "cpu.machine_check"

# Bits of IA32_MCi_STATUS: the entry is valid; the error was not corrected; the context of the processor is
# corrupt. Sources: Intel Software Developer's Manual, volume 3, machine-check architecture; AMD64
# Architecture Programmer's Manual, volume 2, machine check architecture.
_VALID, _UNCORRECTED, _CONTEXT_CORRUPT = 1 << 63, 1 << 61, 1 << 57

# A status word as the kernel prints it; a shorter one is a cut line.
_STATUS = re.compile(r"[0-9a-fA-F]{16}")

# Messages of AMD's decoder. Source: Linux drivers/edac/mce_amd.c.
_AMD_SEVERITIES = {
    "System Fatal error": "fatal",
    "Uncorrected, software restartable error": "uncorrected",
    "Uncorrected, software containable error": "uncorrected",
    "Deferred error, no action required": "deferred",
    "Corrected error, no action required": "corrected",
}

# Seconds after the start within which the kernel prints the records that the processors kept from before it.
# Ours: large servers take up to two minutes to start their processors and drivers.
_START = 300.0


def decode_machine_check(event: Event) -> Event:
    """Return the event `cpu.machine_check` for a line of a machine check.

    Its severity is corrected, deferred, uncorrected, fatal, before_boot (fatal, and kept from before the
    start) or unknown. event: with the fields of the line; `at` in seconds since boot.
    """
    severity = _severity(event.fields)
    if severity == "fatal" and event.at < _START and "exception" not in event.fields:
        severity = "before_boot"
    return Event(DECODED, event.at, event.text, {**event.fields, "severity": severity}, event.count)


def _severity(fields: Mapping[str, Scalar]) -> str:
    message, status = fields.get("words"), fields.get("status")
    if isinstance(message, str):
        return _AMD_SEVERITIES.get(message, "unknown")
    if not isinstance(status, str) or not _STATUS.fullmatch(status):
        return "unknown"
    bits = int(status, 16)
    if not bits & _VALID:
        return "unknown"
    if not bits & _UNCORRECTED:
        return "corrected"
    return "fatal" if bits & _CONTEXT_CORRUPT else "uncorrected"
