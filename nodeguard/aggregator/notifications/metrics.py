"""Metrics of notifications, by webhook."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from nodeguard.aggregator.metric_families import counters, gauges
from nodeguard.aggregator.notifications.sender import NotificationSender


class NotificationCollector(Collector):
    """Reads the counters of a sender at each scrape."""

    def __init__(self, sender: NotificationSender) -> None:
        self._sender = sender

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all webhooks."""
        delivery, names = self._sender.delivery, [webhook.name for webhook in self._sender.webhooks]
        for name, about, counts in (
            ("notifications_sent", "Notifications that the receiver has accepted.", delivery.sent),
            (
                "notification_failures",
                "Failed attempts to send a notification; it is sent again.",
                delivery.failed,
            ),
            (
                "notifications_refused",
                "Notifications that the receiver cannot process: status 400, 413 or 422.",
                delivery.refused,
            ),
            (
                "notifications_dropped",
                "Notifications that were dropped: too many waited, or they waited for a day.",
                delivery.dropped,
            ),
        ):
            yield counters(name, about, "webhook", {webhook: counts[webhook] for webhook in names})
        pending = {webhook: len(delivery.waiting(webhook)) for webhook in names}
        yield gauges("notifications_pending", "Notifications that are not sent yet.", "webhook", pending)
        oldest = {webhook: at for webhook in names if (at := delivery.oldest(webhook)) is not None}
        yield gauges(
            "notifications_oldest_timestamp_seconds",
            "Since when the oldest notification that is not sent yet waits; no series if there is none.",
            "webhook",
            oldest,
        )
