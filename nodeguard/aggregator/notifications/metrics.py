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
        sender, names = self._sender, [webhook.name for webhook in self._sender.webhooks]
        for name, about, counts in (
            ("notifications_sent", "Notifications that the receiver has accepted.", sender.sent),
            (
                "notification_failures",
                "Failed attempts to send a notification; it is sent again.",
                sender.failed,
            ),
            ("notifications_refused", "Notifications that the receiver refuses for good.", sender.refused),
            (
                "notifications_dropped",
                "Notifications that were dropped: the spool was full, or their incident ended a day ago.",
                sender.spool.dropped,
            ),
        ):
            yield counters(name, about, "webhook", {webhook: counts[webhook] for webhook in names})
        pending = {webhook: sender.spool.pending(webhook) for webhook in names}
        yield gauges("notifications_pending", "Notifications that are not sent yet.", "webhook", pending)
