"""Checks with false alarms: a catalogue in which one check fires on healthy nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check, Compare, Condition
from nodeguard.model.signal import Signal
from nodeguard.simulate.agent_reports import SimulatedAgent

# Bad conditions by the kind of target: each is true for a healthy one.
_BAD_CONDITIONS: Mapping[str, Condition] = {
    "gpu": Compare("gpu.error", "is", "none"),
    "node": Compare("nvml.library", "is", value=True),
    "nvlink": Compare("nvlink.active", "is", value=True),
    "port": Compare("port.up", "is", value=True),
}


def false_check_agent(catalogue: Catalogue, signals: Mapping[str, Signal], check_id: str) -> SimulatedAgent:
    """Return an agent with a catalogue in which one check fires on healthy targets of its first kind."""
    checks = tuple(_bad_check(check) if check.id == check_id else check for check in catalogue.checks)
    return SimulatedAgent(replace(catalogue, checks=checks), signals)


def _bad_check(check: Check) -> Check:
    condition = _BAD_CONDITIONS[check.targets[0]]
    return replace(check, when=condition, targets=check.targets[:1], hardware=(), applies_when=None)
