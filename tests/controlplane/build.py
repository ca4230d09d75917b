"""Builds the programs of the control plane into the cache, once; says on standard error what it does."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.controlplane import toolchain
from tests.controlplane.programs import PARTS, BuildError, Part, cache, directory

# Bytes that a build takes before it tidies up: modules, compiled packages, programs.
NEEDED = 11 << 30

# Seconds between two lines about a build under way.
_PAUSE = 15.0

# Days after which what no build has asked for goes.
_KEPT = 60.0


def build() -> Path:
    """Build what is missing, and give the directory of the programs. Raises BuildError."""
    target = directory()
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        _lock(lock.fileno())
        if not target.is_dir():
            work = cache() / "work"
            _check_room(work)
            whole = work / "whole"
            shutil.rmtree(whole, ignore_errors=True)
            for needed in (work / "steps", whole / "bin"):
                needed.mkdir(parents=True, exist_ok=True)
            least = max(toolchain.version((part.module / "go.mod").read_text()) for part in PARTS)
            go = toolchain.go(least)
            _say("building the control plane of the tests, once: 10 to 20 minutes on 2 cores")
            for part in PARTS:
                _Build(go, part, work, lock.fileno()).into(whole)
            (whole / "bin" / "server").rename(whole / "bin" / "etcd")
            whole.rename(target)
            shutil.rmtree(work)
            _forget()
        os.utime(target)
    return target / "bin"


class _Build:
    """One part's. work: where compiled packages stay while the build goes on, and after one that was interrupted."""

    def __init__(self, go: str, part: Part, work: Path, lock: int) -> None:
        self._go = go
        self._part = part
        self._environment = toolchain.environment(os.environ, work)
        self._lock = lock

    def into(self, whole: Path) -> None:
        says, flags = self._part.says, self._part.flags
        begun = told = time.monotonic()
        _say(f"{says}: fetching modules")
        packages = sum(1 for _ in self._run("list", "-deps", *flags, "tool"))
        output = f"{whole / 'bin'}{os.sep}"
        compiled = self._run("build", "-v", "-trimpath", "-buildvcs=false", *flags, "-o", output, "tool")
        for number, _ in enumerate(compiled, 1):
            if time.monotonic() - told > _PAUSE:
                told = time.monotonic()
                _say(f"{says}: {number} of {packages} packages, {_elapsed(told - begun)}")
        for module, manifests in self._part.manifests:
            (found,) = self._run("list", "-m", "-f", "{{.Dir}}", module)
            _copy(Path(found) / manifests, whole / "manifests" / module)
        _say(f"{says}: built in {_elapsed(time.monotonic() - begun)}")

    def _run(self, *words: str) -> Iterator[str]:
        """Lines that Go says, as it says them. Raises BuildError where it fails."""
        said = []
        with subprocess.Popen(
            [self._go, *words],
            cwd=self._part.module,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[self._lock],  # Go may outlive this process: until it ends, no second build begins
        ) as running:
            assert running.stdout is not None
            for line in running.stdout:
                said.append(line.rstrip())
                if not line.startswith("go: "):
                    yield said[-1]
        if running.returncode:
            raise BuildError(f"{self._part.says}: {failure(words[0], said)}")


def _copy(manifests: Path, into: Path) -> None:
    """Copy YAML files. Go keeps its modules read-only: whole directories could not be removed again."""
    for path in manifests.rglob("*.yaml"):
        kept = into / path.relative_to(manifests)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, kept)


def failure(step: str, said: list[str]) -> str:
    """Why Go failed, from what it said, and what to do."""
    last = "\n".join(f"  {line}" for line in list(dict.fromkeys(said))[-6:])
    fetching = any(
        word in last for word in ("dial tcp", ": lookup ", "proxyconnect", 'Get "http', "reading http")
    )
    remedy = (
        "A Go module proxy has to be reachable once: set GOPROXY or HTTPS_PROXY,"
        f" or copy {directory()} from a machine that has it."
        if fetching
        else "The modules are pinned in tests/controlplane: mend what Go names, then run `make controlplane` again."
    )
    return f"`go {step}` failed:\n{last}\n{remedy}"


def _check_room(work: Path) -> None:
    free = shutil.disk_usage(cache()).free
    if free < NEEDED and not work.is_dir():
        raise BuildError(
            f"building the control plane takes {NEEDED >> 30} GB for a while under {cache()},"
            f" where {free / (1 << 30):.1f} GB are free: make room, or set XDG_CACHE_HOME"
        )


def _lock(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("another run builds the control plane: waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _forget() -> None:
    for other in cache().iterdir():
        if other.is_dir() and time.time() - other.stat().st_mtime > _KEPT * 86400:
            shutil.rmtree(other, ignore_errors=True)


def _elapsed(seconds: float) -> str:
    return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"


def _say(text: str) -> None:
    print(f"controlplane: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(build())
    except BuildError as why:
        sys.exit(f"controlplane: {why}")
    except KeyboardInterrupt:
        sys.exit("controlplane: stopped; the next run goes on from here")
