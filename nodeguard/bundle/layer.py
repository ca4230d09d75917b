"""Layer: the base or one frame of a bundle on disk.

A bundle may be hostile. It is scanned once, by names and file types only; no link in it is followed on this
machine, and only regular files are opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from nodeguard.bundle.failures import BundleError

# Far more than a large node has (some ten thousand files under /sys and /proc), far less than would fill the
# memory of the reader.
MAX_FILES = 200_000
MOST_DEPTH = 64

# Maximum size of a bundle in bytes.
BUNDLE_LIMIT = 256 << 20

# Seconds from the first to the last frame: a month. A reader may have work for every second.
LAST_FRAME = 30 * 86_400

# Bytes that are read of a recorded file, as of a live one.
FILE_LIMIT = 1 << 20

# The format's own files at the top of a layer, with the maximum of bytes.
OWN_FILES = {
    "bundle.yaml": 64 << 10,
    "frame.yaml": 1 << 20,
    "errors.yaml": 4 << 20,
    "calls.json": 4 << 20,
    "nvml.json": 16 << 20,
    "kmsg": 64 << 20,
}
FRAMES = "frames"
_STEMS = {name.partition(".")[0]: name for name in OWN_FILES}


class File(Struct, frozen=True, gc=False):
    """A recorded file. host: path of its content on this machine."""

    host: str


class Link(Struct, frozen=True, gc=False):
    """A symbolic link, relative and inside the recorded tree. text: its target."""

    text: str


# An entry of a directory: a file on disk, the text of a file, a link, or a directory by name.
Entry = str | File | Link | dict[str, Any]
Directory = dict[str, Entry]

# Returns at most so many bytes of a file on this machine. Raises BundleError.
ReadFile = Callable[[str, int], bytes]


def read_plain_file(host: str, limit: int) -> bytes:
    """Return at most `limit` bytes of a regular file on this machine. Raises BundleError."""
    try:
        # A pipe or link that replaced the file since the scan must neither block nor be followed.
        handle = os.open(host, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise BundleError(
                    host, "", "is no longer a regular file", "do not change the bundle while it is read"
                )
            parts = []
            while limit > 0 and (part := os.read(handle, limit)):
                parts.append(part)
                limit -= len(part)
        finally:
            os.close(handle)
    except OSError as error:
        raise _unreadable(host, error) from error
    return b"".join(parts)


class Layer(Struct, frozen=True):
    """The base of a bundle or one of its frames.

    directory: its path, as the user wrote it. tree: the recorded files. own: which of OWN_FILES it has.
    count: number of files, links and directories. read_file: reads one of OWN_FILES.
    """

    directory: str
    tree: Directory
    own: frozenset[str]
    count: int
    read_file: ReadFile = read_plain_file

    def path(self, name: str) -> str:
        """Return the path of one of OWN_FILES."""
        return os.path.join(self.directory, name)

    def size(self) -> int:
        """Return the bytes of its OWN_FILES. Raises BundleError."""
        try:
            return sum(os.lstat(self.path(name)).st_size for name in self.own)
        except OSError as error:
            raise _unreadable(self.directory, error) from error

    def read(self, name: str) -> bytes | None:
        """Return the content of one of OWN_FILES, None if the layer has none. Raises BundleError."""
        if name not in self.own:
            return None
        limit = OWN_FILES[name]
        data = self.read_file(self.path(name), limit + 1)
        if len(data) > limit:
            raise BundleError(self.path(name), "", f"is longer than {limit >> 10} KiB", "shorten it")
        return data


def is_reserved(name: str) -> bool:
    """Return whether no file of the recorded machine may have this name at its root.

    This includes names like those of the format's own files: nvml.yaml is a mistake, not a recording.
    """
    return name == FRAMES or name.partition(".")[0] in _STEMS


def frame_directories(directory: str) -> list[tuple[int, str]]:
    """Return the number (seconds) and the directory of each frame of a bundle, sorted by number."""
    above = os.path.join(directory, FRAMES)
    if not os.path.lexists(above):
        return []
    if os.path.islink(above):
        raise BundleError(above, "", "is a link", "put the frames themselves there")
    frames: dict[int, str] = {}
    for entry in sorted(_entries(above), key=lambda entry: entry.name):
        name = entry.name
        if not (name.isascii() and name.isdigit() and len(name) < 10):
            raise BundleError(
                entry.path, "", "is not a number of seconds", "name it like 000030, or remove it"
            )
        if not entry.is_dir(follow_symlinks=False):
            raise BundleError(entry.path, "", "is not a directory", "put the frame itself there")
        if int(name) > LAST_FRAME:
            problem = f"is more than {LAST_FRAME // 86_400} days after the beginning"
            raise BundleError(entry.path, "", problem, "record again, or remove the frame")
        if int(name) in frames:
            problem = f"is the same second as {os.path.basename(frames[int(name)])}"
            raise BundleError(entry.path, "", problem, "keep one of the two")
        frames[int(name)] = entry.path
    return sorted(frames.items())


def scan_layer(
    directory: str,
    *,
    base: bool,
    room: int,
    exclude: frozenset[str] = frozenset(),
    read_file: ReadFile = read_plain_file,
) -> Layer:
    """Scan the directory of a layer.

    base: whether it is the base, else a frame. room: maximum of files, links and directories. exclude: names
    at its top that the caller reads itself. read_file: see Layer. Raises BundleError for anything that is not
    part of a bundle.
    """
    tree: Directory = {}
    count = 0
    todo = [(directory, tree, 0)]
    while todo:
        host, here, depth = todo.pop()
        if depth > MOST_DEPTH:
            raise BundleError(host, "", f"is deeper than {MOST_DEPTH} directories", "record again")
        for entry in _entries(host):
            count += 1
            if count > room:
                raise BundleError(directory, "", f"more than {MAX_FILES} files", "record less, or in parts")
            if depth == 0 and (entry.name in exclude or (base and entry.name == FRAMES)):
                continue
            try:
                here[entry.name] = item = _entry(entry, depth)
            except OSError as error:
                raise _unreadable(entry.path, error) from error
            if isinstance(item, dict):
                todo.append((entry.path, item, depth + 1))
    return Layer(directory, tree, _own(directory, tree, base=base), count, read_file)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError as error:
        raise _unreadable(directory, error) from error


def _entry(entry: os.DirEntry[str], depth: int) -> Entry:
    if entry.is_symlink():
        text = os.readlink(entry.path)
        if escapes_root(text, depth):
            problem = f"is a link out of the bundle, to {text}"
            raise BundleError(entry.path, "", problem, "make it relative, to a path inside")
        return Link(text)
    if entry.is_dir(follow_symlinks=False):
        return {}
    if entry.is_file(follow_symlinks=False):
        return File(entry.path)
    raise BundleError(entry.path, "", "is neither file, directory nor link", "remove it")


def escapes_root(text: str, depth: int) -> bool:
    """Return whether a link `depth` directories below the root points above the root."""
    if text.startswith("/"):
        return True
    for part in text.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False


def _own(directory: str, tree: Directory, *, base: bool) -> frozenset[str]:
    """Remove the format's own files from a layer's tree and return their names."""
    misplaced = "frame.yaml" if base else "bundle.yaml"
    own = frozenset(name for name in tree if is_reserved(name))
    for name in own:
        path = os.path.join(directory, name)
        if name in (misplaced, FRAMES):
            raise BundleError(path, "", f"is not allowed in a {'base' if base else 'frame'}", "remove it")
        if name not in OWN_FILES:
            intended = _STEMS[name.partition(".")[0]]
            raise BundleError(path, "", "is not a file of this format", f"name it {intended}, or remove it")
        if not isinstance(tree.pop(name), File):
            raise BundleError(path, "", "is not a regular file", "put the file itself there")
    return own


def _unreadable(path: str, error: OSError) -> BundleError:
    elsewhere = isinstance(error, FileNotFoundError | NotADirectoryError)
    remedy = "name the directory that holds bundle.yaml" if elsewhere else "make it readable"
    return BundleError(path, "", f"cannot be read ({error.strerror})", remedy)
