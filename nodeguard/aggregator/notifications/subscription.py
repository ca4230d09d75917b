"""The subscription of one webhook: which changes of incidents it receives. No input, output or clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState

# What happened to the incident since the last notification about it.
ChangeKind = Literal["opened", "updated", "resolved"]


class SubscriptionState(Struct, frozen=True):
    """The data of a subscription that survives a restart; see Subscription."""

    open: Mapping[str, Incident] = {}
    waiting: Mapping[str, str] = {}


class Subscription:
    """Decides which changes of incidents a webhook receives: opened, updated, and resolved in this order.

    An incident is opened for the webhook when its health reaches min_health. From then on all of its changes
    are received, also with a lower health: a receiver that is not notified of the end has it open for ever.

    open: the incidents that are open for the webhook, by name, as of their latest notification and without
    long texts. waiting: those to notify later, under maintenance or after a notification was dropped: the
    uids of their Nodes by name.
    """

    def __init__(self, min_health: Health) -> None:
        self.open: dict[str, Incident] = {}
        self.waiting: dict[str, str] = {}
        self._min_health = min_health

    def restore(self, incident: Incident, *, in_maintenance: bool) -> None:
        """Take an incident as open from before this start, if its health was ever high enough; under
        maintenance it waits.
        """
        if not self._is_wanted(incident, incident.worst_health):
            return
        if incident.name in self.open or incident.name in self.waiting:
            return
        if in_maintenance:
            self.waiting[incident.name] = incident.uid
        else:
            self.open[incident.name] = _brief(incident)

    def take_waiting(self, limit: int) -> dict[str, str]:
        """Remove incidents that wait, and return the uids of their Nodes by name. limit: the maximum number,
        the oldest first.
        """
        due = dict(islice(self.waiting.items(), limit))
        for name in due:
            del self.waiting[name]
        return due

    def change(self, incident: Incident, *, is_news: bool, in_maintenance: bool) -> ChangeKind | None:
        """Return the change to notify of an incident; None for no notification.

        is_news: whether it has an Event. in_maintenance: whether its node is under maintenance: it is not
        opened now. An incident that another one explains is resolved for the webhook: the other one is
        notified.
        """
        sent = self.open.get(incident.name)
        is_due = self.waiting.pop(incident.name, None) is not None or is_news
        if incident.parent or not incident.is_open:
            self.open.pop(incident.name, None)
            return None if sent is None else "resolved"
        if incident.state == IncidentState.PENDING:
            return None
        if sent is None:
            if not self._is_wanted(incident, incident.health):
                return None
            if in_maintenance:
                self.waiting[incident.name] = incident.uid
                return None
        elif not is_due and incident.health.rank <= sent.health.rank:
            return None
        self.open[incident.name] = _brief(incident)
        return "opened" if sent is None else "updated"

    def notify_again(self, name: str, change: ChangeKind) -> None:
        """Notify an incident again later, as the latest notification of it was dropped. change: of that."""
        sent = self.open.get(name)
        if sent is not None:
            self.waiting[name] = sent.uid
            if change == "opened":
                del self.open[name]

    def ended(
        self, recorded: Mapping[str, Incident], is_over: Callable[[Incident], bool]
    ) -> Iterator[Incident]:
        """Yield the incidents that are open for the webhook and have ended without a change: before this
        start, or because their record is lost. recorded: all incidents by name, those in their grace period
        too. is_over: returns whether an incident that is not recorded is over.
        """
        for name, sent in self.open.items():
            incident = recorded.get(name)
            if incident is None and is_over(sent):
                yield sent
            elif incident is not None and (incident.parent or not incident.is_open):
                yield incident

    def _is_wanted(self, incident: Incident, health: Health) -> bool:
        return not incident.parent and health.rank >= self._min_health.rank


def _brief(incident: Incident) -> Incident:
    """Return an incident without the texts that a later notification does not need."""
    return replace(incident, symptoms=(), jobs=(), detail="", message="")
