"""One layer of a bundle, its base or a frame, as it lies on disk.

A bundle may come from anybody. It is looked at once, by names and kinds alone; no link in it is ever followed
on this machine, and only plain files are opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from nodeguard.bundle.defect import BundleError

# Far above what a large node has (some ten thousand files under /sys and /proc are read), far below what
# would fill the memory of whoever opens a bundle.
MOST_FILES = 200_000
MOST_DEPTH = 64

# Seconds from the first to the last frame: a month. Every second of it can cost a reader some work.
LAST_FRAME = 30 * 86_400

# A recorded file is read up to here, as a live one is.
FILE_LIMIT = 1 << 20

# The format's own files at the top of a layer, with the most bytes that each may have.
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
    """A recorded file. host: where its content lies on this machine."""

    host: str


class Link(Struct, frozen=True, gc=False):
    """A symbolic link, relative and inside the recorded tree. text: where it leads."""

    text: str


# What a path can be: a file on disk, a file's text itself, a link, or a directory by name.
Entry = str | File | Link | dict[str, Any]
Directory = dict[str, Entry]

# Gives at most so many bytes of a file on this machine. Raises BundleError.
ReadFile = Callable[[str, int], bytes]


def read_plain_file(host: str, limit: int) -> bytes:
    """At most `limit` bytes of a plain file on this machine. Raises BundleError where that cannot be."""
    try:
        # A pipe put in the file's place since it was found must neither block nor be followed.
        handle = os.open(host, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise BundleError(
                    host, "", "is no plain file any more", "leave the bundle alone while it is read"
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

    directory: its path, as the user named the bundle. tree: the recorded files. own: which of OWN_FILES it
    has. count: how many files, links and directories were found. reads: how one of OWN_FILES is read.
    """

    directory: str
    tree: Directory
    own: frozenset[str]
    count: int
    read_file: ReadFile = read_plain_file

    def path(self, name: str) -> str:
        """Path of one of OWN_FILES."""
        return os.path.join(self.directory, name)

    def size(self) -> int:
        """Bytes of those of OWN_FILES that it has. Raises BundleError."""
        try:
            return sum(os.lstat(self.path(name)).st_size for name in self.own)
        except OSError as error:
            raise _unreadable(self.directory, error) from error

    def read(self, name: str) -> bytes | None:
        """Content of one of OWN_FILES, None where the layer has none. Raises BundleError where it is too
        long.
        """
        if name not in self.own:
            return None
        limit = OWN_FILES[name]
        data = self.read_file(self.path(name), limit + 1)
        if len(data) > limit:
            raise BundleError(self.path(name), "", f"is longer than {limit >> 10} KiB", "shorten it")
        return data


def is_reserved(name: str) -> bool:
    """Whether no file of the recorded machine may have this name at its root.

    So may none that only looks like one of the format's own: nvml.yaml is a slip, not a recording.
    """
    return name == FRAMES or name.partition(".")[0] in _STEMS


def frame_directories(directory: str) -> list[tuple[int, str]]:
    """Number (seconds) and directory of each frame of a bundle, in order of their number."""
    above = os.path.join(directory, FRAMES)
    if not os.path.lexists(above):
        return []
    if os.path.islink(above):
        raise BundleError(above, "", "is a link", "put the frames themselves there")
    found: dict[int, str] = {}
    for entry in sorted(_entries(above), key=lambda entry: entry.name):
        name = entry.name
        if not (name.isascii() and name.isdigit() and len(name) < 10):
            raise BundleError(
                entry.path, "", "is no number of seconds", "call it like 000030, or move it away"
            )
        if not entry.is_dir(follow_symlinks=False):
            raise BundleError(entry.path, "", "is no directory", "put the frame itself there")
        if int(name) > LAST_FRAME:
            problem = f"is more than {LAST_FRAME // 86_400} days after the beginning"
            raise BundleError(entry.path, "", problem, "record anew, or take the frame away")
        if int(name) in found:
            problem = f"is the same second as {os.path.basename(found[int(name)])}"
            raise BundleError(entry.path, "", problem, "keep one of the two")
        found[int(name)] = entry.path
    return sorted(found.items())


def scan_layer(
    directory: str,
    *,
    base: bool,
    room: int,
    exclude: frozenset[str] = frozenset(),
    read_file: ReadFile = read_plain_file,
) -> Layer:
    """What lies in a layer's directory.

    base: whether it is the base, else a frame. room: the most files, links and directories it may have.
    apart: names at its top that somebody else reads. reads: see Layer.
    Raises BundleError where something lies there that has no place in a bundle.
    """
    tree: Directory = {}
    count = 0
    todo = [(directory, tree, 0)]
    while todo:
        host, here, depth = todo.pop()
        if depth > MOST_DEPTH:
            raise BundleError(host, "", f"lies deeper than {MOST_DEPTH} directories", "record again")
        for entry in _entries(host):
            count += 1
            if count > room:
                raise BundleError(directory, "", f"more than {MOST_FILES} files", "record less, or in parts")
            if depth == 0 and (entry.name in exclude or (base and entry.name == FRAMES)):
                continue
            try:
                here[entry.name] = found = _entry(entry, depth)
            except OSError as error:
                raise _unreadable(entry.path, error) from error
            if isinstance(found, dict):
                todo.append((entry.path, found, depth + 1))
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
            problem = f"is a link that leads out of the bundle, to {text}"
            raise BundleError(entry.path, "", problem, "make it relative, to a place inside")
        return Link(text)
    if entry.is_dir(follow_symlinks=False):
        return {}
    if entry.is_file(follow_symlinks=False):
        return File(entry.path)
    raise BundleError(entry.path, "", "is neither file, directory nor link", "remove it")


def escapes_root(text: str, depth: int) -> bool:
    """Whether a link that stands `depth` directories below the root leads above the root."""
    if text.startswith("/"):
        return True
    for part in text.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False


def _own(directory: str, tree: Directory, *, base: bool) -> frozenset[str]:
    """Take the format's own files out of a layer's tree."""
    misplaced = "frame.yaml" if base else "bundle.yaml"
    own = frozenset(name for name in tree if is_reserved(name))
    for name in own:
        path = os.path.join(directory, name)
        if name in (misplaced, FRAMES):
            raise BundleError(path, "", f"has no place in a {'base' if base else 'frame'}", "move it away")
        if name not in OWN_FILES:
            meant = _STEMS[name.partition(".")[0]]
            raise BundleError(path, "", "is no file of this format", f"call it {meant}, or move it away")
        if not isinstance(tree.pop(name), File):
            raise BundleError(path, "", "is no plain file", "put the file itself there")
    return own


def _unreadable(path: str, error: OSError) -> BundleError:
    elsewhere = isinstance(error, FileNotFoundError | NotADirectoryError)
    remedy = "name the directory that holds bundle.yaml" if elsewhere else "make it readable"
    return BundleError(path, "", f"cannot be read ({error.strerror})", remedy)
