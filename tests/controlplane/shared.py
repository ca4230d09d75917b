"""Clusters that the tests of a process share."""

from __future__ import annotations

from contextlib import ExitStack

from tests.controlplane.cluster import Cluster, cluster
from tests.controlplane.commands import Component


class SharedClusters:
    """Starts a cluster with the first test that needs it. Each test gets what the ones before have left in it."""

    def __init__(self) -> None:
        self._running: dict[str, Cluster] = {}
        self._stack = ExitStack()

    def get(self, name: str, components: tuple[Component, ...], *flags: str) -> Cluster:
        """Return the cluster of a name, and start it with these components if it does not run.

        flags: more of its API server. Raises BuildError, ClusterError.
        """
        if name not in self._running:
            self._running[name] = self._stack.enter_context(cluster(components, {"kube-apiserver": flags}))
        return self._running[name]

    def close(self) -> None:
        """End all clusters. `get` starts new ones."""
        self._running.clear()
        self._stack.close()
