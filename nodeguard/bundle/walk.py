"""Finding a path in a recorded tree, links included, as the kernel would (Linux fs/namei.c)."""

from __future__ import annotations

import errno

from msgspec import Struct

from nodeguard.bundle.layer import Directory, Entry, Link

# The kernel's MAXSYMLINKS.
_MOST_LINKS = 40
# Names still to be looked up; no path of /sys or /proc comes near.
_MOST_NAMES = 1024


class Location(Struct, frozen=True):
    """Where a path leads.

    names: the same place without links, name by name from the root. entry: what is there; None where nothing
    is, with code, the errno of the kernel's answer. via: the paths without links at which a link was met that
    is the place's last name.
    """

    names: tuple[str, ...]
    entry: Entry | None
    code: int = 0
    via: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The same place as an absolute path."""
        return absolute_path(self.names)


def absolute_path(names: tuple[str, ...] | list[str]) -> str:
    """Absolute path of some names."""
    return "/" + "/".join(names)


def path_names(path: str) -> list[str]:
    """Names of a path, `..` among them."""
    return [name for name in path.split("/") if name not in ("", ".")]


def resolve(root: Directory, path: str, *, follow: bool = True) -> Location:
    """Where an absolute path leads. follow: also where its last name is a link."""
    todo = path_names(path)[::-1]
    names: list[str] = []
    here: list[Entry] = [root]
    via: list[str] = []
    links = 0
    while todo:
        name = todo.pop()
        directory = here[-1]
        if not isinstance(directory, dict):
            return _nothing(names, [*todo, name], errno.ENOTDIR)
        if name == "..":
            # The root is its own parent.
            if names:
                names.pop()
                here.pop()
            continue
        entry = directory.get(name)
        if entry is None:
            return _nothing(names, [*todo, name], errno.ENOENT)
        if isinstance(entry, Link) and (todo or follow):
            links += 1
            if links > _MOST_LINKS or len(todo) > _MOST_NAMES:
                return _nothing(names, [*todo, name], errno.ELOOP)
            if not todo:
                via.append(absolute_path([*names, name]))
            todo.extend(path_names(entry.text)[::-1])
            continue
        names.append(name)
        here.append(entry)
    return Location(tuple(names), here[-1], via=tuple(via))


def _nothing(names: list[str], todo: list[str], code: int) -> Location:
    """No such place: where it would be, had it been recorded."""
    for name in reversed(todo):
        if name == "..":
            names = names[:-1]
        else:
            names.append(name)
    return Location(tuple(names), None, code)
