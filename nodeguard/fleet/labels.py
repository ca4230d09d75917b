"""Labels by which platforms tell what nodes share, and the views that they make."""

from __future__ import annotations

from nodeguard.model.policy import Policy, View

# One way each, of a platform that labels its nodes so; a view may have several.
# Source: Kubernetes, well-known labels; Topograph 1.0 and 0.5, node labels; NVIDIA GPU feature discovery;
# AWS, EC2 instance topology; Google, GKE compact placement; Oracle, OKE RDMA topology; CoreWeave and Nebius,
# node labels. Each host of Google's holds one GPU node, and is no domain.
BUILT_IN = (
    View("zone", ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")),
    View("fabric", tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(7, -1, -1))),
    View("fabric", tuple(f"network.topology.nvidia.com/{tier}" for tier in ("core", "spine", "leaf"))),
    View("fabric", tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3))),
    View("fabric", ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock")),
    View(
        "fabric",
        (
            "oci.oraclecloud.com/rdma.hpc_island_id",
            "oci.oraclecloud.com/rdma.network_block_id",
            "oci.oraclecloud.com/rdma.local_block_id",
        ),
    ),
    View(
        "fabric", tuple(f"backend.coreweave.cloud/{level}" for level in ("fabric", "superpod", "leafgroup"))
    ),
    View("nvlink", ("accelerator.topograph.run/domain", "accelerator.topograph.run/sub-domain")),
    View("nvlink", ("network.topology.nvidia.com/accelerator",)),
    View("nvlink", ("nvidia.com/gpu.clique",)),
    View("nvlink", ("ds.coreweave.com/nvlink.domain",)),
    View("nvlink", ("topology.nebius.com/nvl-instance-group-id",)),
)


def every_view(policy: Policy) -> tuple[View, ...]:
    """The policy's views, then the built-in ones. Of those of one name, a node is in the first of whose
    labels it has any.
    """
    return (*policy.views, *BUILT_IN)
