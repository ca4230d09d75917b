"""A picture of a run: nodes out over time, as SVG."""

from __future__ import annotations

from nodeguard.simulate.observer import NodeMarkState, Observer
from nodeguard.simulate.random_faults import DAY

_WIDTH, _HEIGHT, _LEFT, _TOP = 960, 320, 60, 40

_STYLE = (
    "text{font:12px sans-serif;fill:#333}.out{fill:none;stroke:#b3261e;stroke-width:1.5}"
    ".axis{stroke:#888;stroke-width:1}.blame{stroke:#1a56a8;stroke-width:1;stroke-dasharray:4 3}"
)


class Curve(Observer):
    """How many nodes were out, from each moment on at which that changed, and when domains were blamed."""

    def __init__(self) -> None:
        self.points: list[tuple[float, int]] = [(0.0, 0)]
        self.blames: list[tuple[float, str]] = []
        self._out: set[int] = set()

    def marked(self, node: int, now: NodeMarkState, at: float) -> None:
        """See Watcher."""
        if now.quarantine == (node in self._out):
            return
        if now.quarantine:
            self._out.add(node)
        else:
            self._out.remove(node)
        self.points.append((at, len(self._out)))

    def blamed(self, domain: str, at: float) -> None:
        """See Watcher."""
        self.blames.append((at, domain))


def svg(curve: Curve, days: float, title: str) -> str:
    """The picture, of so many days."""
    highest = max([1, *(many for _, many in curve.points)])

    def x(at: float) -> float:
        return round(_LEFT + at / (days * DAY) * _WIDTH, 1)

    def y(many: float) -> float:
        return round(_TOP + (1 - many / highest) * _HEIGHT, 1)

    steps = [f"M{x(0.0)} {y(0)}", *(f"H{x(at)}V{y(many)}" for at, many in curve.points), f"H{x(days * DAY)}"]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + _LEFT + 20} {_HEIGHT + _TOP + 40}">',
        f"<style>{_STYLE}</style>",
        f'<text x="{_LEFT}" y="20">{_escaped(title)}</text>',
        f'<path class="axis" d="M{_LEFT} {_TOP}V{_TOP + _HEIGHT}H{_LEFT + _WIDTH}" fill="none"/>',
        f'<text x="{_LEFT - 8}" y="{y(highest) + 4}" text-anchor="end">{highest}</text>',
        f'<text x="{_LEFT - 8}" y="{y(0) + 4}" text-anchor="end">0</text>',
        f'<text x="{_LEFT}" y="{_TOP + _HEIGHT + 20}">day 0</text>',
        f'<text x="{_LEFT + _WIDTH}" y="{_TOP + _HEIGHT + 20}" text-anchor="end">day {days:g}</text>',
        *(_blame(x(at), domain) for at, domain in curve.blames),
        f'<path class="out" d="{"".join(steps)}"/>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _blame(x: float, domain: str) -> str:
    return f'<path class="blame" d="M{x} {_TOP}v{_HEIGHT}"><title>{_escaped(domain)}</title></path>'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
