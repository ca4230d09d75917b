"""Writes the version of pyproject.toml into the files that repeat it.

    python -m scripts.version [TAG]

With TAG, such as v0.1.0: fails if it is not the tag of this version. `make manifests` and `make docs` write
the generated files with it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent

# The files that repeat the version; those that are generated are not among them.
FILES = (
    "nodeguard/__init__.py",
    "daemonset/chart/Chart.yaml",
    "daemonset/kustomization.yaml",
    "Containerfile.agent",
    "Containerfile.aggregator",
    "README.md",
    "docs/contributing/releases.md",
    "docs/quickstart/kubernetes.md",
    "tests/docs/not_run.yaml",
    "tests/images/store.py",
)

_VARIABLES = r'__version__ = "|^TAG = "|^version: |^appVersion: "|newTag: |image\.version=|a tag such as `v'
_COPY = re.compile(
    rf"({_VARIABLES}|nodeguard-(?:agent|aggregator):)\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", re.MULTILINE
)


def version() -> str:
    """Return the version of this working tree."""
    text: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return text


def with_version(text: str, new: str) -> str:
    """Return the text of one of FILES with a version."""
    return _COPY.sub(rf"\g<1>{new}", text)


def main(tags: list[str]) -> None:
    """Write the files, or check a tag. Raises SystemExit for another tag."""
    if tags and tags != [f"v{version()}"]:
        sys.exit(f"{tags[0]}: not the tag of version {version()} in pyproject.toml: use v{version()}")
    for name in FILES:
        path = ROOT / name
        path.write_text(with_version(path.read_text("utf-8"), version()), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
