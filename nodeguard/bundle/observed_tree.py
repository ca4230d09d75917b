"""ObservedTree: the file tree of a machine, built from the paths that were read, links included."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from nodeguard.bundle.failures import failure_name
from nodeguard.bundle.file_tree import TreeDraft, absolute_path, path_names, resolve
from nodeguard.bundle.layer import Directory, Entry, Link, escapes_root
from nodeguard.model.failure import UnansweredError

# Errors that a read raises.
ReadFailure = OSError | UnansweredError

# The kernel's MAXSYMLINKS.
_MAX_LINKS = 40


class ObservedTree:
    """Files, links, directories and failures of a machine at one time, at their paths without links.

    before: the earlier tree; errors: the earlier failures, name by path. Neither is changed. readlink:
    returns the text of a link of the machine; raises OSError or UnansweredError if there is no link.
    """

    def __init__(self, before: Directory, errors: dict[str, str], readlink: Callable[[str], str]) -> None:
        self._draft = TreeDraft(before)
        self._readlink = readlink
        self._links: dict[tuple[str, ...], str | None] = {}
        # Paths at which something exists that is not a link.
        self._no_links: set[tuple[str, ...]] = set()
        self._errors = dict(errors)
        # Paths at which nothing exists, with the name of the errno.
        self._absent: dict[tuple[str, ...], str] = {}

    @property
    def tree(self) -> Directory:
        """The tree; a file is its text, empty if only its existence is known."""
        return self._draft.root

    @property
    def errors(self) -> dict[str, str]:
        """Failures by path, where the tree does not imply them."""
        absent = {}
        for names, failure in self._absent.items():
            location = resolve(self.tree, absolute_path(names), follow=False)
            if location.entry is not None or errno.errorcode[location.code] != failure:
                absent[absolute_path(names)] = failure
        return self._errors | absent

    def file(self, path: str, result: str | ReadFailure) -> None:
        """Add the reading of a file: its text, or a failure."""
        at = self._located(path)
        if isinstance(result, str):
            self._put(at, result)
        elif failure_name(result) == "EISDIR":
            self._draft.directory(at)
            self._exists(at)
        else:
            self._failed(at, result)

    def link(self, path: str, result: str | ReadFailure) -> None:
        """Add the reading of a link: its text, or a failure."""
        at = self._located(path, follow=False)
        if isinstance(result, str):
            self._put(at, Link(portable_link(at[:-1], result)))
        elif failure_name(result) == "EINVAL":
            # Something else than a link exists there.
            if not isinstance(self._entry(at), str | dict):
                self._draft.put(at, "")
            self._exists(at)
        else:
            self._failed(at, result)

    def names(self, path: str, result: Iterable[str] | ReadFailure) -> None:
        """Add the listing of a directory: all its names, or a failure. Other names in it are removed."""
        at = self._located(path)
        if not isinstance(result, OSError | UnansweredError):
            here = self._draft.directory(at)
            self._exists(at)
            listed = set(result)
            for name in {*here, *self._failing_names(at)} - listed:
                self._forget((*at, name))
            for name in sorted(listed):
                here.setdefault(name, "")
        elif failure_name(result) == "ENOTDIR" and isinstance(self._entry(at), str):
            self._exists(at)
        elif failure_name(result) == "ENOTDIR" and at in self._no_links:
            # It exists, and is no longer a directory.
            self._put(at, "")
        else:
            self._failed(at, result)

    def refused(self, path: str, error: ReadFailure | None) -> None:
        """Set the failure of a path that is not in the tree; None if it can be read."""
        self._errors.pop(path, None)
        if error is not None:
            self._errors[path] = failure_name(error)

    def _failing_names(self, at: tuple[str, ...]) -> set[str]:
        """Return the names in a directory that lead to a failure other than ENOENT."""
        prefix = absolute_path((*at, ""))
        return {
            path.removeprefix(prefix).partition("/")[0]
            for path, failure in self._errors.items()
            if path.startswith(prefix) and failure != "ENOENT"
        }

    def _entry(self, at: tuple[str, ...]) -> Entry | None:
        return resolve(self.tree, absolute_path(at), follow=False).entry

    def _failed(self, at: tuple[str, ...], error: ReadFailure) -> None:
        failure = failure_name(error)
        if failure in ("ENOENT", "ENOTDIR"):
            self._forget(at)
            self._absent[at] = failure
            return
        self._exists(at)
        # A loop of links follows from the links.
        if failure != "ELOOP" and at:
            self._errors[absolute_path(at)] = failure

    def _put(self, at: tuple[str, ...], entry: Entry) -> None:
        """Set a file or link at a path, without entries below it."""
        self._forget(at)
        self._draft.put(at, entry)
        self._exists(at)

    def _exists(self, at: tuple[str, ...]) -> None:
        """Note that something exists at a path and can be read."""
        self._errors.pop(absolute_path(at), None)
        for count in range(len(at) + 1):
            self._absent.pop(at[:count], None)

    def _forget(self, at: tuple[str, ...]) -> None:
        self._draft.drop(at)
        removed = f"{absolute_path(at)}/"
        for path in [path for path in self._errors if f"{path}/".startswith(removed)]:
            del self._errors[path]

    def _located(self, path: str, *, follow: bool = True) -> tuple[str, ...]:
        """Return the names of a path without links; add the links on the way to the tree."""
        todo = path_names(path)[::-1]
        here: tuple[str, ...] = ()
        links = 0
        while todo:
            name = todo.pop()
            if name == "..":
                here = here[:-1]
                continue
            at = (*here, name)
            # Past the maximum of links, no more links are read.
            text = self._link_at(at) if (todo or follow) and links < _MAX_LINKS else None
            if text is None:
                here = at
                continue
            links += 1
            todo.extend(path_names(text)[::-1])
            if text.startswith("/"):
                here = ()
        return here

    def _link_at(self, at: tuple[str, ...]) -> str | None:
        """Return the text of the link at a path, read once from the machine; None if there is no link."""
        if at not in self._links:
            try:
                self._links[at] = text = self._readlink(absolute_path(at))
                self._put(at, Link(portable_link(at[:-1], text)))
            except (OSError, UnansweredError) as error:
                self._links[at] = None
                failure = failure_name(error)
                if failure == "EINVAL":
                    self._no_links.add(at)
                if isinstance(self._entry(at), Link):
                    if failure in ("EINVAL", "ENOENT", "ENOTDIR"):
                        self._forget(at)
                    else:
                        # The failure of the link itself stays.
                        self._draft.drop(at)
                    if failure == "EINVAL":
                        self._draft.put(at, "")
        return self._links[at]


def portable_link(directory: tuple[str, ...], text: str) -> str:
    """Return the text of a link in the form for a bundle: relative and inside the tree.

    directory: names of the link's directory, none of them a link. A text in this form is returned unchanged.
    Any other text is rewritten as if none of its names was a link.
    """
    names = path_names(text)
    ups = next((count for count, name in enumerate(names) if name != ".."), len(names))
    if not escapes_root(text, len(directory)) and ".." not in names[ups:]:
        return text
    target = os.path.normpath(os.path.join(absolute_path(directory), text))
    return os.path.relpath("/" + target.lstrip("/"), absolute_path(directory))
