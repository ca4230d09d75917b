"""The view of nodeguard simulate --scenario. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.fleet_api.view import Field, Heading, Note, Section, View
from nodeguard.simulate.scenario_run import Outcome, ScenarioResult
from nodeguard.simulate.scenarios import Expectation


def scenarios_view(results: Sequence[ScenarioResult]) -> View:
    """Return the view: the wanted outcome of each scenario beside the real one."""
    hits = sum(result.as_expected for result in results)
    count = Note(f"{hits} of {len(results)} as wanted", "strong")
    return View((*map(_scenario, results), Section(None, (count,))))


def _scenario(result: ScenarioResult) -> Section:
    style = "ok" if result.as_expected else "warning"
    title = f"{result.summary} ({count_noun(result.nodes, 'node')}, {result.hours:.1f} h)"
    fields = (
        Field("wanted", _wanted(result.expected)),
        Field("outcome", _outcome(result.outcome)),
        Field("result", "as wanted" if result.as_expected else "different", style),
    )
    return Section(Heading(result.scenario, style, title, separator=": "), fields)


def _wanted(expected: Expectation) -> str:
    others = (
        f"{count_noun(expected.others, 'node')} quarantined, at most"
        if expected.others
        else "no node quarantined"
    )
    quarantined = _list("quarantined", expected.quarantined)
    texts = [
        _list("degraded", expected.degraded) or "no domain degraded",
        "any may recover" if expected.any_recovered else _list("recovered", expected.recovered),
        f"{quarantined}, no other" if quarantined else others,
        _list("may be suppressed", expected.may_suppress),
    ]
    return "; ".join(filter(None, texts))


def _outcome(outcome: Outcome) -> str:
    texts = [
        _list("degraded", outcome.degraded) or "no domain degraded",
        _list("recovered", outcome.recovered),
        _list("quarantined", outcome.quarantined) or "no node quarantined",
        _list("released again", outcome.released),
        _list("suppressed", outcome.suppressed),
    ]
    return "; ".join(filter(None, texts))


# Names that are listed; of more, only their number.
_LISTED = 3


def _list(state: str, names: Sequence[str]) -> str:
    """Return the names in a state as text; empty for none."""
    return f"{state}: {', '.join(names) if len(names) <= _LISTED else len(names)}" if names else ""
