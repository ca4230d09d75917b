"""The sender's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from nodeguard.agent.reporting.mailbox import Mailbox
from nodeguard.agent.reporting.sender import Sender
from nodeguard.model.instant import Instant

# Seconds for what is left to be sent at the end: a node that goes down waits for nobody.
_LAST = 1.0


def send(sender: Sender, mailbox: Mailbox, now: Callable[[], Instant], stopped: threading.Event) -> None:
    """Send until stopped, then what is left, and a last report. Whoever stops it sets the mailbox's wake."""
    while not stopped.is_set():
        mailbox.wake.clear()
        wait = sender.turn(now())
        if not stopped.is_set():
            mailbox.wake.wait(wait)
    end = now().mono + _LAST
    while sender.turn(now(), _LAST) <= 0.0 and now().mono < end:
        pass
    sender.leave(now(), max(0.1, end - now().mono))
    sender.close()
