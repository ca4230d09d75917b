"""The capacity of the fleet and its budgets as HTML: numbers with a bar for each. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.aggregator.pages.html import EMPTY, Html, element, join, link, nodes_path
from nodeguard.fleet_api.schema.capacity import WorkState
from nodeguard.fleet_api.schema.status import BudgetView, FleetStatus
from nodeguard.fleet_api.text.phrases import WORK_STATES, budget_name, budget_use, gpus_text
from nodeguard.fleet_api.text.status import is_advice

# The width of a bar, and that of the narrowest visible part, in its own units.
_WIDTH, _NARROWEST = 1000.0, 6.0

# What a mark is, where the page has it first.
MARK_TITLE = "nodeguard keeps new work away by a taint; without a cluster it advises that"

# Budgets with a bar: one line of a wide screen.
_BUDGETS = 4


def capacity_section(status: FleetStatus) -> Html:
    """Return the nodes by whether they take work, as a bar and as links to them, the GPUs that do, and the
    budgets as bars; empty for no nodes.
    """
    counts = {state: status.capacity.nodes.get(state, 0) for state in WORK_STATES}
    total = sum(counts.values())
    if not total:
        return EMPTY
    labels = WORK_STATES | ({WorkState.MARKED: "advised by nodeguard"} if is_advice(status) else {})
    shown = [state for state in WORK_STATES if counts[state]]
    items = [_item(state, counts[state], labels[state]) for state in shown]
    if gpus := gpus_text(status.capacity):
        items.append(element("li", f"GPUs: {gpus}"))
    parts = [(f"work {state}", counts[state] / total) for state in shown]
    budgets = [_budget(budget) for budget in status.budgets[:_BUDGETS]]
    if omitted_count := status.budgets_omitted + len(status.budgets[_BUDGETS:]):
        more = f"and {omitted_count} more half used: nodeguard get budgets"
        budgets.append(element("li", more, class_="dim"))
    return element(
        "div",
        _bar(parts),
        element("ul", *items, aria_label="Nodes and GPUs"),
        element("ul", element("li", "Budgets", class_="dim"), *budgets, class_="budgets"),
        class_="capacity",
    )


def _item(state: WorkState, count: int, label: str) -> Html:
    swatch = element("i", class_=f"work {state}", aria_hidden="true")
    title = MARK_TITLE if state == WorkState.MARKED else False
    return element("li", swatch, " ", link(nodes_path(state), f"{count} {label}", title=title))


def _budget(budget: BudgetView) -> Html:
    share = min(1.0, budget.used / budget.limit) if budget.limit else 1.0
    style = "fatal" if share >= 1.0 else "warning" if share >= 0.5 else "ok"
    return element("li", budget_name(budget), " ", _bar([(style, share)]), " ", budget_use(budget))


def _bar(parts: Sequence[tuple[str, float]]) -> Html:
    """Return a bar. parts: the class and the share of each; a part that is not 0 is visible. The text beside
    it has the numbers.
    """
    widths = [max(_NARROWEST, share * _WIDTH) if share else 0.0 for _, share in parts]
    scale = min(1.0, _WIDTH / (sum(widths) or _WIDTH))
    rectangles, left = [], 0.0
    for (style, _), width in zip(parts, widths, strict=True):
        if width:
            rectangle = {"x": f"{left:.1f}", "y": "0", "width": f"{width * scale:.1f}", "height": "1"}
            rectangles.append(element("rect", class_=style, **rectangle))
        left += width * scale
    return element(
        "svg", join(rectangles), viewBox=f"0 0 {_WIDTH:g} 1", preserveAspectRatio="none", class_="bar",
        aria_hidden="true",
    )  # fmt: skip
