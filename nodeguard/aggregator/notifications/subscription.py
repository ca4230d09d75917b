"""The subscription of one webhook: which changes of incidents it receives. No input, output or clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident, IncidentState

# What happened to the incident since the last notification about it.
ChangeKind = Literal["opened", "updated", "resolved"]


class Subscription:
    """Decides which changes of incidents a webhook receives: opened, updated, and resolved in this order.

    An incident is opened here when its health reaches min_health. From then on all of its changes are
    received, also with a lower health: a receiver that is not notified of the end has it open for ever.
    """

    def __init__(self, min_health: Health) -> None:
        self._min_health = min_health
        # The health in the latest notification of each incident that is open here, by name.
        self._open: dict[str, Health] = {}

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Take these incidents as opened here before this start, if their health is high enough."""
        self._open.update(
            (incident.name, incident.health) for incident in incidents if self._is_wanted(incident)
        )

    def change(self, incident: Incident, *, is_news: bool, is_quiet: bool) -> ChangeKind | None:
        """Return the change to notify of an incident; None for no notification.

        is_news: whether it has an Event. is_quiet: whether it is not opened now. An incident that another
        one explains is resolved here: the other one is notified.
        """
        sent = self._open.get(incident.name)
        if incident.parent or not incident.is_open:
            self._open.pop(incident.name, None)
            return None if sent is None else "resolved"
        if incident.state == IncidentState.PENDING:
            return None
        if sent is None:
            if is_quiet or not self._is_wanted(incident):
                return None
        elif not is_news and incident.health.rank <= sent.rank:
            return None
        self._open[incident.name] = incident.health
        return "opened" if sent is None else "updated"

    def _is_wanted(self, incident: Incident) -> bool:
        return incident.health.rank >= self._min_health.rank
