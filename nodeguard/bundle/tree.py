"""The files of a recorded machine at one time, read as a live machine is."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from nodeguard.bundle.failures import failure_from_name, os_error
from nodeguard.bundle.layer import FILE_LIMIT, Directory, Entry, File, Link, read_plain_file
from nodeguard.bundle.overlay import apply_frame
from nodeguard.bundle.walk import Location, absolute_path, path_names, resolve

# Characters of text kept at a time; a whole recording fits, a hostile one is read again and again.
_MOST_KEPT = 64 << 20


class FileCache:
    """Texts of the files of one bundle, read once."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        self._size = 0

    def read(self, host: str) -> str:
        """At most FILE_LIMIT bytes of a file; bytes that are no UTF-8 become U+FFFD. Raises BundleError."""
        text = self._kept.get(host)
        if text is None:
            text = read_plain_file(host, FILE_LIMIT).decode(errors="replace")
            if self._size > _MOST_KEPT:
                self._kept.clear()
                self._size = 0
            self._kept[host] = text
            self._size += len(text)
        return text


class RecordedTree:
    """Files, directories and links of a machine at one time.

    Paths are absolute, as on the machine. Every reading raises OSError with the errno that the machine would
    give, or, for a path that errors.yaml names, what it says: OSError, StalledError or HungError. A path is
    looked up there as it was asked for, and as it is without links.
    """

    def __init__(self, root: Directory, errors: Mapping[str, str], texts: FileCache) -> None:
        self.root = root
        self.errors = errors
        self._texts = texts

    def with_frame(
        self, removed: tuple[str, ...], above: Directory, errors: Mapping[str, str]
    ) -> RecordedTree:
        """The tree after a frame: without some paths, with the frame's own files laid over it."""
        root = apply_frame(self.root, removed, above) if removed or above else self.root
        if root is self.root and errors == self.errors:
            return self
        return RecordedTree(root, errors, self._texts)

    def read(self, path: str) -> str:
        """Text of a file, at most FILE_LIMIT bytes; bytes that are no UTF-8 become U+FFFD."""
        entry = self._entry(path)
        if isinstance(entry, dict):
            raise os_error(errno.EISDIR, path)
        if isinstance(entry, File):
            return self._texts.read(entry.host)
        assert isinstance(entry, str)
        return entry

    def names(self, path: str) -> tuple[str, ...]:
        """Names in a directory, sorted; what cannot be read has a name, too."""
        entry = self._entry(path)
        if not isinstance(entry, dict):
            raise os_error(errno.ENOTDIR, path)
        return tuple(sorted({*entry, *self._failing_in(path)}))

    def _failing_in(self, path: str) -> Iterator[str]:
        """Names in a directory that errors.yaml alone tells of."""
        if not self.errors:
            return
        for directory in {absolute_path(path_names(path)), resolve(self.root, path).path}:
            yield from self._failing.get(directory, ())

    @cached_property
    def _failing(self) -> dict[str, list[str]]:
        """Names that errors.yaml tells of, by directory."""
        found: dict[str, list[str]] = {}
        for known, word in self.errors.items():
            above, _, name = known.rpartition("/")
            if word != "ENOENT":
                found.setdefault(above or "/", []).append(name)
        return found

    def link(self, path: str) -> str:
        """Text of a symbolic link, relative as the bundle holds it."""
        entry = self._entry(path, follow=False)
        if not isinstance(entry, Link):
            raise os_error(errno.EINVAL, path)
        return entry.text

    def is_recorded(self, prefixes: Iterable[str]) -> bool:
        """Whether anything stands at one of some paths or below: a file, a directory, or a failure."""
        return any(self._stands(prefix) for prefix in prefixes)

    def _stands(self, prefix: str) -> bool:
        place = resolve(self.root, prefix)
        if place.entry is not None:
            return True
        below = tuple(f"{path}/" for path in (absolute_path(path_names(prefix)), place.path))
        return any(f"{path}/".startswith(below) for path in self.errors)

    def _entry(self, path: str, *, follow: bool = True) -> Entry:
        place = resolve(self.root, path, follow=follow)
        if self.errors and (word := self._word(path, place)):
            raise failure_from_name(word, path)
        if place.entry is None:
            raise os_error(place.code, path)
        return place.entry

    def _word(self, path: str, place: Location) -> str | None:
        for known in (absolute_path(path_names(path)), *place.via, place.path):
            if known in self.errors:
                return self.errors[known]
        return None
