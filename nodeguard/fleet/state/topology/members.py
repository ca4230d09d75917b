"""Members of failure domains: an index that changes node by node. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from functools import lru_cache
from itertools import chain

_NO_NODES: frozenset[str] = frozenset()


class DomainMembers:
    """The members of every domain, by its path: `fabric/p7/leaf3`, the topology first, then coarsest first.

    A domain exists as long as it has members; a node in it is in all its parents too. A returned Set is the
    index's own and changes with it: copy it to store it.
    """

    def __init__(self) -> None:
        self._of: dict[str, set[str]] = {}  # members by path
        self._beneath: dict[str, set[str]] = {}  # children by path, those of a topology by its name
        self._paths: dict[str, tuple[str, ...]] = {}  # paths by uid

    def __len__(self) -> int:
        """Return how many nodes are in any domain."""
        return len(self._paths)

    def set_domains(self, uid: str, paths: Iterable[str]) -> bool:
        """Set the domains of a node, and remove it from all others. Returns whether that changed anything.

        The parents of a path need not be named.
        """
        after = tuple(dict.fromkeys(chain.from_iterable(map(path_prefixes, paths))))
        before = self._paths.get(uid, ())
        if after == before:
            return False
        for path in before:
            if path not in after:
                self._leave(uid, path)
        for path in after:
            self._join(uid, path)
        if after:
            self._paths[uid] = after
        else:
            self._paths.pop(uid, None)
        return True

    def remove(self, uid: str) -> bool:
        """Remove a node from all domains. Returns whether it was in one."""
        return self.set_domains(uid, ())

    def nodes(self, path: str) -> Set[str]:
        """Return the uids of all nodes of a domain, with those of its children."""
        return self._of.get(path, _NO_NODES)

    def size(self, path: str) -> int:
        """Return how many nodes a domain has."""
        return len(self.nodes(path))

    def children(self, path: str) -> Set[str]:
        """Return the children of a domain; of the name of a topology, the domains without a parent."""
        return self._beneath.get(path, _NO_NODES)

    def siblings(self, path: str) -> Set[str]:
        """Return the other domains with the parent of a domain, or of its topology without a parent."""
        return self.children(path.rpartition("/")[0]) - {path}

    def parent(self, path: str) -> str:
        """Return the parent of a domain; empty if there is none."""
        above = path.rpartition("/")[0]
        return above if "/" in above else ""

    def topology_of(self, path: str) -> str:
        """Return the topology of a domain."""
        return path.partition("/")[0]

    def paths(self, uid: str) -> tuple[str, ...]:
        """Return every domain of a node, each after its parents."""
        return self._paths.get(uid, ())

    def domains(self) -> Iterator[str]:
        """Yield every domain that has members."""
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


@lru_cache(maxsize=65_536)
def path_prefixes(path: str) -> tuple[str, ...]:
    """Return every domain of a path, from the coarsest to the path itself; none for an empty path.

    Cached, since nodes report far more often than a fleet has new domains; the nodes of a domain share the
    strings.
    """
    prefixes = []
    end = path.find("/")
    while end >= 0:
        end = path.find("/", end + 1)
        prefixes.append(path if end < 0 else path[:end])
    return tuple(prefixes)


def is_within(domain: str, other: str) -> bool:
    """Return whether a domain is another, or a part of it."""
    return f"{domain}/".startswith(f"{other}/")
