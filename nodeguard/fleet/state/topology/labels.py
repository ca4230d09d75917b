"""Labels of platforms for what nodes share: one scheme each, of which a topology may have several."""

from __future__ import annotations

from nodeguard.model.policy import TopologyLabels

# Coarsest first. Of two schemes with as many nodes, the first is used.
# Source: Kubernetes, well-known labels; Topograph 1.0 and 0.5, node labels; NVIDIA GPU feature discovery;
# AWS, EC2 instance topology and SageMaker HyperPod, topology labels; Google, GKE compact placement; Oracle,
# OKE RDMA topology; CoreWeave, InfiniBand and RoCE labels; Nebius, topology-aware scheduling; Crusoe, as
# Topograph reads it. No label names a Blackwell chassis as such: what Topograph, the clique and the clouds
# report is its NVLink domain. Each host of Google's holds one GPU node, and is no domain.
BUILT_IN = (
    TopologyLabels("zone", ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")),
    TopologyLabels("fabric", tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(7, -1, -1))),
    TopologyLabels(
        "fabric", tuple(f"network.topology.nvidia.com/{tier}" for tier in ("core", "spine", "leaf"))
    ),
    TopologyLabels("fabric", tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3))),
    TopologyLabels(
        "fabric", ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock")
    ),
    TopologyLabels(
        "fabric",
        (
            "oci.oraclecloud.com/rdma.hpc_island_id",
            "oci.oraclecloud.com/rdma.network_block_id",
            "oci.oraclecloud.com/rdma.local_block_id",
        ),
    ),
    TopologyLabels(
        "fabric", tuple(f"backend.coreweave.cloud/{level}" for level in ("fabric", "superpod", "leafgroup"))
    ),
    TopologyLabels(
        "fabric", tuple(f"ib.coreweave.cloud/{level}" for level in ("fabric", "superpod", "leafgroup"))
    ),
    TopologyLabels(
        "fabric", tuple(f"topology.nebius.com/{level}" for level in ("gpu-cluster-id", "tier-2", "tier-1"))
    ),
    TopologyLabels("fabric", ("crusoe.ai/ib.partition.id", "crusoe.ai/pod.id")),
    TopologyLabels("nvlink", ("accelerator.topograph.run/domain", "accelerator.topograph.run/sub-domain")),
    TopologyLabels("nvlink", ("network.topology.nvidia.com/accelerator",)),
    TopologyLabels("nvlink", ("nvidia.com/gpu.clique",)),
    TopologyLabels("nvlink", ("ds.coreweave.com/nvlink.domain",)),
    TopologyLabels("nvlink", ("topology.k8s.aws/ultraserver-id",)),
    TopologyLabels("nvlink", ("topology.nebius.com/nvl-instance-group-id",)),
    TopologyLabels("nvlink", ("topology.nebius.com/tier-0",)),
    TopologyLabels("rack", ("node.coreweave.cloud/rack",)),
)
