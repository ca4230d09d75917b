"""Which nodes are in which domain: an index that changes node by node. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

_NOBODY: frozenset[str] = frozenset()


class DomainMembers:
    """The members of every domain, by its path: `fabric/p7/leaf3`, the view first, then coarsest first.

    A domain is there as long as it has members; a node in it is in all that are above it, too. What is given
    out as a Set is the index's own and changes with it: whoever keeps it, copies it.
    """

    def __init__(self) -> None:
        self._of: dict[str, set[str]] = {}  # members by path
        self._beneath: dict[str, set[str]] = {}  # children by path, those of a view by its name
        self._paths: dict[str, tuple[str, ...]] = {}  # paths by uid

    def __len__(self) -> int:
        """How many nodes are in any domain."""
        return len(self._paths)

    def set_domains(self, uid: str, paths: Iterable[str]) -> bool:
        """A node is in these domains from now on, and in no other. Returns whether that changed anything.

        What is above a path need not be named.
        """
        wanted = tuple(dict.fromkeys(above for path in paths for above in path_prefixes(path)))
        had = self._paths.get(uid, ())
        if wanted == had:
            return False
        for path in had:
            if path not in wanted:
                self._leave(uid, path)
        for path in wanted:
            self._join(uid, path)
        if wanted:
            self._paths[uid] = wanted
        else:
            self._paths.pop(uid, None)
        return True

    def remove(self, uid: str) -> bool:
        """A node is in no domain any more. Returns whether it was in one."""
        return self.set_domains(uid, ())

    def nodes(self, path: str) -> Set[str]:
        """Uids of all nodes of a domain, those of what is beneath it, too."""
        return self._of.get(path, _NOBODY)

    def size(self, path: str) -> int:
        """How many nodes a domain has."""
        return len(self.nodes(path))

    def children(self, path: str) -> Set[str]:
        """Domains right beneath one; beneath the name of a view, those that have no parent."""
        return self._beneath.get(path, _NOBODY)

    def parent(self, path: str) -> str:
        """The domain right above one; empty where there is none."""
        above = path.rpartition("/")[0]
        return above if "/" in above else ""

    def topology_of(self, path: str) -> str:
        """The view that a domain is of."""
        return path.partition("/")[0]

    def paths(self, uid: str) -> tuple[str, ...]:
        """Every domain of a node, each after what is above it."""
        return self._paths.get(uid, ())

    def domains(self) -> Iterator[str]:
        """Every domain that has members."""
        yield from self._of

    def _join(self, uid: str, path: str) -> None:
        members = self._of.get(path)
        if members is None:
            members = self._of[path] = set()
            self._beneath.setdefault(path.rpartition("/")[0], set()).add(path)
        members.add(uid)

    def _leave(self, uid: str, path: str) -> None:
        self._of[path].discard(uid)
        if not self._of[path]:
            del self._of[path]
            above = path.rpartition("/")[0]
            self._beneath[above].discard(path)
            if not self._beneath[above]:
                del self._beneath[above]


def path_prefixes(path: str) -> Iterator[str]:
    """Every domain from the coarsest of a path down to itself; none of an empty one."""
    end = path.find("/")
    while end >= 0:
        end = path.find("/", end + 1)
        yield path if end < 0 else path[:end]
