"""File trees of a recording: path resolution as in the kernel (Linux fs/namei.c), and the changes of a frame.

A finished tree never changes; trees share their equal parts.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec import Struct

from nodeguard.bundle.layer import Directory, Entry, Link

# The kernel's MAXSYMLINKS.
_MAX_LINKS = 40
# Names that are still to be resolved; paths of /sys and /proc have far fewer.
_MAX_NAMES = 1024


class Location(Struct, frozen=True):
    """The location to which a path resolves.

    names: its names without links, from the root. entry: the file, link or directory there; None if
    none exists, with code, the errno of the kernel. via: links that were the last name of the path, as their
    paths without links.
    """

    names: tuple[str, ...]
    entry: Entry | None
    code: int = 0
    via: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The location as an absolute path."""
        return absolute_path(self.names)


def absolute_path(names: tuple[str, ...] | list[str]) -> str:
    """Return the absolute path of some names."""
    return "/" + "/".join(names)


def path_names(path: str) -> list[str]:
    """Return the names of a path, `..` among them."""
    return [name for name in path.split("/") if name not in ("", ".")]


def resolve(root: Directory, path: str, *, follow: bool = True) -> Location:
    """Resolve an absolute path. follow: also if its last name is a link."""
    todo = path_names(path)[::-1]
    names: list[str] = []
    here: list[Entry] = [root]
    via: list[str] = []
    links = 0
    while todo:
        name = todo.pop()
        directory = here[-1]
        if not isinstance(directory, dict):
            return _not_found(names, [*todo, name], errno.ENOTDIR)
        if name == "..":
            # The root is its own parent.
            if names:
                names.pop()
                here.pop()
            continue
        entry = directory.get(name)
        if entry is None:
            return _not_found(names, [*todo, name], errno.ENOENT)
        if isinstance(entry, Link) and (todo or follow):
            links += 1
            if links > _MAX_LINKS or len(todo) > _MAX_NAMES:
                return _not_found(names, [*todo, name], errno.ELOOP)
            if not todo:
                via.append(absolute_path([*names, name]))
            todo.extend(path_names(entry.text)[::-1])
            continue
        names.append(name)
        here.append(entry)
    return Location(tuple(names), here[-1], via=tuple(via))


def _not_found(names: list[str], todo: list[str], code: int) -> Location:
    """Return the location that a path would have if it existed."""
    for name in reversed(todo):
        if name == "..":
            names = names[:-1]
        else:
            names.append(name)
    return Location(tuple(names), None, code)


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
        """Set a file or link at a path; replace any entry there."""
        self.directory(names[:-1])[names[-1]] = entry

    def drop(self, names: tuple[str, ...]) -> None:
        """Remove the entry at a path, with everything below it; do nothing if the path does not exist."""
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
