"""Why a replica writes nothing, since when, and whether it is ready."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.backends.backend import ApiProblem
from nodeguard.aggregator.leadership import Candidacy
from nodeguard.aggregator.listeners import readiness_page
from nodeguard.aggregator.write_obstacle import ReplicaState, is_ready, may_apply, write_obstacle
from nodeguard.fleet.state.liveness import StaleAgents

HEALTHY = StaleAgents(expected=400, reported=400)
FEW = StaleAgents(frozenset(str(number) for number in range(397)), 400, 400)
LEADER = ReplicaState(0.0, HEALTHY, Candidacy(wanted=True, is_leader=True), "one", 10.0, is_leader=True)
STANDBY = replace(LEADER, candidacy=Candidacy(), is_leader=False)
LACKING = Candidacy(lacks_reports_since=950.0)
REFUSAL = 'leases.coordination.k8s.io "nodeguard-aggregator" is forbidden'


@pytest.mark.parametrize(
    ("replica", "page"),
    [
        (LEADER, "ready"),
        (STANDBY, "ready, on standby for 16 min 30 s: one is the leader"),
        (
            replace(STANDBY, candidacy=LACKING, agents=FEW),
            (
                "ready, on standby for 16 min 30 s: one is the leader, and this replica receives reports of 3 of "
                "400 agents"
            ),
        ),
        (replace(STANDBY, leader=""), "ready for 16 min 30 s: no aggregator is the leader"),
        (
            replace(LEADER, candidacy=LACKING, agents=FEW),
            "ready for 50 s: this replica receives reports of 3 of 400 agents",
        ),
        (
            replace(LEADER, candidacy=LACKING, agents=replace(FEW, frozen="397 of 400 agents are stale")),
            "ready",
        ),
        (replace(LEADER, missing="Nodes"), "not ready for 16 min 40 s: not read yet: Nodes"),
        (
            replace(STANDBY, lease_problem=ApiProblem(957.0), leader=""),
            "ready for 43 s: the API server has not answered",
        ),
        (
            replace(STANDBY, lease_problem=ApiProblem(930.0, REFUSAL)),
            f"not ready for 1 min 10 s: the API server refuses: {REFUSAL}",
        ),
        (
            replace(STANDBY, lease_problem=ApiProblem(999.0), missing="Nodes"),
            "not ready for 1 s: the API server has not answered",
        ),
        (
            replace(LEADER, write_problem=ApiProblem(930.0, 'nodes "a" is forbidden')),
            'not ready for 1 min 10 s: the API server refuses writes of Nodes: nodes "a" is forbidden',
        ),
        (
            replace(LEADER, started_at=990.0, agents=StaleAgents(expected=400, reported=300)),
            "ready for 10 s: 300 of 400 agents have reported: becomes active at 90%, or 1 min after its start",
        ),
        (
            replace(LEADER, listen_problem="cannot listen for agents at [::]:8443: Address already in use"),
            "not ready: cannot listen for agents at [::]:8443: Address already in use",
        ),
    ],
)
def test_the_first_line_of_readiness_has_the_reason(replica: ReplicaState, page: str) -> None:
    answer = readiness_page(replica, 1000.0)
    assert answer.body == f"{page}\n"
    assert (
        answer.status
        == (503 if page.startswith("not ready") else 200)
        == (200 if is_ready(replica, 1000.0) else 503)
    )


def test_a_failed_renewal_does_not_stop_a_leader() -> None:
    replica = replace(LEADER, lease_problem=ApiProblem(999.0))
    assert may_apply(replica, 1000.0)
    obstacle = write_obstacle(replica, 1000.0)
    assert obstacle is not None
    assert obstacle.kind == "api-unreachable"
    assert not may_apply(replace(replica, missing="Nodes"), 1000.0)
    assert not may_apply(STANDBY, 1000.0)
