"""Tests for nodeguard.fleet_api.job_outcomes and the text of its outcomes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.fleet_api.incident import describe_incident
from nodeguard.fleet_api.job_outcomes import MAX_OUTCOMES, job_outcomes
from nodeguard.fleet_api.node import describe_node
from nodeguard.fleet_api.schema.job import JobState
from nodeguard.fleet_api.text.incident import incident_view
from nodeguard.fleet_api.text.job import job_fields
from nodeguard.fleet_api.text.node import node_view
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.model.job import NodeJob
from nodeguard.model.pod import PodGroupKey, PodKey, RejectedPods
from tests.cli.fleet_output import LEADER, facts
from tests.fleet.scene import Fleet, finding

WALL = 1_700_000_000
NOW = Instant(WALL + 720.0, 5_000.0, "boot")
TRAIN, EVAL, OTHER = "team-a/train", "team-a/eval", "team-b/other"
JOBS = (TRAIN, EVAL, OTHER)
PODS = (
    PodKey("team-a", "train-0", "uid-0", TRAIN),
    PodKey("team-a", "train-1", "uid-1", TRAIN),
    PodKey("team-a", "eval-0", "uid-2", EVAL),
)
RUNNING = NodeAction(
    ActionKind.DRAIN, "gpu-7", "node-7", "quarantine of the node", WALL - 1, pods=PODS,
    state=ActionState.RUNNING, begun_at=WALL,
)  # fmt: skip
SINCE = "by the drain of gpu-7 since 2023-11-14 22:13:20 UTC, 12 min ago"
NOTHING = "no drain has its pods, and nodeguard reads no others: kubectl get pods -n team-b shows them"


def report(state: DrainState, **fields: Any) -> DrainReport:
    made = DrainReport("gpu-7", "node-7", "node", ("gpu-lost",), WALL - 60.0, state, pods=PODS)
    return replace(made, **fields)


def texts(
    *drains: NodeAction | DrainReport,
    uid: str = "node-7",
    since: float = WALL - 60.0,
    until: float = WALL + 999.0,
) -> list[str]:
    """Return the lines of the three jobs."""
    service = replace(
        LEADER,
        actions=tuple(drain for drain in drains if isinstance(drain, NodeAction)),
        drains=tuple(drain for drain in drains if isinstance(drain, DrainReport)),
    )
    outcomes = job_outcomes(JOBS, uid, service, NOW, since=since, until=until)
    return [field.value for field in job_fields(JOBS, 2, outcomes)]


NAMES = "team-a/train, team-a/eval, team-b/other and 2 more"


def lines(*texts: str) -> list[str]:
    return [*texts, f"{OTHER}: {NOTHING}", "and 2 more jobs"]


@pytest.mark.parametrize(
    ("remaining", "gone"),
    [
        (None, (f"2 pods evicted {SINCE}", f"1 pod evicted {SINCE}")),
        (("uid-1", "uid-2"), (f"1 of 2 pods gone, evicted {SINCE}", f"0 of 1 pod gone, evicted {SINCE}")),
        (("uid-1",), (f"1 of 2 pods gone, evicted {SINCE}", f"1 of 1 pod gone, evicted {SINCE}")),
    ],
)
def test_a_running_drain_counts_the_pods_of_each_job(
    remaining: tuple[str, ...] | None, gone: tuple[str, str]
) -> None:
    shown = texts(RUNNING, report(DrainState.RUNNING, remaining=remaining))
    assert shown == lines(f"{TRAIN}: {gone[0]}", f"{EVAL}: {gone[1]}")


def test_what_a_running_drain_waits_for_is_the_reason_of_the_jobs_with_pods() -> None:
    running = report(DrainState.RUNNING, remaining=("uid-1",), reason="team-a/train-1 is still ending")
    waiting = f"{TRAIN}: 1 of 2 pods gone, evicted {SINCE}: team-a/train-1 is still ending"
    assert texts(RUNNING, running) == lines(waiting, f"{EVAL}: 1 of 1 pod gone, evicted {SINCE}")


def test_each_job_waits_for_its_own_pods() -> None:
    left = {TRAIN: "team-a/train-1 is still ending", EVAL: "team-a/eval-0 is still ending"}
    reason = "team-a/train-1, team-a/eval-0 are still ending"
    running = report(
        DrainState.RUNNING, remaining=("uid-1", "uid-2"), reason=reason, job_reasons=tuple(left.items())
    )
    assert texts(RUNNING, running) == lines(
        f"{TRAIN}: 1 of 2 pods gone, evicted {SINCE}: {left[TRAIN]}",
        f"{EVAL}: 0 of 1 pod gone, evicted {SINCE}: {left[EVAL]}",
    )


def test_a_replica_that_does_not_lead_does_not_count_the_pods() -> None:
    assert texts(RUNNING)[0] == f"{TRAIN}: 2 pods evicted {SINCE}"
    assert texts(replace(RUNNING, begun_at=0))[0] == f"{TRAIN}: the drain of gpu-7 is about to evict 2 pods"


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        ({"state": ActionState.SUCCEEDED}, f"2 of 2 pods gone, evicted {SINCE}"),
        (
            {"state": ActionState.FAILED, "remaining": ("uid-1",), "message": "1 was left"},
            f"1 of 2 pods gone, evicted {SINCE}: 1 was left",
        ),
        (
            {"state": ActionState.FAILED, "message": "1 was left"},
            f"2 pods evicted {SINCE}: 1 was left; how many are gone is not known",
        ),
        (
            {"state": ActionState.UNKNOWN, "message": "no right"},
            f"2 pods evicted {SINCE}: no right; how many are gone is not known",
        ),
    ],
    ids=["succeeded", "failed", "failed in an earlier version", "unknown"],
)
def test_an_ended_drain(ended: dict[str, Any], text: str) -> None:
    assert texts(replace(RUNNING, **ended))[0] == f"{TRAIN}: {text}"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"state": DrainState.WOULD_DRAIN}, "2 pods stay: dry run: nothing is evicted"),
        (
            {"state": DrainState.ANNOUNCED, "evict_at": WALL + 3600.0},
            "2 pods stay: the drain is announced for 2023-11-14 23:13:20 UTC or later",
        ),
        ({"state": DrainState.WAITS, "reason": "a budget"}, "2 pods stay: a budget"),
    ],
)
def test_the_pods_of_a_drain_that_waits_stay(fields: dict[str, Any], text: str) -> None:
    assert texts(report(**fields))[0] == f"{TRAIN}: {text}"


def test_a_drain_that_is_forbidden_before_its_pods_are_read_keeps_those_of_all_jobs() -> None:
    paused = report(DrainState.WAITS, reason="paused by ann", pods=())
    [text, _] = texts(paused)
    assert text == "team-a/train, team-a/eval, team-b/other: no pod is evicted for now: paused by ann"
    assert texts(paused, uid="") == texts(paused, uid="node-8") == [NAMES]
    assert texts(replace(RUNNING, state=ActionState.SUCCEEDED), paused)[2] == (
        f"{OTHER}: no pod is evicted for now: paused by ann"
    )


@pytest.mark.parametrize(
    "action",
    [
        replace(RUNNING, kind=ActionKind.CLEAR),
        replace(RUNNING, state=ActionState.CANCELLED, begun_at=0),
        replace(RUNNING, uid="node-8"),
        replace(RUNNING, created_at=WALL + 1_000),
        replace(RUNNING, released_at=WALL - 61),
        replace(RUNNING, pods=tuple(replace(pod, job="") for pod in PODS)),
    ],
    ids=["no drain", "withdrawn", "other node", "after the fault", "earlier quarantine", "no names"],
)
def test_a_drain_that_does_not_concern_the_fault_changes_no_line(action: NodeAction) -> None:
    assert texts(action) == [NAMES]


def test_a_drain_released_since_the_fault_began_counts() -> None:
    done = replace(RUNNING, state=ActionState.SUCCEEDED, released_at=WALL - 60)
    assert len(texts(done)) == 4


def test_a_gang_that_leaves_whole_loses_its_pods_on_other_nodes() -> None:
    whole = replace(RUNNING, uid="node-8", node="gpu-8", pod_groups=(PodGroupKey("team-a", "train"),))
    assert texts(whole)[0].startswith(f"{TRAIN}: 2 pods evicted by the drain of gpu-8 since ")


def test_each_drain_of_a_domain_counts_and_the_number_is_limited() -> None:
    drains = [
        replace(RUNNING, uid=f"node-{number}", created_at=WALL - number % 50, request=f"quarantine {number}")
        for number in range(MAX_OUTCOMES)
    ]
    outcomes = job_outcomes(JOBS, "", replace(LEADER, actions=drains), NOW, since=WALL - 60.0)
    assert len(outcomes) == MAX_OUTCOMES
    assert {outcome.state for outcome in outcomes} == {JobState.LEAVES}


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        (
            RejectedPods(554, WALL, "GPU is lost"),
            "500 or more new pods by the kubelet (UnexpectedAdmissionError), the latest 1 min ago: GPU is lost",
        ),
        (
            RejectedPods(1, WALL, ""),
            "1 new pod by the kubelet (UnexpectedAdmissionError), the latest 1 min ago",
        ),
        (RejectedPods(500, 0.0, ""), "500 or more new pods by the kubelet (UnexpectedAdmissionError)"),
    ],
)
def test_rejected_pods_are_shown_with_a_fatal_incident(pods: RejectedPods, text: str) -> None:
    fleet = Fleet(8)
    fleet.report(1, finding(), finding("port-down", "port/mlx5_0/1", health=Health.SUSPECT))
    fleet.after(10.0)
    fleet.carry_out()
    recent = replace(pods, latest=pods.latest and fleet.wall - 60.0)
    service = replace(LEADER, rejected_pods={"uid-1": recent})
    node = describe_node(fleet.planner, service, "node-1", fleet.now)
    assert node is not None
    assert facts(node_view(node))["rejected"] == text
    shown = dict[Health, str | None]()
    for incident in fleet.planner.all_incidents():
        view = describe_incident(fleet.planner, service, incident.name, fleet.now)
        assert view is not None
        shown[incident.health] = facts(incident_view(view)).get("rejected")
    assert shown == {Health.FATAL: text, Health.SUSPECT: None}


def test_a_failed_drain_names_the_pods_of_a_job_that_it_left() -> None:
    message = "1 of 3 pods gone after 30m; team-a/train-1, team-a/eval-0 are still ending: decide"
    failed = replace(RUNNING, state=ActionState.FAILED, remaining=("uid-1", "uid-2"), message=message)
    end = "the drain failed, and left team-a/{}: decide whether to delete these pods by hand"
    assert texts(failed) == lines(
        f"{TRAIN}: 1 of 2 pods gone, evicted {SINCE}: {end.format('train-1')}",
        f"{EVAL}: 0 of 1 pod gone, evicted {SINCE}: {end.format('eval-0')}",
    )


@pytest.mark.parametrize("state", [ActionState.RUNNING, ActionState.FAILED])
def test_a_node_shows_the_reason_of_a_drain_once(state: ActionState) -> None:
    fleet = Fleet(8)
    fleet.planner.state.update_jobs("uid-1", (NodeJob(TRAIN),))
    fleet.report(1, finding())
    fleet.after(10.0)
    fleet.carry_out()
    reason = "team-a/train-1 is still ending"
    remaining = ("uid-1",)
    drains: tuple[DrainReport, ...] = ()
    drain = replace(
        RUNNING, node="node-1", uid="uid-1", created_at=int(fleet.wall), begun_at=int(fleet.wall), state=state
    )
    if state == ActionState.FAILED:
        drain = replace(drain, message=reason, remaining=remaining)
    else:
        running = report(DrainState.RUNNING, node="node-1", uid="uid-1", reason=reason, remaining=remaining)
        drains = (running,)
    view = describe_node(fleet.planner, replace(LEADER, actions=(drain,), drains=drains), "node-1", fleet.now)
    assert view is not None
    shown = facts(node_view(view))
    assert shown["action"].endswith(reason)
    assert "drain" not in shown
    assert shown["jobs"].startswith(f"{TRAIN}: 1 of 2 pods gone, evicted by the drain of node-1 since ")
    assert reason not in shown["jobs"]


def test_incident_and_node_show_the_same_outcomes_until_the_quarantine_is_released() -> None:
    fleet = Fleet(8)
    fleet.planner.state.update_jobs("uid-1", (NodeJob(TRAIN), NodeJob(OTHER)))
    fleet.report(1, finding())
    fleet.after(10.0)
    fleet.carry_out()
    [incident] = fleet.planner.all_incidents()
    drained = replace(
        RUNNING,
        uid="uid-1",
        created_at=int(fleet.wall),
        begun_at=int(fleet.wall),
        state=ActionState.SUCCEEDED,
    )

    def shown(action: NodeAction) -> tuple[str, str]:
        service = replace(LEADER, actions=(action,))
        of_incident = describe_incident(fleet.planner, service, incident.name, fleet.now)
        of_node = describe_node(fleet.planner, service, "node-1", fleet.now)
        assert of_incident is not None
        assert of_node is not None
        return facts(incident_view(of_incident))["jobs"], facts(node_view(of_node))["jobs"]

    of_incident, of_node = shown(drained)
    assert of_incident == of_node
    assert of_node.startswith(f"{TRAIN}: 2 of 2 pods gone, evicted by the drain of gpu-7 since ")
    of_incident, of_node = shown(replace(drained, released_at=int(fleet.wall)))
    assert of_incident.startswith(f"{TRAIN}: 2 of 2 pods gone")
    assert of_node == f"{TRAIN}, {OTHER}"
