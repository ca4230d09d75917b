"""Path resolution in a recorded tree, links included, as in the kernel (Linux fs/namei.c)."""

from __future__ import annotations

import errno

from msgspec import Struct

from nodeguard.bundle.layer import Directory, Entry, Link

# The kernel's MAXSYMLINKS.
_MOST_LINKS = 40
# Names that are still to be resolved; paths of /sys and /proc have far fewer.
_MOST_NAMES = 1024


class Location(Struct, frozen=True):
    """The location to which a path resolves.

    names: its names without links, from the root. entry: what is there; None if nothing is, with code, the
    errno of the kernel. via: paths without links of links that were the last name of the path.
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
            if links > _MOST_LINKS or len(todo) > _MOST_NAMES:
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
