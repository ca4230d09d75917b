"""RecordedTree: the files of a recorded machine at one time, with the errors of a live machine."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from nodeguard.bundle.failures import failure_from_name, os_error
from nodeguard.bundle.file_tree import Location, absolute_path, apply_frame, path_names, resolve
from nodeguard.bundle.layer import FILE_LIMIT, Directory, Entry, File, Link, read_plain_file

# Characters in the cache: enough for a whole recording; files of a larger one are read again.
_MAX_CACHED = 64 << 20


class TreeCache:
    """Cache of one bundle: the texts of its files, and the locations of paths in the latest tree."""

    def __init__(self) -> None:
        self._cached: dict[str, str] = {}
        self._size = 0
        self._root: Directory = {}
        self._locations: dict[tuple[str, bool], Location] = {}

    def resolve(self, root: Directory, path: str, *, follow: bool = True) -> Location:
        """See file_tree.resolve. A replay reads the same paths of the same tree in each round."""
        if root is not self._root:
            self._root, self._locations = root, {}
        location = self._locations.get((path, follow))
        if location is None:
            location = self._locations[path, follow] = resolve(root, path, follow=follow)
        return location

    def read(self, host: str) -> str:
        """Return at most FILE_LIMIT bytes of a file; invalid UTF-8 becomes U+FFFD. Raises BundleError."""
        text = self._cached.get(host)
        if text is None:
            text = read_plain_file(host, FILE_LIMIT).decode(errors="replace")
            if self._size > _MAX_CACHED:
                self._cached.clear()
                self._size = 0
            self._cached[host] = text
            self._size += len(text)
        return text


class RecordedTree:
    """Files, directories and links of a machine at one time.

    Paths are absolute, as on the machine. Each read raises OSError with the errno of the machine or, for a
    path in errors.yaml, the failure there: OSError, StalledError or HungError. A path is looked up in
    errors.yaml as requested, and without its links.
    """

    def __init__(self, root: Directory, errors: Mapping[str, str], cache: TreeCache) -> None:
        self.root = root
        self.errors = errors
        self._cache = cache

    def with_frame(
        self, removed: tuple[str, ...], above: Directory, errors: Mapping[str, str]
    ) -> RecordedTree:
        """Return the tree after a frame: some paths removed, the frame's own files laid over it."""
        root = apply_frame(self.root, removed, above) if removed or above else self.root
        if root is self.root and errors == self.errors:
            return self
        return RecordedTree(root, errors, self._cache)

    def read(self, path: str) -> str:
        """Return the text of a file, at most FILE_LIMIT bytes; invalid UTF-8 becomes U+FFFD."""
        entry = self._entry(path)
        if isinstance(entry, dict):
            raise os_error(errno.EISDIR, path)
        if isinstance(entry, File):
            return self._cache.read(entry.host)
        assert isinstance(entry, str)
        return entry

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory, sorted; a path that cannot be read has a name, too."""
        entry = self._entry(path)
        if not isinstance(entry, dict):
            raise os_error(errno.ENOTDIR, path)
        return tuple(sorted({*entry, *self._failing_in(path)}))

    def _failing_in(self, path: str) -> Iterator[str]:
        """Yield names in a directory that only errors.yaml has."""
        if not self.errors:
            return
        for directory in {absolute_path(path_names(path)), self._cache.resolve(self.root, path).path}:
            yield from self._failing.get(directory, ())

    @cached_property
    def _failing(self) -> dict[str, list[str]]:
        """Names in errors.yaml, by directory."""
        names: dict[str, list[str]] = {}
        for path, failure in self.errors.items():
            directory, _, name = path.rpartition("/")
            if failure != "ENOENT":
                names.setdefault(directory or "/", []).append(name)
        return names

    def link(self, path: str) -> str:
        """Return the text of a symbolic link, relative as in the bundle."""
        entry = self._entry(path, follow=False)
        if not isinstance(entry, Link):
            raise os_error(errno.EINVAL, path)
        return entry.text

    def is_recorded(self, prefixes: Iterable[str]) -> bool:
        """Return whether anything is at one of some paths or below: a file, a directory, or a failure."""
        return any(self._has(prefix) for prefix in prefixes)

    def _has(self, prefix: str) -> bool:
        location = resolve(self.root, prefix)
        if location.entry is not None:
            return True
        below = tuple(f"{path}/" for path in (absolute_path(path_names(prefix)), location.path))
        return any(f"{path}/".startswith(below) for path in self.errors)

    def _entry(self, path: str, *, follow: bool = True) -> Entry:
        location = self._cache.resolve(self.root, path, follow=follow)
        if self.errors and (failure := self._failure(path, location)):
            raise failure_from_name(failure, path)
        if location.entry is None:
            raise os_error(location.code, path)
        return location.entry

    def _failure(self, path: str, location: Location) -> str | None:
        for form in (absolute_path(path_names(path)), *location.via, location.path):
            if form in self.errors:
                return self.errors[form]
        return None
