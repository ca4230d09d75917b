"""The subscriptions of all webhooks: the notifications of each plan, across restarts. No input or output."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.aggregator.notifications.formats import Notification, notification_of
from nodeguard.aggregator.notifications.settings import Webhook
from nodeguard.aggregator.notifications.subscription import ChangeKind, Subscription, SubscriptionState
from nodeguard.fleet.incidents.events import IncidentEvent, event_of, resolve
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.liveness import MIN_REPORTING_SHARE
from nodeguard.fleet_api.domain import guidance
from nodeguard.fleet_api.text.job import drained_jobs_texts
from nodeguard.model.action import NodeAction
from nodeguard.model.diagnosis import Guidance
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.target import target_label

# Seconds after the first plan until an incident without a record may be over: longer than a grace period, in
# which a fault that is reported is not recorded.
COMPLETE = 900.0

# Seconds of another aggregator's lead after which it has sent a change that waits in this one.
TAKEOVER = 120.0

# Seconds after which a notification that the receiver refused is sent again: the receiver or its settings may
# be repaired, and 1,000 refused ones are few requests.
REFUSED_RETRY = 300.0

# Seconds between two searches for open incidents that have ended without a change.
_CHECK_INTERVAL = 60.0


class _UnsentChange(Struct, frozen=True):
    """A change that this aggregator has not sent. at: seconds of the monotonic clock."""

    at: float
    notification: Notification
    incident: Incident


class _RefusedChange(Struct, frozen=True):
    """A change that the receiver refused. retry_at: seconds of the monotonic clock. incident: None until the
    next plan.
    """

    retry_at: float
    change: ChangeKind
    incident: Incident | None = None


class Subscriptions:
    """The mutable owner of what each webhook has open. revision: increases with each change of it."""

    def __init__(self, webhooks: Iterable[Webhook]) -> None:
        self.revision = 0
        self._subscriptions = {webhook.name: Subscription(webhook.min_health) for webhook in webhooks}
        self._first_plan: float | None = None
        self._next_check = 0.0
        # Since when another aggregator has been the leader; None if there is none.
        self._other_leads_since: float | None = None
        # Changes since this aggregator was active, by webhook and incident, oldest first.
        self._unsent: dict[tuple[str, str], _UnsentChange] = {}
        # Changes that a receiver refused, by webhook and incident, until they are sent again.
        self._refused: dict[tuple[str, str], _RefusedChange] = {}

    def restore(self, states: Mapping[str, SubscriptionState]) -> None:
        """Restore what was open before this start, by webhook. Before the first plan."""
        for webhook, state in states.items():
            if webhook in self._subscriptions:
                self._subscriptions[webhook].open.update(state.open)
                self._subscriptions[webhook].waiting.update(state.waiting)

    def states(self) -> dict[str, SubscriptionState]:
        """Return what survives a restart, by webhook. Incidents with an unsent or refused end are open."""
        states: dict[str, SubscriptionState] = {}
        for name, subscription in self._subscriptions.items():
            opened = {**self.unsent_ends(name), **subscription.open}
            waiting = dict(subscription.waiting)
            for (webhook, incident), refused in self._refused.items():
                if webhook != name or refused.incident is None:
                    continue
                if refused.change == "resolved":
                    opened.setdefault(incident, refused.incident)
                else:
                    waiting[incident] = refused.incident.uid
            states[name] = SubscriptionState(opened, waiting)
        return states

    def are_complete(self) -> bool:
        """Return whether states() has every refused change: the next plan looks up its incident."""
        return all(refused.incident is not None for refused in self._refused.values())

    def unsent_ends(self, webhook: str) -> dict[str, Incident]:
        """Return the incidents with an end that this aggregator has not sent, by name."""
        return {
            name: replace(change.incident, symptoms=())
            for (receiver, name), change in self._unsent.items()
            if receiver == webhook and change.notification.change == "resolved"
        }

    def plan_made(
        self,
        planner: Planner,
        plan: Plan,
        now: Instant,
        *,
        acts: bool,
        has_leader: bool,
        room: Mapping[str, int],
        actions: Collection[NodeAction] = (),
    ) -> list[tuple[str, Notification]]:
        """Return the notifications of a plan, each with its webhook. acts: whether the plan is applied here.
        has_leader: whether any aggregator leads. room: for how many more notifications of each webhook the
        spool has room. actions: all that are stored.
        """
        events = {event.incident: event for event in plan.events}
        changed = {incident.name: incident for incident in plan.incidents}
        if self._first_plan is None:
            self._first_plan = now.mono
            self._restore_recorded(planner, changed, events)
        self._retry_refused(planner, now.mono)
        for name, subscription in self._subscriptions.items():
            due = subscription.take_waiting(room[name])
            for incident in _candidates(planner, changed, due):
                event = events.get(incident.name)
                change = subscription.change(
                    incident,
                    is_news=event is not None or incident.name in due,
                    in_maintenance=_is_in_maintenance(planner, incident),
                )
                if change is not None:
                    advice = (
                        guidance(planner, incident.domain, (incident.cause,)) if incident.domain else None
                    )
                    jobs = drained_jobs_texts(incident, actions, now) if change == "resolved" else ()
                    self._keep_unsent(name, incident, change, _message(incident, event), now, advice, jobs)
        if now.mono >= self._next_check:
            self._next_check = now.mono + _CHECK_INTERVAL
            self._end_unrecorded(planner, now, may_be_over=now.mono - self._first_plan > COMPLETE)
        self._forget_sent(now.mono)
        if not acts:
            self._other_leads_since = (self._other_leads_since or now.mono) if has_leader else None
            return []
        self._other_leads_since = None
        unsent, self._unsent = self._unsent, {}
        return [(webhook, change.notification) for (webhook, _), change in unsent.items()]

    def notify_again(self, webhook: str, dropped: Notification) -> None:
        """Notify an incident again later, as the latest notification of it was dropped."""
        self._subscriptions[webhook].notify_again(dropped.incident, dropped.change)
        self.revision += 1

    def refused(self, webhook: str, notification: Notification, now: float) -> None:
        """Notify an incident again after REFUSED_RETRY: its receiver refused the latest notification.

        now: seconds of the monotonic clock.
        """
        name = notification.incident
        if notification.change == "opened":
            self._subscriptions[webhook].open.pop(name, None)
        self._refused[webhook, name] = _RefusedChange(now + REFUSED_RETRY, notification.change)
        self.revision += 1

    def _retry_refused(self, planner: Planner, now: float) -> None:
        """Look up the incidents of refused changes, and notify those that are due."""
        if not self.are_complete():
            recorded = {incident.name: incident for incident in planner.all_incidents()}
            self._refused = {
                key: replace(refused, incident=refused.incident or recorded[key[1]])
                for key, refused in self._refused.items()
                if refused.incident is not None or key[1] in recorded
            }
            self.revision += 1
        for (webhook, name), refused in list(self._refused.items()):
            if refused.incident is None or now < refused.retry_at:
                continue
            del self._refused[webhook, name]
            subscription = self._subscriptions[webhook]
            if refused.change == "resolved":
                subscription.open.setdefault(name, refused.incident)
                self._next_check = now  # finds that it is over
            else:
                subscription.waiting[name] = refused.incident.uid
            self.revision += 1

    def _restore_recorded(
        self, planner: Planner, changed: Mapping[str, Incident], events: Mapping[str, IncidentEvent]
    ) -> None:
        """Take the recorded incidents that were open before the first plan as open."""
        for incident in planner.all_incidents():
            if _was_open(incident, incident.name in changed, incident.name in events):
                in_maintenance = _is_in_maintenance(planner, incident)
                for subscription in self._subscriptions.values():
                    subscription.restore(incident, in_maintenance=in_maintenance)

    def _end_unrecorded(self, planner: Planner, now: Instant, *, may_be_over: bool) -> None:
        """Notify the end of incidents that ended before this start, or that are not recorded any more.
        may_be_over: whether an incident without a record may be over.
        """
        recorded = {incident.name: incident for incident in planner.all_incidents()}
        for pending in planner.tracker.pending.values():
            recorded = {**pending, **recorded}
        for name, subscription in self._subscriptions.items():
            ended = subscription.ended(
                recorded, lambda incident: may_be_over and _would_be_recorded(planner, incident)
            )
            for incident in list(ended):
                end = incident
                if incident.is_open and not incident.parent:
                    end = resolve(incident, now.wall, "it is no longer recorded")
                if subscription.change(end, is_news=True, in_maintenance=False) == "resolved":
                    self._keep_unsent(name, end, "resolved", _message(end, None), now)

    def _keep_unsent(
        self,
        webhook: str,
        incident: Incident,
        change: ChangeKind,
        message: str,
        now: Instant,
        advice: Guidance | None = None,
        jobs: Sequence[str] = (),
    ) -> None:
        self._refused.pop((webhook, incident.name), None)
        earlier = self._unsent.pop((webhook, incident.name), None)
        if earlier is not None and earlier.notification.change == "opened" and change == "updated":
            change = "opened"
        notification = notification_of(incident, change, message, now.wall, advice, jobs)
        self._unsent[webhook, incident.name] = _UnsentChange(now.mono, notification, incident)
        self.revision += 1

    def _forget_sent(self, now: float) -> None:
        """Forget the changes that another aggregator has sent. Without a leader nothing is sent."""
        if self._other_leads_since is None:
            return
        while self._unsent:
            oldest = next(iter(self._unsent))
            if now - max(self._unsent[oldest].at, self._other_leads_since) <= TAKEOVER:
                return
            del self._unsent[oldest]
            self.revision += 1


def _candidates(
    planner: Planner, changed: Mapping[str, Incident], due: Mapping[str, str]
) -> Iterator[Incident]:
    """Yield the changed incidents, and the recorded ones that are due. due: uids of their Nodes by name."""
    yield from changed.values()
    for name, uid in due.items():
        incident = planner.tracker.recorded.by_uid.get(uid, {}).get(name)
        if incident is not None and name not in changed:
            yield incident


def _was_open(incident: Incident, is_changed: bool, has_event: bool) -> bool:  # noqa: FBT001 - of one incident
    """Return whether an incident was open before the first plan, which may have changed or opened it."""
    if incident.is_open and is_changed:
        # A new one has an Event, and no history.
        is_new = has_event and incident.state != IncidentState.RECOVERING
        return not is_new or incident.highest_health is not None
    return incident.is_open != is_changed


def _would_be_recorded(planner: Planner, incident: Incident) -> bool:
    """Return whether an incident would be recorded if it was not over: enough of its nodes have reported
    since the start, or its Node no longer exists, and it does not exceed the limits.
    """
    if incident.name in planner.tracker.recorded.left_out.get(incident.uid, ()):
        return False
    if incident.node:
        return incident.uid in planner.reports or planner.node(incident.uid) is None
    # Reports of most of the fleet clear a check or a version, but not a rack without power.
    groups = planner.state.placements, planner.vote_collector.domain_members.nodes(incident.domain)
    return all(
        sum(uid in planner.reports for uid in uids) >= MIN_REPORTING_SHARE * len(uids) for uids in groups
    )


def _is_in_maintenance(planner: Planner, incident: Incident) -> bool:
    """Return whether the node of an incident is under maintenance: its faults are expected."""
    placement = planner.state.placements.get(incident.uid)
    return placement is not None and bool(placement.maintenance)


def _message(incident: Incident, event: IncidentEvent | None) -> str:
    """Return a change of an incident as a sentence. event: that of the change, if it has one."""
    if incident.parent:
        return f"{incident.cause} on {target_label(incident.target)} is part of incident {incident.parent}"
    event = event or event_of(None, incident)
    return event.message if event is not None else incident.message
