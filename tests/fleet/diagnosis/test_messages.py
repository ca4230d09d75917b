"""The messages of the diagnosis that the views of a fleet do not show."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet.diagnosis.messages import degraded_message, suppressed_message
from nodeguard.fleet.diagnosis.results import DegradedDomain, SuppressedCheck
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy
from tests.policies import FAULT_CLASSES

RULE = DiagnosisPolicy(classes=FAULT_CLASSES)
LEAF = DegradedDomain("p0/r0", "fabric/p0/r0", ("link-down",), 9.0, 0.0, ("a", "b", "c"), 8, siblings=4)
AGENTS = SuppressedCheck(STALE_CHECK, 9.0, 0.0, ("a", "b", "c", "d", "e"), 5, 600.0)


@pytest.mark.parametrize(
    ("siblings", "elsewhere", "evidence"),
    [
        (0, 0, ""),
        (1, 0, "; the other domain of fabric/p0 did not"),
        (4, 0, "; the other 4 domains of fabric/p0 did not"),
        (4, 1, "; so did 1 node of the other 4 domains of fabric/p0"),
    ],
)
def test_the_evidence_of_a_domain_names_the_domains_beside_it(
    siblings: int, elsewhere: int, evidence: str
) -> None:
    degraded = replace(LEAF, siblings=siblings, elsewhere=elsewhere)
    whole = f"fabric/p0/r0: 3 of 8 nodes lost a link at once{evidence}"
    assert degraded_message(degraded, RULE) == whole


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        (
            AGENTS,
            (
                "the agents of 5 nodes that no failure domain explains stopped reporting; "
                "probably this aggregator or its network is the cause"
            ),
        ),
        (
            replace(AGENTS, confirmed=True),
            "the agents of 5 nodes that no failure domain explains stopped reporting; so did kubelets",
        ),
        (
            replace(AGENTS, check="gpu-lost", confirmed=True),
            (
                "it fires on 5 nodes that no failure domain explains; up to 4 within 10 min may be chance; "
                "other sources confirm it: the fault is real"
            ),
        ),
        (
            replace(AGENTS, nodes=()),
            "it was suppressed before this aggregator started, and until it has no new findings for a time",
        ),
    ],
)
def test_a_suppressed_check_has_its_reason(check: SuppressedCheck, reason: str) -> None:
    assert suppressed_message(check) == reason
