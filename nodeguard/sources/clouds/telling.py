"""Plans told as signals: which of them comes first, and when. Pure."""

from __future__ import annotations

import time

from nodeguard.model.signal import Scalar
from nodeguard.sources.clouds.cloud import Planned, plain


def told(planned: tuple[Planned, ...], now: float) -> tuple[dict[str, Scalar], dict[str, str]]:
    """Signals of the plan that comes first, and why some are not known. planned: at least one. now: seconds
    since the epoch.
    """
    first, *others = sorted(planned, key=lambda one: _urgency(one, now))
    more = f", the first of {len(others) + 1}" if others else ""
    signals: dict[str, Scalar] = {
        "maintenance.pending": True,
        "maintenance.kind": first.kind,
        "maintenance.what": first.what + more,
        "maintenance.when": _when(first, now),
    }
    if first.begun:
        signals["maintenance.starts_in"] = 0.0
    elif first.starts is not None:
        signals["maintenance.starts_in"] = max(0.0, first.starts - now)
    elif first.odd:
        return signals, {"maintenance.starts_in": f"the moment is told as {first.odd!r}"}
    return signals, {}


def _urgency(one: Planned, now: float) -> tuple[int, float]:
    """The least first: what has begun, then by time, and what is only a risk at the end."""
    if one.kind == "rebalance":
        return 2, 0.0
    if one.begun:
        return 0, 0.0
    return 1, one.starts if one.starts is not None else now + one.notice


def _when(one: Planned, now: float) -> str:
    if one.begun:
        return "under way"
    if one.starts is None:
        if one.notice:
            return f"within {one.notice / 60:.0f} min"
        return f"at a moment told as '{plain(one.odd)}'" if one.odd else "at a moment that is not told"
    said = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(one.starts))
    return f"due since {said}" if one.starts <= now else f"not before {said}"
