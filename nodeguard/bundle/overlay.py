"""Frame changes: apply the changes of a frame to a tree or a map, and compute them from two states.

A finished tree never changes; trees share their equal parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from nodeguard.bundle.layer import Directory, Entry
from nodeguard.bundle.walk import absolute_path, path_names, resolve


class TreeDraft:
    """A changeable copy of a tree; the original stays unchanged."""

    def __init__(self, before: Directory) -> None:
        self.root: Directory = dict(before)
        # By id, because directories cannot be hashed. The reference here keeps the id unique.
        self._own: dict[int, Directory] = {id(self.root): self.root}

    def directory(self, names: Iterable[str]) -> Directory:
        """Return a changeable directory, by its names without links.

        It is made if it does not exist; a file or link in its place is replaced.
        """
        here = self.root
        for name in names:
            below = here.get(name)
            if not isinstance(below, dict):
                below = {}
            elif id(below) not in self._own:
                below = dict(below)
            here[name] = below
            self._own[id(below)] = below
            here = below
        return here

    def put(self, names: tuple[str, ...], entry: Entry) -> None:
        """Put a file or link at a path; replace anything there."""
        self.directory(names[:-1])[names[-1]] = entry

    def drop(self, names: tuple[str, ...]) -> None:
        """Remove what is at a path, with everything below it; do nothing if nothing is there."""
        above = resolve(self.root, absolute_path(names[:-1]), follow=False)
        if names and isinstance(above.entry, dict) and names[-1] in above.entry:
            del self.directory(above.names)[names[-1]]

    def lay(self, above: Directory, at: tuple[str, ...] = ()) -> None:
        """Lay a tree over a directory.

        If a directory of the tree is a link to a directory here, the tree is laid over the link's target: on
        the machine, the paths of its files lead through the link.
        """
        here = self.directory(at)
        for name, entry in above.items():
            if isinstance(entry, dict):
                location = resolve(self.root, absolute_path([*at, name]))
                if isinstance(location.entry, dict):
                    self.lay(entry, location.names)
                    continue
            here[name] = entry


def apply_frame(before: Directory, removed: Iterable[str], above: Directory) -> Directory:
    """Return a tree after a frame: some paths removed, then the frame's own tree laid over it."""
    draft = TreeDraft(before)
    for path in removed:
        names = path_names(path)
        parent = resolve(draft.root, absolute_path(names[:-1]))
        draft.drop((*parent.names, names[-1]))
    draft.lay(above)
    return draft.root


def tree_difference(before: Directory, after: Directory) -> tuple[list[str], Directory]:
    """Return the content of a frame: the removed paths, and a tree of new and changed entries.

    overlaid(before, *difference(before, after)) == after.
    """
    removed: list[str] = []
    return removed, _new(before, after, "", removed)


def _new(before: Directory, after: Directory, at: str, removed: list[str]) -> Directory:
    removed += [f"{at}/{name}" for name in before if name not in after]
    new: Directory = {}
    for name, entry in after.items():
        earlier = before.get(name)
        if isinstance(earlier, dict) and isinstance(entry, dict):
            if earlier is not entry and (below := _new(earlier, entry, f"{at}/{name}", removed)):
                new[name] = below
        elif earlier != entry:
            if earlier is not None and (isinstance(earlier, dict) or isinstance(entry, dict)):
                removed.append(f"{at}/{name}")
            new[name] = entry
    return new


Value = TypeVar("Value")


def apply_changes(before: Mapping[str, Value], changes: Mapping[str, Value | None]) -> dict[str, Value]:
    """Return a map after some changes, by key; None removes an entry, which need not exist."""
    return {key: value for key, value in {**before, **changes}.items() if value is not None}


def changes_between(before: Mapping[str, Value], after: Mapping[str, Value]) -> dict[str, Value | None]:
    """The changes that make `after` out of `before`: patched(before, …) == after."""
    removed: dict[str, Value | None] = dict.fromkeys(key for key in before if key not in after)
    return removed | {key: value for key, value in after.items() if key not in before or before[key] != value}
