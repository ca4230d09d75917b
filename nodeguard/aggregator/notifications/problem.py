"""Which webhooks do not accept requests, as one line of the status. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.delivery.delivery import Delivery
from nodeguard.fleet_api.text.phrases import count_noun
from nodeguard.judge.formatting import format_duration


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
