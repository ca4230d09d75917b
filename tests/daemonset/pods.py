"""The pods of the manifests: their containers, and local directories in place of their volumes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.daemonset.manifests import document


def pod(kind: str, name: str) -> Any:
    """Return the pod specification of a workload."""
    return document(kind, name)["spec"]["template"]["spec"]


def container(kind: str, name: str) -> Any:
    """Return the only container of a workload."""
    (only,) = pod(kind, name)["containers"]
    return only


class Mounts:
    """The volume mounts of a container, with a directory of this machine for each.

    container: its manifest. directory: where the directories are made. shared: directories that exist already, by
    mount path.
    """

    def __init__(self, container: Any, directory: Path, shared: Mapping[str, Path] | None = None) -> None:
        self._directories: dict[str, Path] = {}
        for mount in container["volumeMounts"]:
            path = mount["mountPath"]
            local = (shared or {}).get(path) or directory / path.strip("/")
            local.mkdir(parents=True, exist_ok=True)
            self._directories[path] = local

    def local(self, path: str) -> Path:
        """Return where a path of the container is on this machine.

        Fails where no volume holds it: a process would then write outside the directories of the test.
        """
        holding = [mount for mount in self._directories if Path(path).is_relative_to(mount)]
        assert holding, f"no volume is mounted at {path}"
        mount = max(holding, key=len)
        return self._directories[mount] / Path(path).relative_to(mount)

    def option(self, word: str) -> str:
        """Return a word of a command line with its path, if it has one, on this machine."""
        name, equals, value = word.rpartition("=")
        return f"{name}{equals}{self.local(value)}" if value.startswith("/") else word

    def settings(self, value: Any) -> Any:
        """Return settings with each path in them on this machine."""
        match value:
            case str() if value.startswith("/"):
                return str(self.local(value))
            case dict():
                return {key: self.settings(item) for key, item in value.items()}
            case list():
                return [self.settings(item) for item in value]
        return value
