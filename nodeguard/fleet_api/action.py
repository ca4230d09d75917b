"""Views of actions: what operators requested of the agents of nodes, and drains. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from nodeguard.fleet.act.drain_report import DrainReport, DrainState
from nodeguard.fleet_api.drain import drain_views
from nodeguard.fleet_api.schema.action import ActionList, ActionView
from nodeguard.fleet_api.schema.status import VERSION
from nodeguard.fleet_api.service_state import ServiceState, age
from nodeguard.fleet_api.text.wording import api_time, count_noun
from nodeguard.judge.formatting import format_duration
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.job import jobs_text, limit_jobs
from nodeguard.model.pod import PodKey
from nodeguard.model.projection import project
from nodeguard.model.target import target_label

# Actions of a list, and of the view of a node.
MAX_ACTIONS = 1000
_SHOWN = 8


def list_actions(service: ServiceState, now: Instant, uid: str = "") -> ActionList:
    """Return the actions of all nodes, or of one, and the drains that wait to be recorded. uid: of the node;
    empty for all.
    """
    actions = sorted(_latest_attempts(service.actions, uid), key=lambda action: action.state.is_finished)
    running = running_drains(service)
    views = tuple(
        action_view(action, now, running.get((action.uid, action.pods))) for action in actions[:MAX_ACTIONS]
    )
    recorded = {DrainState.RUNNING, DrainState.ANNOUNCED}
    unrecorded = [drain for drain in service.drains if drain.state not in recorded]
    return ActionList(
        VERSION, rfc3339(now.wall), views, len(actions) - len(views), drain_views(unrecorded, now, uid)
    )


def node_actions(service: ServiceState, uid: str, now: Instant) -> tuple[tuple[ActionView, ...], int]:
    """Return the latest actions of a node, unfinished ones first, and the number of the others. A finished
    one stays for a day. Requests that fail again in the same way are one.
    """
    series, running = _series(_latest_attempts(service.actions, uid)), running_drains(service)
    series.sort(key=lambda actions: actions[0].state.is_finished)
    shown, others = series[:_SHOWN], series[_SHOWN:]
    views = tuple(
        replace(action_view(action, now, running.get((action.uid, action.pods))), times=1 + len(earlier))
        for action, *earlier in shown
    )
    return views, sum(map(len, others))


def _series(latest: Iterable[NodeAction]) -> list[list[NodeAction]]:
    """Return requests for the same that failed in a row together, the latest first; others apart."""
    series: list[list[NodeAction]] = []
    last_series: dict[tuple[object, ...], list[NodeAction]] = {}
    for action in latest:
        purpose = (action.kind, action.incident, action.findings, action.gpus, action.seconds)
        previous = last_series.get(purpose)
        has_failed = action.kind.is_for_agent and action.state in {ActionState.FAILED, ActionState.UNKNOWN}
        if has_failed and previous is not None and previous[0].state == action.state:
            previous.append(action)
        else:
            last_series[purpose] = [action]
            series.append(last_series[purpose])
    return series


def running_drains(service: ServiceState) -> dict[tuple[str, tuple[PodKey, ...]], DrainReport]:
    """Return the reports of running drains, by uid of the Node and pods."""
    return {(drain.uid, drain.pods): drain for drain in service.drains if drain.state == DrainState.RUNNING}


def _latest_attempts(actions: Iterable[NodeAction], uid: str) -> list[NodeAction]:
    """Return the last attempt of each request, the latest request first."""
    last_attempts: dict[tuple[str, ...], NodeAction] = {}
    for action in sorted(actions, key=lambda action: action.attempt):
        if uid in {"", action.uid}:
            request = (action.uid, action.kind, action.incident, f"{action.occurrence}", action.request)
            last_attempts[request] = action
    return sorted(last_attempts.values(), key=lambda action: (-action.created_at, action.key))


def action_view(action: NodeAction, now: Instant, running: DrainReport | None = None) -> ActionView:
    """Return the view of an action. running: what the leader knows of a drain that is not finished; the
    record has the pods that are gone only at its end.
    """
    left = running.left if running is not None else None
    return project(
        ActionView,
        action,
        name=action.key,
        purpose=action_text(action),
        message=action.message or (running.reason if running is not None else ""),
        parts=action.parts,
        carried_out=action.carried_out if left is None else action.parts - left,
        created_at=rfc3339(action.created_at),
        age=age(now, action.created_at),
        changed_at=rfc3339(action.ended_at),
        changed_age=age(now, action.ended_at),
    )


def drain_purpose(action: NodeAction | ActionView) -> str:
    """Return for what a drain is, after `for the`, and who requested it."""
    return f"{action.request}, requested by {action.requested_by}" if action.requested_by else action.request


def action_text(action: NodeAction) -> str:
    """Return what an action does, after `to`."""
    match action.kind:
        case ActionKind.CLEAR if action.findings:
            first, more = action.findings[0], len(action.findings) - 1
            others = f" and {count_noun(more, 'more finding')}" if more else ""
            return f"clear {first.check} on {target_label(first.target)}{others}"
        case ActionKind.DETACH_GPUS:
            gpus = f"GPU {', '.join(action.gpus)}" if action.gpus else "all GPUs"
            if not action.seconds:
                return f"attach to {gpus} again"
            return f"detach from {gpus} for {format_duration(action.seconds)}"
        case ActionKind.DRAIN | ActionKind.DRAIN_NOTICE:
            further = len(action.pods) - 1
            others = f" and {count_noun(further, 'more pod')}" if further else ""
            groups = f", with PodGroup {', '.join(map(str, action.pod_groups))}" if action.pod_groups else ""
            jobs, omitted = limit_jobs(pod.job for pod in action.pods if pod.job)
            noun = "job" if len(jobs) == 1 else "jobs"
            of_jobs = f" of {noun} {jobs_text(jobs, omitted)}" if jobs else ""
            time = f" at {api_time(rfc3339(action.deadline))} or later" if action.deadline else ""
            verb = "announce the eviction of" if action.kind == ActionKind.DRAIN_NOTICE else "evict"
            return f"{verb} pod {action.pods[0]}{others}{of_jobs}{groups}{time}"
    return f"{action.kind}"
