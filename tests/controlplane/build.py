"""The build of the control plane's programs into the cache, once, with progress on standard error."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.controlplane import toolchain
from tests.controlplane.programs import PARTS, BuildError, Part, cache

# Bytes that a build needs: modules, compiled packages, programs.
NEEDED = 11 << 30

# Seconds between two lines of progress.
_PAUSE = 15.0

# Days after which an unused build is removed.
_MAX_AGE = 60.0


def build(parts: Sequence[Part] = PARTS) -> list[Path]:
    """Build the parts that are missing. Return the directories of the programs. Raises BuildError.

    Parts of one call share what Go compiles: the kubelet after the control plane takes a few minutes, not twenty.
    """
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        _lock(lock.fileno())
        lacking = [part for part in parts if not part.directory().is_dir()]
        if lacking:
            work = cache() / "work"
            _check_space(work)
            (work / "steps").mkdir(parents=True, exist_ok=True)
            least = max(toolchain.version((part.module / "go.mod").read_text()) for part in lacking)
            go = toolchain.go(least)
            titles = ", ".join(part.title for part in lacking)
            _print(f"building for the tests, once: {titles}: up to 20 minutes on 2 cores")
            for part in lacking:
                _build_part(go, part, work, lock.fileno())
            shutil.rmtree(work)
            _remove_old()
        for part in parts:
            os.utime(part.directory())
    return [part.directory() / "bin" for part in parts]


def _build_part(go: str, part: Part, work: Path, lock: int) -> None:
    """Build one part beside its directory, and rename it when it is whole."""
    output = work / "output"
    shutil.rmtree(output, ignore_errors=True)
    (output / "bin").mkdir(parents=True)
    _Build(go, part, work, lock).into(output)
    for built, name in part.programs.items():
        (output / "bin" / built).rename(output / "bin" / name)
    output.rename(part.directory())


class _Build:
    """The build of one part. work: directory of compiled packages, which an interrupted build leaves."""

    def __init__(self, go: str, part: Part, work: Path, lock: int) -> None:
        self._go = go
        self._part = part
        self._environment = toolchain.environment(os.environ, work)
        self._lock = lock

    def into(self, output: Path) -> None:
        """Build the programs into output/bin, and copy the manifests."""
        name, flags = self._part.title, self._part.flags
        started = printed = time.monotonic()
        _print(f"{name}: fetching modules")
        packages = sum(1 for _ in self._run("list", "-deps", *flags, "tool"))
        programs = f"{output / 'bin'}{os.sep}"
        compiled = self._run("build", "-v", "-trimpath", "-buildvcs=false", *flags, "-o", programs, "tool")
        for number, _ in enumerate(compiled, 1):
            if time.monotonic() - printed > _PAUSE:
                printed = time.monotonic()
                _print(f"{name}: {number} of {packages} packages, {_elapsed(printed - started)}")
        for module, manifests in self._part.manifests:
            (folder,) = self._run("list", "-m", "-f", "{{.Dir}}", module)
            _copy(Path(folder) / manifests, output / "manifests" / module)
        _print(f"{name}: built in {_elapsed(time.monotonic() - started)}")

    def _run(self, *arguments: str) -> Iterator[str]:
        """Run Go, and yield the lines of its output as they come. Raises BuildError if it fails."""
        lines = []
        with subprocess.Popen(
            [self._go, *arguments],
            cwd=self._part.module,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[self._lock],  # Go may outlive this process: no second build begins until it ends
        ) as running:
            assert running.stdout is not None
            for line in running.stdout:
                lines.append(line.rstrip())
                if not line.startswith("go: "):
                    yield lines[-1]
        if running.returncode:
            raise BuildError(f"{self._part.title}: {failure(arguments[0], lines)}")


def _copy(manifests: Path, into: Path) -> None:
    """Copy YAML files. Go keeps its modules read-only: whole directories could not be removed again."""
    for path in manifests.rglob("*.yaml"):
        copy = into / path.relative_to(manifests)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def failure(step: str, lines: list[str]) -> str:
    """Return why Go failed, with the end of its output and the remedy."""
    last = "\n".join(f"  {line}" for line in list(dict.fromkeys(lines))[-6:])
    network_errors = ("dial tcp", ": lookup ", "proxyconnect", 'Get "http', "reading http")
    is_network_error = any(text in last for text in network_errors)
    remedy = (
        "A Go module proxy has to be reachable once: set GOPROXY or HTTPS_PROXY,"
        f" or copy {cache()} from a machine that has it."
        if is_network_error
        else "The modules are pinned in tests/controlplane: fix what Go names, then run `scripts/controlplane` again."
    )
    return f"`go {step}` failed:\n{last}\n{remedy}"


def _check_space(work: Path) -> None:
    free = shutil.disk_usage(cache()).free
    if free < NEEDED and not work.is_dir():
        raise BuildError(
            f"the build of the control plane needs {NEEDED >> 30} GB of temporary space under {cache()},"
            f" which has {free / (1 << 30):.1f} GB free: make room, or set XDG_CACHE_HOME"
        )


def _lock(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _print("another run builds the control plane: waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _remove_old() -> None:
    for other in cache().iterdir():
        if other.is_dir() and time.time() - other.stat().st_mtime > _MAX_AGE * 86400:
            shutil.rmtree(other, ignore_errors=True)


def _elapsed(seconds: float) -> str:
    return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"


def _print(text: str) -> None:
    print(f"controlplane: {text}", file=sys.stderr, flush=True)


def main(names: Sequence[str]) -> None:
    """Build parts by name, all if there is no name, and print the directories of their programs."""
    by_name = {part.name: part for part in PARTS}
    if unknown := set(names) - by_name.keys():
        raise BuildError(f"unknown: {', '.join(sorted(unknown))}. The parts are {', '.join(by_name)}.")
    print(*build([by_name[name] for name in names] or PARTS), sep="\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BuildError as error:
        sys.exit(f"controlplane: {error}")
    except KeyboardInterrupt:
        sys.exit("controlplane: stopped; the next run continues")
