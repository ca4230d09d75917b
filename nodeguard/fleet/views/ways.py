"""Which of the ways of a view counts: the one by whose keys most nodes are labelled. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

# Another way takes over where it has so many more of all nodes, so that the fleet does not go to and fro; a
# level counts from where so many of its way's nodes have it, and until fewer than so many have.
_MORE = 0.1
_ENOUGH = 0.5
_TOO_FEW = 0.4

Labels = Mapping[str, str]


class Way:
    """Label keys, coarsest first, and how many nodes have them.

    is_own: whether people have said that it is these: each of them counts, whoever has it. carried: how many
    nodes have any of them. used: those that make a node's path.
    """

    def __init__(self, keys: tuple[str, ...], *, is_own: bool = False) -> None:
        self.keys = keys
        self.is_own = is_own
        self.carried = 0
        self.used = keys if is_own else ()
        self._any = 0
        self._having: Counter[str] = Counter()

    def count(self, labels: Labels, values: Labels, by: int) -> None:
        """A node that has any of the keys comes (by 1) or leaves (by -1). values: its labels, and those that
        it had last.
        """
        self._any += by
        self.carried += by * any(labels.get(key) for key in self.keys)
        for key in self.keys:
            if key in values:
                self._having[key] += by

    def weigh(self) -> None:
        """See which of its levels there are."""
        if self.is_own:
            return
        self.used = tuple(key for key in self.keys if self._is_level(key))
        if not self.used and self._any:
            self.used = (max(self.keys, key=lambda key: self._having[key]),)

    def _is_level(self, key: str) -> bool:
        share = _TOO_FEW if key in self.used else _ENOUGH
        return self._having[key] > 0 and self._having[key] >= share * self._any


class Choice:
    """The ways of one view. way: the one that counts; None while no node has a label of any.

    Of two by which as many nodes are labelled, the first counts; one of people's own counts anyway.
    """

    def __init__(self, view: str, ways: Sequence[Way]) -> None:
        self.view = view
        self.way = next((way for way in ways if way.is_own), None)
        self._ways = tuple(ways)
        self._by_key: dict[str, list[Way]] = {}
        for way in ways:
            for key in way.keys:
                self._by_key.setdefault(key, []).append(way)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that make a node's path."""
        return self.way.used if self.way is not None else ()

    def count(self, labels: Labels, values: Labels, by: int) -> None:
        """A node comes or leaves; see Way.count."""
        for way in {way for key in values for way in self._by_key.get(key, ())}:
            way.count(labels, values, by)

    def settle(self, nodes: int) -> bool:
        """Choose anew where that is called for. nodes: of the fleet. Returns whether other keys count now."""
        before, now = self.keys, self.way
        best = max(self._ways, key=lambda way: way.carried)
        if now is None:
            self.way = best if best.carried else None
        elif not now.is_own and best.carried - now.carried >= max(1.0, _MORE * nodes):
            self.way = best
        if self.way is not None:
            self.way.weigh()
        return self.keys != before

    def path(self, values: Labels) -> str:
        """A node's path, down to the first key that it lacks; empty where that is the coarsest."""
        steps = [self.view]
        for key in self.keys:
            if key not in values:
                break
            steps.append(values[key])
        return "/".join(steps) if len(steps) > 1 else ""

    def kept(self, had: Labels, labels: Labels) -> Iterator[str]:
        """Keys that a node had a value of and has none any more, where all else of their way is as it was."""
        for way in self._ways:
            if all(had.get(key) in {None, value} for key in way.keys if (value := labels.get(key))):
                yield from (key for key in way.keys if key in had and not labels.get(key))
