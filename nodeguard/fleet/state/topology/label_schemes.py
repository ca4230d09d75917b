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


class LabelScheme:
    """Label keys, coarsest first, and how many nodes have them.

    is_own: whether people have said that it is these: each of them counts, whoever has it. carried: how many
    nodes have any of them. used: those that make a node's path.
    """

    def __init__(self, keys: tuple[str, ...], *, is_own: bool = False) -> None:
        self.keys = keys
        self.is_own = is_own
        self.labelled_nodes = 0
        self.used_keys = keys if is_own else ()
        self._any = 0
        self._having: Counter[str] = Counter()

    def count(self, labels: Labels, values: Labels, by: int) -> None:
        """A node that has any of the keys comes (by 1) or leaves (by -1). values: its labels, and those that
        it had last.
        """
        self._any += by
        self.labelled_nodes += by * any(labels.get(key) for key in self.keys)
        for key in self.keys:
            if key in values:
                self._having[key] += by

    def choose_keys(self) -> None:
        """See which of its levels there are."""
        if self.is_own:
            return
        self.used_keys = tuple(key for key in self.keys if self._is_level(key))
        if not self.used_keys and self._any:
            self.used_keys = (max(self.keys, key=lambda key: self._having[key]),)

    def _is_level(self, key: str) -> bool:
        share = _TOO_FEW if key in self.used_keys else _ENOUGH
        return self._having[key] > 0 and self._having[key] >= share * self._any


class SchemeSelection:
    """The ways of one view. way: the one that counts; None while no node has a label of any.

    Of two by which as many nodes are labelled, the first counts; one of people's own counts anyway.
    """

    def __init__(self, view: str, ways: Sequence[LabelScheme]) -> None:
        self.topology = view
        self.scheme = next((way for way in ways if way.is_own), None)
        self._ways = tuple(ways)
        self._by_key: dict[str, list[LabelScheme]] = {}
        for way in ways:
            for key in way.keys:
                self._by_key.setdefault(key, []).append(way)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that make a node's path."""
        return self.scheme.used_keys if self.scheme is not None else ()

    def count(self, labels: Labels, values: Labels, by: int) -> None:
        """A node comes or leaves; see Way.count."""
        for way in {way for key in values for way in self._by_key.get(key, ())}:
            way.count(labels, values, by)

    def choose_scheme(self, nodes: int) -> bool:
        """Choose anew where that is called for. nodes: of the fleet. Returns whether other keys count now."""
        before, now = self.keys, self.scheme
        best = max(self._ways, key=lambda way: way.labelled_nodes)
        if now is None:
            self.scheme = best if best.labelled_nodes else None
        elif not now.is_own and best.labelled_nodes - now.labelled_nodes >= max(1.0, _MORE * nodes):
            self.scheme = best
        if self.scheme is not None:
            self.scheme.choose_keys()
        return self.keys != before

    def path(self, values: Labels) -> str:
        """A node's path, down to the first key that it lacks; empty where that is the coarsest."""
        steps = [self.topology]
        for key in self.keys:
            if key not in values:
                break
            steps.append(values[key])
        return "/".join(steps) if len(steps) > 1 else ""

    def retained_keys(self, had: Labels, labels: Labels) -> Iterator[str]:
        """Keys that a node had a value of and has none any more, where all else of their way is as it was."""
        for way in self._ways:
            if all(had.get(key) in {None, value} for key in way.keys if (value := labels.get(key))):
                yield from (key for key in way.keys if key in had and not labels.get(key))
