"""Kueue beside a cluster: it runs, and ends with the cluster."""

from __future__ import annotations

import os
import shutil
import signal

from tests.controlplane.cluster import API, NewCluster
from tests.controlplane.kueue_process import KUEUE, start_kueue
from tests.controlplane.test_processes import alive, wait_for


def test_kueue_serves_its_kinds_and_ends_with_a_killed_supervisor(new_cluster: NewCluster) -> None:
    with new_cluster(API) as cluster:
        start_kueue(cluster)
        queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "all"}}
        # The webhook sets the defaults.
        created = cluster.api.post(f"{KUEUE}/clusterqueues", {**queue, "spec": {}})
        assert created["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]

        supervisor, *processes = cluster.processes.ids()
        os.kill(supervisor, signal.SIGKILL)
        assert wait_for(lambda: not any(alive(process) for process in processes))
        shutil.rmtree(cluster.processes.directory)
