"""First process of a node: a program that runs in new namespaces for processes, mounts and host name. It imports no
module of nodeguard.

    node_init.py DIRECTORY NAME

DIRECTORY has `run`, `lib` and `log`, which the node sees as /run, /var/lib and /var/log, and `boot_id`, which it sees
as the boot id of the kernel. All else is this machine's. When the node is ready, it creates DIRECTORY/ready. Then it
waits for orphans, as an init does. Its end ends the node's processes and mounts, as a power cut does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

BOUND = {"run": "run", "lib": "var/lib", "log": "var/log", "boot_id": "proc/sys/kernel/random/boot_id"}


CLONE_NEWNS, MNT_DETACH = 0x00020000, 2
libc = ctypes.CDLL(None, use_errno=True)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def enter(root: Path) -> None:
    """Make a mount the root of this mount namespace, and detach what was there.

    chroot is not enough: a command that runc starts in a container would get the root of the namespace, not that of
    the container. If this process runs in a chroot, entering its own namespace leaves it first.
    """
    os.chdir(root)
    with open("/proc/self/ns/mnt") as namespace:
        new = os.open(".", os.O_PATH)
        check(libc.setns(namespace.fileno(), CLONE_NEWNS), "setns")
    os.fchdir(new)
    os.close(new)
    check(libc.pivot_root(b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def check(result: int, call: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


def main(directory: Path, name: str) -> None:
    root = directory / "root"
    root.mkdir(exist_ok=True)
    mount("--rbind", "/", str(root))
    for source, target in BOUND.items():
        mount("--bind", str(directory / source), str(root / target))
    enter(root)
    # As systemd leaves it: pods that ask for mount propagation need it.
    mount("--make-rshared", "/")
    socket.sethostname(name)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    (directory / "ready").touch()
    while True:
        signal.sigwait({signal.SIGCHLD})
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
