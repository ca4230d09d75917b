"""The subscription of one webhook: which changes of incidents it receives. No input, output or clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from msgspec.structs import replace

from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState

# What happened to the incident since the last notification about it.
ChangeKind = Literal["opened", "updated", "resolved"]


class Subscription:
    """Decides which changes of incidents a webhook receives: opened, updated, and resolved in this order.

    An incident is opened here when its health reaches min_health. From then on all of its changes are
    received, also with a lower health: a receiver that is not notified of the end has it open for ever.

    open: the incidents that are open here, by name, as of their latest notification and without long texts.
    """

    def __init__(self, min_health: Health) -> None:
        self.open: dict[str, Incident] = {}
        self._min_health = min_health

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Take these incidents as opened here before this start, if their health was ever high enough."""
        for incident in incidents:
            if self._is_wanted(incident, incident.worst_health):
                self.open.setdefault(incident.name, _brief(incident))

    def change(self, incident: Incident, *, is_news: bool, is_quiet: bool) -> ChangeKind | None:
        """Return the change to notify of an incident; None for no notification.

        is_news: whether it has an Event. is_quiet: whether it is not opened now. An incident that another
        one explains is resolved here: the other one is notified.
        """
        sent = self.open.get(incident.name)
        if incident.parent or not incident.is_open:
            self.open.pop(incident.name, None)
            return None if sent is None else "resolved"
        if incident.state == IncidentState.PENDING:
            return None
        if sent is None:
            if is_quiet or not self._is_wanted(incident, incident.health):
                return None
        elif not is_news and incident.health.rank <= sent.health.rank:
            return None
        self.open[incident.name] = _brief(incident)
        return "opened" if sent is None else "updated"

    def ended(
        self, recorded: Mapping[str, Incident], is_over: Callable[[Incident], bool]
    ) -> Iterator[Incident]:
        """Yield the incidents that are open here and have ended without a change: before this start, or
        because their record is lost. recorded: all incidents by name, those in their grace period too.
        is_over: returns whether an incident that is not recorded is over.
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
