"""Trees that change: what a frame does to the tree before it, and what changed between two trees.

A tree is never changed once it is made; trees share what is alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from nodeguard.bundle.layer import Directory, Entry
from nodeguard.bundle.walk import absolute_path, path_names, resolve


class TreeDraft:
    """A tree in the making, from one that stays as it is."""

    def __init__(self, before: Directory) -> None:
        self.root: Directory = dict(before)
        # By id, because directories cannot be hashed; kept here, an id cannot be given to another.
        self._own: dict[int, Directory] = {id(self.root): self.root}

    def directory(self, names: Iterable[str]) -> Directory:
        """The directory at a place, by its names without links, free to be changed.

        It is made where it is not there; a file or link in its way gives way.
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
        """Put a file or link at a place, whatever was there."""
        self.directory(names[:-1])[names[-1]] = entry

    def drop(self, names: tuple[str, ...]) -> None:
        """Take away what is at a place, with all below it, if anything is."""
        above = resolve(self.root, absolute_path(names[:-1]), follow=False)
        if names and isinstance(above.entry, dict) and names[-1] in above.entry:
            del self.directory(above.names)[names[-1]]

    def lay(self, above: Directory, at: tuple[str, ...] = ()) -> None:
        """Lay a tree over what is at a place.

        Where a directory meets a link that leads to a directory, it is laid over that: its files are the
        machine's files at their paths, and on the machine these paths lead through the link.
        """
        here = self.directory(at)
        for name, entry in above.items():
            if isinstance(entry, dict):
                place = resolve(self.root, absolute_path([*at, name]))
                if isinstance(place.entry, dict):
                    self.lay(entry, place.names)
                    continue
            here[name] = entry


def apply_frame(before: Directory, removed: Iterable[str], above: Directory) -> Directory:
    """A tree after a frame: without some paths, then with the frame's own tree laid over it."""
    draft = TreeDraft(before)
    for path in removed:
        names = path_names(path)
        parent = resolve(draft.root, absolute_path(names[:-1]))
        draft.drop((*parent.names, names[-1]))
    draft.lay(above)
    return draft.root


def tree_difference(before: Directory, after: Directory) -> tuple[list[str], Directory]:
    """What a frame has to say: the paths removed, and the tree of what is new or other.

    overlaid(before, *difference(before, after)) == after.
    """
    removed: list[str] = []
    return removed, _new(before, after, "", removed)


def _new(before: Directory, after: Directory, at: str, removed: list[str]) -> Directory:
    removed += [f"{at}/{name}" for name in before if name not in after]
    new: Directory = {}
    for name, entry in after.items():
        was = before.get(name)
        if isinstance(was, dict) and isinstance(entry, dict):
            if was is not entry and (below := _new(was, entry, f"{at}/{name}", removed)):
                new[name] = below
        elif was != entry:
            if was is not None and (isinstance(was, dict) or isinstance(entry, dict)):
                removed.append(f"{at}/{name}")
            new[name] = entry
    return new


Value = TypeVar("Value")


def apply_changes(before: Mapping[str, Value], changes: Mapping[str, Value | None]) -> dict[str, Value]:
    """A map after some changes, by key; None takes an entry away, and may name one that is not there."""
    return {key: value for key, value in {**before, **changes}.items() if value is not None}


def changes_between(before: Mapping[str, Value], after: Mapping[str, Value]) -> dict[str, Value | None]:
    """The changes that make `after` out of `before`: patched(before, …) == after."""
    gone: dict[str, Value | None] = dict.fromkeys(key for key in before if key not in after)
    return gone | {key: value for key, value in after.items() if key not in before or before[key] != value}
