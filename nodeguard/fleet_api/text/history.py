"""Phrases of changes, for `nodeguard history` and the status page. Pure."""

from __future__ import annotations

from nodeguard.fleet_api.schema.history import HistoryChange

# Style of each change; others have none.
CHANGE_STYLES: dict[HistoryChange, str] = {
    "opened": "fatal",
    "changed": "warning",
    "resolved": "ok",
    "marked": "suspect",
    "released": "ok",
    "stale": "warning",
}
