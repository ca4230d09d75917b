"""The tree of a machine as a recording gets to know it: from paths as they are read, links and all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from nodeguard.bundle.failures import failure_name
from nodeguard.bundle.layer import Directory, Entry, Link, escapes_root
from nodeguard.bundle.overlay import TreeDraft
from nodeguard.bundle.walk import absolute_path, path_names, resolve
from nodeguard.model.failure import UnansweredError

# What a reading raises.
ReadFailure = OSError | UnansweredError

# The kernel's MAXSYMLINKS.
_MOST_LINKS = 40


class ObservedTree:
    """Files, links, directories and failures of a machine at one time, put where they are without links.

    before: the tree and the failures (word by path) as they were known earlier; both stay as they are.
    readlink: text of a link of the machine; raises OSError or UnansweredError where there is no link.
    """

    def __init__(self, before: Directory, errors: dict[str, str], readlink: Callable[[str], str]) -> None:
        self._draft = TreeDraft(before)
        self._readlink = readlink
        self._links: dict[tuple[str, ...], str | None] = {}
        # Places at which something is that is no link.
        self._no_links: set[tuple[str, ...]] = set()
        self._errors = dict(errors)
        # Places at which nothing is, and the errno's name that said so.
        self._nothing: dict[tuple[str, ...], str] = {}

    @property
    def tree(self) -> Directory:
        """All that is known; a leaf is its text, empty where it is only known to be there."""
        return self._draft.root

    @property
    def errors(self) -> dict[str, str]:
        """How reading fails, by path, where the tree alone would not tell."""
        nothing = {}
        for at, word in self._nothing.items():
            place = resolve(self.tree, absolute_path(at), follow=False)
            if place.entry is not None or errno.errorcode[place.code] != word:
                nothing[absolute_path(at)] = word
        return self._errors | nothing

    def file(self, path: str, said: str | ReadFailure) -> None:
        """What came of reading a file: its text, or a failure."""
        at = self._located(path)
        if isinstance(said, str):
            self._put(at, said)
        elif failure_name(said) == "EISDIR":
            self._draft.directory(at)
            self._answered(at)
        else:
            self._failed(at, said)

    def link(self, path: str, said: str | ReadFailure) -> None:
        """What came of reading a link: its text, or a failure."""
        at = self._located(path, follow=False)
        if isinstance(said, str):
            self._put(at, Link(portable_link(at[:-1], said)))
        elif failure_name(said) == "EINVAL":
            # Something else is there than a link.
            if not isinstance(self._entry(at), str | dict):
                self._draft.put(at, "")
            self._answered(at)
        else:
            self._failed(at, said)

    def names(self, path: str, said: Iterable[str] | ReadFailure) -> None:
        """What came of listing a directory: its names, all of them, or a failure.

        What the directory held besides is gone.
        """
        at = self._located(path)
        if not isinstance(said, OSError | UnansweredError):
            here = self._draft.directory(at)
            self._answered(at)
            listed = set(said)
            for gone in set(here) - listed:
                self._forget((*at, gone))
            for name in sorted(listed):
                here.setdefault(name, "")
        elif failure_name(said) == "ENOTDIR" and isinstance(self._entry(at), str):
            self._answered(at)
        elif failure_name(said) == "ENOTDIR" and at in self._no_links:
            # It is there, and no directory any more.
            self._put(at, "")
        else:
            self._failed(at, said)

    def refused(self, path: str, error: ReadFailure | None) -> None:
        """How reading a path fails that has no place in the tree; None where it does not."""
        self._errors.pop(path, None)
        if error is not None:
            self._errors[path] = failure_name(error)

    def _entry(self, at: tuple[str, ...]) -> Entry | None:
        return resolve(self.tree, absolute_path(at), follow=False).entry

    def _failed(self, at: tuple[str, ...], error: ReadFailure) -> None:
        word = failure_name(error)
        if word in ("ENOENT", "ENOTDIR"):
            self._forget(at)
            self._nothing[at] = word
            return
        self._answered(at)
        # A loop of links is known by its links.
        if word != "ELOOP" and at:
            self._errors[absolute_path(at)] = word

    def _put(self, at: tuple[str, ...], entry: Entry) -> None:
        """A file or link is at a place, and nothing below it."""
        self._forget(at)
        self._draft.put(at, entry)
        self._answered(at)

    def _answered(self, at: tuple[str, ...]) -> None:
        """Something is at a place, and reading it fails no more."""
        self._errors.pop(absolute_path(at), None)
        for count in range(len(at) + 1):
            self._nothing.pop(at[:count], None)

    def _forget(self, at: tuple[str, ...]) -> None:
        self._draft.drop(at)
        gone = f"{absolute_path(at)}/"
        for path in [path for path in self._errors if f"{path}/".startswith(gone)]:
            del self._errors[path]

    def _located(self, path: str, *, follow: bool = True) -> tuple[str, ...]:
        """Where a path leads on the machine; the links on its way become known."""
        todo = path_names(path)[::-1]
        here: tuple[str, ...] = ()
        links = 0
        while todo:
            name = todo.pop()
            if name == "..":
                here = here[:-1]
                continue
            at = (*here, name)
            # Past the most links a place may have a link on its way: nothing is asked there any more.
            text = self._link_at(at) if (todo or follow) and links < _MOST_LINKS else None
            if text is None:
                here = at
                continue
            links += 1
            todo.extend(path_names(text)[::-1])
            if text.startswith("/"):
                here = ()
        return here

    def _link_at(self, at: tuple[str, ...]) -> str | None:
        """Text of the link at a place, as the machine tells it once; None where there is none."""
        if at not in self._links:
            try:
                self._links[at] = text = self._readlink(absolute_path(at))
                self._put(at, Link(portable_link(at[:-1], text)))
            except (OSError, UnansweredError) as error:
                self._links[at] = None
                if failure_name(error) == "EINVAL":
                    self._no_links.add(at)
                if isinstance(self._entry(at), Link):
                    self._forget(at)
                    if failure_name(error) == "EINVAL":
                        self._draft.put(at, "")
        return self._links[at]


def portable_link(directory: tuple[str, ...], text: str) -> str:
    """Text of a link as a bundle may hold it, relative and inside the tree.

    directory: names of the directory in which the link stands, none of them a link. A text that is so already
    stays; any other is rewritten as if none of the names in it was a link.
    """
    names = path_names(text)
    ups = next((count for count, name in enumerate(names) if name != ".."), len(names))
    if not escapes_root(text, len(directory)) and ".." not in names[ups:]:
        return text
    target = os.path.normpath(os.path.join(absolute_path(directory), text))
    return os.path.relpath("/" + target.lstrip("/"), absolute_path(directory))
