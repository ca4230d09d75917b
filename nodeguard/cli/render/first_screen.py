"""The views of nodeguard check and nodeguard status for the first screen of a terminal. Pure."""

from __future__ import annotations

from nodeguard.cli.render.terminal import CHECK, FLEET, Layout, view_lines, wrap_lines
from nodeguard.cli.render.verdict import EVERYTHING, Detail, VerdictText, verdict_view
from nodeguard.fleet_api.schema.status import FleetStatus
from nodeguard.fleet_api.text.status import StatusDetail, status_view
from nodeguard.fleet_api.view import View

# The size of a terminal that was never resized, and of the output without one.
SCREEN_ROWS, SCREEN_COLUMNS = 24, 80

# From much to little: the worst findings in full, a line for each other one, then the errors of applications.
_DETAILS = (
    EVERYTHING,
    *(
        Detail(findings, lines=9, evidence=evidence, errors=errors, others=others)
        for findings in (3, 2, 1)
        for evidence, errors, others in ((3, 4, 4), (2, 2, 3), (1, 2, 1))
    ),
    Detail(1, lines=9, evidence=0, errors=1, others=0),
    *(Detail(1, lines, evidence=0, errors=0, others=0) for lines in (9, 7, 5, 3, 2, 1, 0)),
)


def first_screen(text: VerdictText, *, quiet: bool = False) -> View:
    """Return the view with the most details that fits the first screen.

    Its last line names the option that shows everything. quiet: problems only.
    """
    for detail in _DETAILS:
        view = verdict_view(text, quiet=quiet, detail=detail)
        if _fits(view, CHECK):
            break
    return view


# From much to little: the calm facts go first, then the notes of incidents, then the least of them.
_STATUS_DETAILS = (
    *(StatusDetail(facts, notes=notes) for facts, notes in ((True, 4), (False, 4), (True, 1), (False, 1))),
    *(StatusDetail(facts=False, entries=entries, notes=0) for entries in (5, 4, 3, 2, 1)),
)


def first_status_screen(status: FleetStatus) -> View:
    """Return the view of the status with the most details that fits the first screen.

    If it does not show everything, its last line names the option that does.
    """
    view = status_view(status)
    details = iter(_STATUS_DETAILS)
    while not _fits(view, FLEET) and (detail := next(details, None)) is not None:
        view = status_view(status, detail)
    return view


def _fits(view: View, layout: Layout) -> bool:
    return len(wrap_lines(view_lines(view, layout), SCREEN_COLUMNS)) <= SCREEN_ROWS
