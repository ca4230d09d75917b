"""Which webhooks do not accept requests, and whether one of them owns nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nodeguard.delivery.delivery import Delivery
from nodeguard.fleet_api.service_state import Obstacle
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.judge.formatting import format_duration
from nodeguard.model.instant import Instant

# Seconds for which the receiver of an owner may fail before it is an obstacle: it may restart.
_DOWN_AFTER = 60.0


def owner_obstacle(deliveries: Iterable[Delivery], owned: Mapping[str, int], now: Instant) -> Obstacle | None:
    """Return the obstacle of the webhook that has not accepted the marks of its own nodes for the longest
    time; None for none. owned: number of nodes by the name of their owner.
    """
    failing = [
        (since, name, delivery.problems.get(name, ""))
        for delivery in deliveries
        for name in owned.keys() & delivery.names
        if (since := delivery.failing_since(name)) is not None and now.wall - since >= _DOWN_AFTER
    ]
    if not failing:
        return None
    since, name, problem = min(failing)
    reason = f"webhook {name}, which owns {count_noun(owned[name], 'node')}, accepts no request: {problem}"
    return Obstacle("webhook-down", reason, now.mono - (now.wall - since))


def delivery_problem(delivery: Delivery, now: float, noun: str = "notification") -> str:
    """Return which webhooks do not accept requests, and why; empty for none.

    now: seconds since the epoch. noun: of what it receives.

    One that has lost nothing, and for which nothing waits, is left out: another aggregator sends to it.
    """
    counts = {name: ", ".join(_counts(delivery, name, now, noun)) for name in delivery.problems}
    return "; ".join(
        f"webhook {name}: {problem}; {counts[name]}"
        for name, problem in delivery.problems.items()
        if counts[name]
    )


def _counts(delivery: Delivery, webhook: str, now: float, noun: str) -> Iterator[str]:
    """Yield how many messages wait, were refused and were dropped, without those that are none."""
    if waiting := len(delivery.waiting(webhook)):
        oldest = delivery.oldest(webhook)
        age = f", the oldest for {format_duration(now - oldest)}" if oldest is not None else ""
        yield f"{count_noun(waiting, noun)} pending{age}"
    if refused := delivery.refused[webhook]:
        yield f"{count_noun(refused, noun)} refused"
    if dropped := delivery.dropped[webhook]:
        yield f"{count_noun(dropped, noun)} dropped"
