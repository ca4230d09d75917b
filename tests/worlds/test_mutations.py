"""Random worlds find defects: each change of the product below breaks an invariant of some world."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from nodeguard.aggregator import report_handler
from nodeguard.fleet.act import drain_candidates
from nodeguard.fleet.decide import admission, domain_decision, mark_requests, release, restraints
from nodeguard.fleet.decide.domain_marks import DomainMarks
from nodeguard.fleet.decide.release_tracker import ReleaseTracker
from nodeguard.fleet.decide.restored_diagnosis import RestoredDiagnosis
from nodeguard.fleet.diagnosis.degraded_domains import DegradedDomains
from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.diagnosis.results import SuppressedCheck
from nodeguard.fleet.state import node_placement
from nodeguard.fleet.state.budget_usage import BudgetUsage
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.silent_nodes import SilentNodes, Unexplained
from nodeguard.model.mark import MARK_OF_HEALTH
from nodeguard.wire.sequence import Acceptance
from tests.worlds.campaign import run_world
from tests.worlds.history import random_history

WORLDS = 100
# Worlds that find a defect which few find, by defect: they run first. All of the others run if none of them does.
FIRST_WORLDS = {
    "no budget of checks": 12,
    "no budget of domains": 70,
    "a hold on a node is ignored": 12,
    "a hold on a check is ignored": 19,
    "maintenance is ignored": 67,
    "a pause is ignored": 17,
    "a stale agent proves": 32,
    "a domain recovers at once": 11,
    "the clock's jumps are ignored": 70,
}
_open, _release = Diagnosis.open, ReleaseTracker.release

# By defect: the object, its attribute, and the replacement.
MUTATIONS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "no budget of nodes": (BudgetUsage, "nodes_refusal", lambda *_, **__: None),
    "no budget of checks": (BudgetUsage, "check_refusal", lambda *_, **__: None),
    "no budget of domains": (domain_decision, "_nodes_refusal", lambda *_, **__: ""),
    "a hold on a node is ignored": (node_placement, "hold_on_node", lambda *_: None),
    "a hold on a check is ignored": (restraints, "hold_on_check", lambda *_: None),
    "maintenance is ignored": (node_placement, "maintenance_reason", lambda *_, **__: None),
    "a pause is ignored": (restraints, "pause_reason", lambda *_: ""),
    "no grace period": (admission, "grace_end", lambda *_: 0.0),
    "no soak period": (release, "_soak", lambda *_: 0.0),
    "a stale agent proves": (
        ReleaseTracker,
        "release",
        lambda self, uid, stale, *more: _release(self, uid, frozenset(), *more),
    ),
    "data that is not fresh marks": (
        mark_requests,
        "no_request_reason",
        lambda _, active, __: "" if active.health in MARK_OF_HEALTH else "a warning",
    ),
    "a domain recovers at once": (DegradedDomains, "last_shown", lambda *_: -inf),
    "a restart loses domains": (RestoredDiagnosis, "restore", lambda *_: None),
    "a restart loses suppressions": (
        Diagnosis,
        "open",
        lambda self, result: None if isinstance(result, SuppressedCheck) else _open(self, result),
    ),
    "the clock's jumps are ignored": (FleetState, "follow_clock", lambda *_: None),
    "a suppression retracts all": (
        DomainMarks,
        "is_retracted",
        lambda self, cause, uid, _: self._votes.diagnosis.checks.suppression(cause.check, uid) is not None,
    ),
    "messages have no order": (
        report_handler,
        "accept_message",
        lambda state, *_: (state, Acceptance.ACCEPTED),
    ),
    "what forbids a drain is ignored": (drain_candidates, "_blocker", lambda *_: ""),
    "a mark that is not observed drains": (drain_candidates, "_is_to_drain", lambda *_: True),
    "stale agents do not freeze": (SilentNodes, "count_unexplained", lambda *_: Unexplained(0, 0, 0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_an_invariant_finds_the_defect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTATIONS[name])
    for seed in sorted(range(WORLDS), key=lambda seed: seed != FIRST_WORLDS.get(name)):
        try:
            run_world(random_history(seed))
        except AssertionError:
            return
    pytest.fail(f"no world of {WORLDS} finds it")
