"""The tree of a machine as a recording gets to know it: from paths as they are read, links and all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from nodeguard.bundle.failing import word_of
from nodeguard.bundle.layer import Directory, Link, leads_out
from nodeguard.bundle.overlay import Draft
from nodeguard.bundle.walk import absolute, names_of, walk
from nodeguard.model.failure import UnansweredError

# What a reading raises.
Failure = OSError | UnansweredError

# The kernel's MAXSYMLINKS.
_MOST_LINKS = 40


class Survey:
    """Files, links, directories and failures of a machine at one time, put where they are without links.

    before: the tree and the failures (word by path) as they were known earlier; both stay as they are.
    readlink: text of a link of the machine; raises OSError or UnansweredError where there is no link.
    """

    def __init__(self, before: Directory, errors: dict[str, str], readlink: Callable[[str], str]) -> None:
        self._draft = Draft(before)
        self._readlink = readlink
        self._links: dict[tuple[str, ...], str | None] = {}
        self.errors = dict(errors)

    @property
    def tree(self) -> Directory:
        """All that is known; a leaf is its text."""
        return self._draft.root

    def file(self, path: str, said: str | Failure) -> None:
        """What came of reading a file: its text, or a failure."""
        at = self._located(path)
        if not isinstance(said, str):
            self._failed(at, said)
            return
        self._draft.put(at, said)
        self.errors.pop(absolute(at), None)

    def link(self, path: str, said: str | Failure) -> None:
        """What came of reading a link: its text, or a failure."""
        at = self._located(path, follow=False)
        if isinstance(said, str):
            self._draft.put(at, Link(portable(at[:-1], said)))
            self.errors.pop(absolute(at), None)
        elif word_of(said) != "EINVAL":
            self._failed(at, said)
        elif not isinstance(walk(self.tree, absolute(at), follow=False).entry, dict):
            # That is no failure: something else is there than a link.
            self._leaf(at)

    def names(self, path: str, said: Iterable[str] | Failure) -> None:
        """What came of listing a directory: its names, all of them, or a failure.

        What the directory held besides is gone; of a name that is new, no more is known.
        """
        at = self._located(path)
        if isinstance(said, OSError | UnansweredError):
            self._failed(at, said, listing=True)
            return
        here = self._draft.directory(at)
        self.errors.pop(absolute(at), None)
        listed = set(said)
        for gone in set(here) - listed:
            self._forget((*at, gone))
        for name in sorted(listed):
            here.setdefault(name, "")

    def _failed(self, at: tuple[str, ...], error: Failure, *, listing: bool = False) -> None:
        word = word_of(error)
        # Some failures tell what is there, and a tree in which it is so fails by itself.
        if word == "ENOENT":
            self._forget(at)
        elif word == "EISDIR":
            self._draft.directory(at)
        elif word == "ENOTDIR":
            self._leaf(at if listing else at[:-1])
        elif word != "ELOOP" and at:
            self.errors[absolute(at)] = word

    def _leaf(self, at: tuple[str, ...]) -> None:
        """Know of something at a place, or above it, that is neither directory nor link."""
        place = walk(self.tree, absolute(at), follow=False)
        if place.code != errno.ENOTDIR and not isinstance(place.entry, str) and at:
            self._draft.put(at, "")

    def _forget(self, at: tuple[str, ...]) -> None:
        """Nothing is at a place. What is above it, if it is there at all, is a directory."""
        place = walk(self.tree, absolute(at), follow=False)
        if place.code == errno.ENOTDIR:
            self._draft.directory(at[:-1])
        self._draft.drop(at)
        gone = f"{absolute(at)}/"
        for path in [path for path in self.errors if f"{path}/".startswith(gone)]:
            del self.errors[path]

    def _located(self, path: str, *, follow: bool = True) -> tuple[str, ...]:
        """Where a path leads on the machine; the links on its way become known."""
        todo = names_of(path)[::-1]
        here: tuple[str, ...] = ()
        links = 0
        while todo:
            name = todo.pop()
            if name == "..":
                here = here[:-1]
                continue
            at = (*here, name)
            text = self._link_at(at) if todo or follow else None
            if text is None or links == _MOST_LINKS:
                here = at
                continue
            links += 1
            self._draft.put(at, Link(portable(here, text)))
            todo.extend(names_of(text)[::-1])
            if text.startswith("/"):
                here = ()
        return here

    def _link_at(self, at: tuple[str, ...]) -> str | None:
        if at not in self._links:
            try:
                self._links[at] = self._readlink(absolute(at))
            except (OSError, UnansweredError):
                self._links[at] = None
                if isinstance(walk(self.tree, absolute(at), follow=False).entry, Link):
                    self._draft.drop(at)
        return self._links[at]


def portable(directory: tuple[str, ...], text: str) -> str:
    """Text of a link as a bundle may hold it, relative and inside the tree.

    directory: names of the directory in which the link stands, none of them a link. A text that is so already
    stays; any other is rewritten as if none of the names in it was a link.
    """
    names = names_of(text)
    ups = next((count for count, name in enumerate(names) if name != ".."), len(names))
    if not leads_out(text, len(directory)) and ".." not in names[ups:]:
        return text
    target = os.path.normpath(os.path.join(absolute(directory), text))
    return os.path.relpath("/" + target.lstrip("/"), absolute(directory))
