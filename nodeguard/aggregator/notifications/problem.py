"""Which webhooks do not accept requests, as one line of the status. Pure."""

from __future__ import annotations

from nodeguard.delivery.delivery import Delivery
from nodeguard.fleet_api.text.phrases import count_noun
from nodeguard.judge.formatting import format_duration


def delivery_problem(delivery: Delivery, now: float, noun: str = "notification") -> str:
    """Return which webhooks do not accept requests, and why; empty for none.

    now: seconds since the epoch. noun: of what it receives.

    One that has lost nothing, and for which nothing waits, is left out: another aggregator sends to it.
    """
    return "; ".join(
        f"webhook {name}: {problem}; {_waiting_text(delivery, name, now, noun)}, "
        f"{count_noun(delivery.refused[name], noun)} refused, "
        f"{count_noun(delivery.dropped[name], noun)} dropped"
        for name, problem in delivery.problems.items()
        if delivery.waiting(name) or delivery.refused[name] or delivery.dropped[name]
    )


def _waiting_text(delivery: Delivery, webhook: str, now: float, noun: str) -> str:
    oldest = delivery.oldest(webhook)
    age = f", the oldest for {format_duration(now - oldest)}" if oldest is not None else ""
    return f"{count_noun(len(delivery.waiting(webhook)), noun)} pending{age}"
