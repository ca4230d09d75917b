"""Kueue runs beside a cluster, and ends with it."""

from __future__ import annotations

import os
import shutil
import signal

from tests.controlplane.cluster import API, NewCluster
from tests.controlplane.queueing import KUEUE, start_kueue
from tests.controlplane.test_kept import alive, waited


def test_it_knows_its_kinds_and_dies_with_a_keeper_that_is_killed(new_cluster: NewCluster) -> None:
    with new_cluster(API) as made:
        start_kueue(made)
        queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "all"}}
        # Its webhook fills in what is not said.
        said = made.api.post(f"{KUEUE}/clusterqueues", {**queue, "spec": {}})
        assert said["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]

        keeper, *processes = made.kept.processes()
        os.kill(keeper, signal.SIGKILL)
        assert waited(lambda: not any(alive(process) for process in processes))
        shutil.rmtree(made.kept.directory)
