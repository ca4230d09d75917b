"""What the agent serves, by path."""

from __future__ import annotations

from collections.abc import Callable

from nodeguard.agent.agent import Agent
from nodeguard.agent.http import Page
from nodeguard.agent.metrics import as_metrics
from nodeguard.agent.reporting.mailbox import Mailbox
from nodeguard.agent.reporting.senders import Senders
from nodeguard.wire.exposition import CONTENT_TYPE

_TEXT = "text/plain; charset=utf-8"


def pages(agent: Agent, mailbox: Mailbox, senders: Senders | None) -> dict[str, Callable[[], Page]]:
    """The pages of an agent: its metrics, whether its loop turns, and whether it has read everything once and
    come to a verdict.
    """

    def unheard() -> dict[str, float] | None:
        now = agent.now().mono
        return {name: now - at for name, at in senders.heard().items()} if senders else None

    def metrics() -> Page:
        if agent.verdict is None:
            return 503, _TEXT, "no source has been read yet\n"
        return (
            200,
            CONTENT_TYPE,
            as_metrics(agent.verdict, agent.ages(), agent.rounds, unheard(), len(mailbox.post.spool)),
        )

    def ready() -> Page:
        if unheard := ", ".join(agent.unheard()):
            return 503, _TEXT, f"not read yet: {unheard}\n"
        return (503, _TEXT, "not judged yet\n") if agent.verdict is None else (200, _TEXT, "ready\n")

    return {"/metrics": metrics, "/healthz": lambda: (200, _TEXT, "alive\n"), "/readyz": ready}
