"""A FUSE file system that may never respond, over /dev/fuse with the protocol of include/uapi/linux/fuse.h.

A process that waits for a server that has read the request cannot be killed until /dev/fuse is closed. A process
that waits for a server that has not read the request can be killed.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

# answering: a normal file system. swallowing: statvfs is read, never answered. silent: no request is read.
Manner = Literal["answering", "swallowing", "silent"]

_INIT, _STATFS = 26, 17
_REQUEST = struct.Struct("=IIQQIIIHH")  # length, opcode, unique, node, uid, gid, pid, extensions, padding
_REPLY = struct.Struct("=IiQ")  # length, error, unique
_READ = (1 << 17) + 4096  # more than the kernel's least, for the max_write set below
_MNT_DETACH = 2

# Protocol 7.31, with no flag set; the rest is read-ahead, background, largest write and spare.
_INIT_REPLY = struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0)
# blocks, free, available, files, free; block size, longest name, fragment size; spare.
_STATFS_REPLY = struct.pack("=QQQQQIIII24x", 1000, 600, 500, 100, 90, 4096, 255, 4096, 0)


class Server:
    """A mounted file system and the thread that serves it."""

    def __init__(self, path: Path, manner: Manner) -> None:
        self.path = str(path)
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        try:
            options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0"
            _call("mount", b"nodeguard-test", self.path.encode(), b"fuse", 0, options.encode())
        except OSError:
            os.close(self._device)
            raise
        self._stop, stopping = os.pipe()
        self._stopping = stopping
        replies = {_INIT: _INIT_REPLY} | ({_STATFS: _STATFS_REPLY} if manner == "answering" else {})
        self._thread = threading.Thread(target=self._serve, args=(replies,), daemon=True)
        if manner != "silent":
            self._thread.start()

    def release(self) -> None:
        """Close /dev/fuse: a process that waits for an answer gets an error, and can end."""
        if self._device < 0:
            return
        os.close(self._stopping)
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._stop)
        os.close(self._device)
        self._device = -1

    def unmount(self) -> None:
        """Release blocked processes, and unmount."""
        self.release()
        _call("umount2", self.path.encode(), _MNT_DETACH)

    def _serve(self, replies: dict[int, bytes]) -> None:
        ready = select.poll()
        ready.register(self._device, select.POLLIN)
        ready.register(self._stop, 0)
        while self._stop not in (events := dict(ready.poll())):
            if events[self._device] & select.POLLERR:
                return
            request = os.read(self._device, _READ)
            _, opcode, unique, *_ = _REQUEST.unpack_from(request)
            if (reply := replies.get(opcode)) is not None:
                os.write(self._device, _REPLY.pack(_REPLY.size + len(reply), 0, unique) + reply)


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


@contextmanager
def mounted(path: Path, manner: Manner) -> Iterator[Server]:
    """Mount a file system for the context. Raises OSError if this process may not mount."""
    server = Server(path, manner)
    try:
        yield server
    finally:
        server.unmount()


@pytest.fixture
def fuse_mount(tmp_path: Path) -> Iterator[Callable[[Manner], Server]]:
    """Return a function that mounts a file system. Skips the test if this process may not mount."""
    servers: list[Server] = []

    def mount(manner: Manner) -> Server:
        directory = tmp_path / f"{manner}-{len(servers)}"
        directory.mkdir()
        try:
            servers.append(Server(directory, manner))
        except OSError as refused:
            pytest.skip(f"a FUSE file system cannot be mounted here: {refused}")
        return servers[-1]

    try:
        yield mount
    finally:
        for server in servers:
            server.unmount()
