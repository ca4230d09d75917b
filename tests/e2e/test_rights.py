"""The rights that the chart renders, and the requests of an aggregator: each right is used, and no request is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.controlplane.cluster import NewCluster
from tests.daemonset.helm import Helm
from tests.daemonset.test_rights import rendered_rights
from tests.e2e import scene
from tests.e2e.devices import device_taints, published_devices
from tests.e2e.scene import ENFORCED, running_fleet
from tests.kubelet.audit import Audit

pytestmark = pytest.mark.slow

# Rights of requests that are rare, each with its occasion. The first two are no requests: admission policies ask for them.
RARE = {
    "delete marks": "an admission policy asks for it at each change of a mark",
    "create cordons": "an admission policy asks for it at each cordon",
    "get nodes": "a Node has changed since the watch saw it; `nodeguard unmark NODE`",
    "delete nodeincidents": "an incident is older than a month",
    "patch nodeincidents": "`nodeguard ack` and `nodeguard clear`",
    "get devicetaintrules": "a rule exists that the watch has not seen",
    "patch devicetaintrules": "the causes of a mark on a device have changed",
    **{
        f"list {kind}": "the API server does not stream lists in watches"
        for kind in ("nodes", "nodeincidents", "resourceslices", "devicetaintrules", "configmaps")
    },
    "list topologies": "the cluster has Kueue",
    "watch topologies": "the cluster has Kueue",
    "create nodeactions": "`nodeguard incidents clear`",
    "update nodeactions/status": "the agent is asked, and answers",
    "get nodeactions": "another replica has changed it",
    "delete nodeactions": "an action ended a day ago",
    "get pods": "the policy is invalid after a change: the Event on the aggregator's own pod",
    "patch events": "an Event occurs again",
    "create configmaps": "the ConfigMaps do not exist yet",
    "patch configmaps": "`nodeguard pause`, if it is not the first one",
    "update configmaps": "the authority is replaced, but not the published certificate",
}

POLICIES = {
    "all": f"{ENFORCED}markWith: {{cordon: true}}\n",
    "no devices": f"{ENFORCED}markWith: {{deviceTaint: false}}\n",
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_each_right_is_used_and_no_request_refused(
    policy: str, new_cluster: NewCluster, helm: Helm, tmp_path: Path
) -> None:
    audit = Audit(tmp_path)
    with (
        new_cluster(flags={"kube-apiserver": audit.flags()}) as cluster,
        published_devices(cluster, "sliced"),
        running_fleet(cluster, policy, "marked", "sliced") as fleet,
    ):
        for agent in fleet.agents.values():
            scene.inject_gpu_fault(agent)
        fleet.agents["marked"].until(lambda: scene.is_marked(cluster, "marked"))
        has_devices = "deviceTaint" not in policy
        fleet.agents["sliced"].until(
            lambda: device_taints(cluster) if has_devices else scene.is_marked(cluster, "sliced")
        )
        fleet.agents["marked"].until(lambda: "list pods" in audit.requests())
        for agent in fleet.agents.values():
            scene.log_driver_load(agent)
        fleet.agents["marked"].until(lambda: scene.is_unmarked(cluster, "marked"))
        fleet.agents["sliced"].until(
            lambda: not device_taints(cluster) and scene.is_unmarked(cluster, "sliced")
        )
        fleet.agents["marked"].until(lambda: "patch leases" in audit.requests())
    # A watch is in the log when it has ended.
    requests = audit.requests()
    assert audit.forbidden() == []
    cluster_rights, own_rights = rendered_rights(helm, {"policy": yaml.safe_load(policy)})
    rendered = {f"{right[-1]} {right[0]}" for right in cluster_rights | own_rights}
    used = {request for request in requests if not request.partition(" ")[2].startswith("/")}
    assert used <= rendered
    assert rendered - used - RARE.keys() == ({"delete devicetaintrules"} if not has_devices else set())
