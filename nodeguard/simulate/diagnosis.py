"""What the planner blames, and which checks it holds: the one place that knows where it says so."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from msgspec.structs import replace

from nodeguard.fleet.planner import Planner
from nodeguard.model.policy import Policy

_NONE: Mapping[str, Any] = {}


def blamed(planner: Planner) -> Mapping[str, Any]:
    """Domains that are blamed now, by path."""
    found: Mapping[str, Any] = getattr(getattr(planner, "diagnosis", None), "blamed", _NONE)
    return found


def held(planner: Planner) -> Mapping[str, Any]:
    """Checks that are held now, by name."""
    found: Mapping[str, Any] = getattr(getattr(planner, "diagnosis", None), "held", _NONE)
    return found


def due(planner: Planner) -> float:
    """When the next plan is wanted, in seconds of the monotonic clock; infinity where none is."""
    diagnosis = getattr(planner, "diagnosis", None)
    at = diagnosis.due() if diagnosis is not None else None
    return inf if at is None else at


def enforcing(policy: Policy, views: tuple[str, ...]) -> Policy:
    """A policy under which domains of some views are marked, all else as it is."""
    blame = getattr(policy, "blame", None)
    return policy if blame is None else replace(policy, blame=replace(blame, enforce=views))
