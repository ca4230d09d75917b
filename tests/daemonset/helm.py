"""Helm on the chart: rendering, linting, and releases in a cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.controlplane.programs import program
from tests.daemonset.manifests import DAEMONSET, NAMESPACE

CHART = DAEMONSET / "chart"
RELEASE = "nodeguard"

# The registry of the images in tests that run no pods.
REGISTRY = "registry.example/team"

# Commands of Helm that render a chart, which refuses values without a registry.
_RENDERING = ("template", "lint", "install", "upgrade")

# The first version of the chart, from which upgrades are tested until there is a release; charts/README.md.
EARLIER = Path(__file__).parent / "charts" / "c1bfee15.tgz"

# The text of each template, by its values and its namespace: many tests render the same.
_rendered: dict[tuple[str, str], str] = {}


class Helm:
    """Runs Helm with files of its own. directory: for them. cluster: that of releases."""

    def __init__(self, directory: Path, cluster: Cluster | None = None) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            # Helm caches the API of a cluster in the home directory; without one, in the current directory.
            "HOME": str(directory),
            **{f"HELM_{kind}_HOME": str(directory / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")},
            "KUBECONFIG": str(cluster.kubeconfig) if cluster is not None else os.devnull,
        }

    def __call__(
        self, *arguments: str, values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE
    ) -> str:
        """Run a command in a namespace; return its output. Raises CalledProcessError.

        values: of the chart, with a registry if they have no images.
        """
        if arguments[0] in _RENDERING and "--reset-then-reuse-values" not in arguments:
            values = {"image": {"registry": REGISTRY}, **(values or {})}
        return subprocess.run(
            self.command(*arguments, values=values, namespace=namespace),
            env=self._environment,
            input=yaml.safe_dump(dict(values or {})),
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that waits for something that the test does."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def refusal(self, values: Mapping[str, Any]) -> str:
        """Return why Helm refuses values of the chart. Fails where it accepts them."""
        try:
            self.template(values)
        except subprocess.CalledProcessError as refused:
            return str(refused.stderr)
        raise AssertionError(f"{values} is accepted")

    def template(self, values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> list[Object]:
        """Return the objects of the chart without its hooks."""
        key = (json.dumps(values or {}, sort_keys=True), namespace)
        if key not in _rendered:
            command = ("template", RELEASE, str(CHART), "--no-hooks")
            _rendered[key] = self(*command, values=values, namespace=namespace)
        return list(objects(_rendered[key]))

    @staticmethod
    def command(
        *arguments: str, values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE
    ) -> Sequence[str]:
        """Return the command line. values: of the chart, on standard input."""
        options = [f"--namespace={namespace}", *(["--values=-"] if values is not None else [])]
        return [program("helm"), *arguments, *options]


def objects(text: str) -> Iterator[Object]:
    """Yield the objects of YAML documents."""
    yield from (document for document in yaml.load_all(text, yaml.CSafeLoader) if document)


def pick(found: Sequence[Object], kind: str, name: str) -> Any:
    """Return the only object of a kind and name."""
    [match] = [made for made in found if (made["kind"], made["metadata"]["name"]) == (kind, name)]
    return match


def names_jobs(definition: Object) -> bool:
    """Return whether a definition of NodeIncident has a field for jobs: the earlier chart has none."""
    [version] = definition["spec"]["versions"]
    return "jobs" in version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


def grant_rights(cluster: Cluster, policy: str) -> None:
    """Give the aggregator the rights that the chart renders for a policy, in place of those of the default policy."""
    cluster.api.apply(_rights(policy))


@cache
def _rights(policy: str) -> tuple[Object, ...]:
    """Return the objects with the rights that the chart renders for a policy."""
    command = ("template", RELEASE, str(CHART), "--show-only=templates/rbac.yaml")
    with TemporaryDirectory() as directory:
        return tuple(objects(Helm(Path(directory))(*command, values={"policy": yaml.safe_load(policy)})))
