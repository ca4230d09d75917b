"""Settings of containerd, of its pod network, and of the kubelet of one node."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.api import Object
from tests.kubelet.dns import DOMAIN

DNS_ADDRESS = "10.0.0.10"
SOCKET = "/run/containerd/containerd.sock"

# Where Debian's package has the plug-ins.
_CNI_PLUGINS = "/usr/lib/cni"

_RESOURCES = ("memory.available", "nodefs.available", "imagefs.available", "nodefs.inodesFree")


@dataclass(frozen=True)
class NodeSettings:
    """name: of the Node. number: from 1, for its addresses. pause: image of the pods' first container. directory: of
    this machine, for files of the node. cgroup: parent of the cgroups of its pods.
    """

    name: str
    number: int
    pause: str
    directory: Path
    cgroup: str

    @property
    def address(self) -> str:
        return f"172.30.0.{self.number}"

    def write(self) -> None:
        """Write the files of containerd, the pod network and the kubelet."""
        files = {
            "containerd.toml": self._containerd(),
            "cni/10-bridge.conflist": json.dumps(self._network()),
            "kubelet.json": json.dumps(self._kubelet()),
            "resolv.conf": f"nameserver {DNS_ADDRESS}\n",
        }
        for name, text in files.items():
            path = self.directory / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    def kubelet_flags(self, kubeconfig: Path) -> list[str]:
        return [
            f"--config={self.directory / 'kubelet.json'}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        ]

    def _containerd(self) -> str:
        return f"""
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{self.pause}"
  # Without CAP_SYS_RESOURCE a container cannot have a lower oom_score_adj than containerd.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{_CNI_PLUGINS}"
    conf_dir = "{self.directory / "cni"}"
"""

    def _network(self) -> Object:
        bridge = {
            "type": "bridge",
            "bridge": f"pods{self.number}",
            "isGateway": True,
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": f"10.244.{self.number}.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": "/run/cni",
            },
        }
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}

    def _kubelet(self) -> Object:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzPort": 0,
            "readOnlyPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup,
            "failCgroupV1": False,
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "clusterDNS": [DNS_ADDRESS],
            "clusterDomain": DOMAIN,
            "resolvConf": str(self.directory / "resolv.conf"),
            # A machine with a full disk can run tests.
            "evictionHard": dict.fromkeys(_RESOURCES, "0%"),
            "imageGCHighThresholdPercent": 100,
            # Changes of ConfigMaps reach pods, and failures the status, in seconds.
            "syncFrequency": "2s",
            "nodeStatusUpdateFrequency": "2s",
            "featureGates": {"KubeletCrashLoopBackOffMax": True},
            "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
        }
