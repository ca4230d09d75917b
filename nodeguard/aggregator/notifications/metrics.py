"""Metrics of notifications, by webhook."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from nodeguard.aggregator.metric_families import counters, gauges
from nodeguard.aggregator.notifications.webhooks import Webhooks


class NotificationCollector(Collector):
    """Reads the counters of the deliveries to all webhooks at each scrape."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all webhooks."""
        deliveries = self._webhooks.deliveries
        waiting: dict[str, float] = {}
        oldest: dict[str, float] = {}
        sent, failed, refused, dropped = {}, {}, {}, {}
        for delivery in deliveries:
            for name in delivery.names:
                waiting[name] = len(delivery.waiting(name))
                since = delivery.oldest(name)
                if since is not None:
                    oldest[name] = since
                sent[name], failed[name] = delivery.sent[name], delivery.failed[name]
                refused[name], dropped[name] = delivery.refused[name], delivery.dropped[name]
        for name, about, counts in (
            ("notifications_sent", "Notifications that the receiver has accepted.", sent),
            ("notification_failures", "Failed attempts to send a notification; it is sent again.", failed),
            (
                "notifications_refused",
                "Notifications that the receiver cannot process: status 400, 413 or 422.",
                refused,
            ),
            (
                "notifications_dropped",
                "Notifications that were dropped: too many waited, or they waited for a day.",
                dropped,
            ),
        ):
            yield counters(name, about, "webhook", counts)
        yield gauges("notifications_pending", "Notifications that are not sent yet.", "webhook", waiting)
        yield gauges(
            "notifications_oldest_timestamp_seconds",
            "Since when the oldest notification that is not sent yet waits; no series if there is none.",
            "webhook",
            oldest,
        )
