"""Label schemes: the label keys of each topology. The first scheme that enough nodes have is used. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from string import punctuation, whitespace

from nodeguard.model.policy import TopologyLabels

# Another scheme is used if it leads by this share of its nodes, and by at least three: the fleet does not
# alternate, and no kubelet decides for it by the labels of its own Node. A level is used from this share of
# its scheme's nodes, until it has less than the other.
_MORE = 0.1
_LEAST_MORE = 3.0
_ENOUGH = 0.5
_TOO_FEW = 0.4

# Forms of values.
_ZERO, _NUMBER, _NAME = "0", "number", "name"

Labels = Mapping[str, str]

# Values that inventories and installers write where they know no location, without signs around them.
_PLACEHOLDERS = frozenset(
    {"", "default", "n/a", "na", "nil", "none", "null", "tbd", "unassigned", "undefined", "unknown", "unset"}
)


@lru_cache(maxsize=65_536)
def is_placeholder(value: str) -> bool:
    """Return whether a value names no location: its nodes have nothing in common."""
    return value.strip(punctuation + whitespace).lower() in _PLACEHOLDERS


def location_value(labels: Labels, key: str) -> str:
    """Return the value of a label; empty if it is missing or a placeholder."""
    value = labels.get(key, "")
    return "" if is_placeholder(value) else value


class LabelScheme:
    """Label keys, coarsest first, and how many nodes have them.

    is_own: whether the policy sets it: then each key counts, whichever nodes have it. labelled_nodes: how
    many nodes have any of the keys. used_keys: those that make a node's path.
    """

    def __init__(self, keys: tuple[str, ...], *, is_own: bool = False) -> None:
        self.keys = keys
        self.is_own = is_own
        self.labelled_nodes = 0
        self.used_keys = keys if is_own else ()
        self._any = 0
        self._having: Counter[str] = Counter()

    def count(self, labels: Labels, values: Labels, by: int) -> None:
        """Add a node with any of the keys (by 1) or remove it (by -1). values: its labels, and those that it
        had last.
        """
        self._any += by
        self.labelled_nodes += by * any(location_value(labels, key) for key in self.keys)
        for key in self.keys:
            if key in values:
                self._having[key] += by

    def choose_keys(self) -> None:
        """Choose the levels that enough nodes have."""
        if self.is_own:
            return
        self.used_keys = tuple(key for key in self.keys if self._is_level(key))
        if not self.used_keys and self._any:
            self.used_keys = (max(self.keys, key=lambda key: self._having[key]),)

    def _is_level(self, key: str) -> bool:
        share = _TOO_FEW if key in self.used_keys else _ENOUGH
        return self._having[key] > 0 and self._having[key] >= share * self._any


def _form(value: str) -> str:
    return _ZERO if value == _ZERO else _NUMBER if value.isdecimal() else _NAME


def _is_zero_no_location(forms: Mapping[str, int]) -> bool:
    """Return whether the nodes with a name outnumber those with a zero, and no node has another number. In a
    fleet of numbered racks the zero is the first of them.
    """
    return forms[_NAME] > forms[_ZERO] > 0 == forms[_NUMBER]


class SchemeSelection:
    """The schemes of one topology. scheme: the one in use; None while no node has a label of any.

    The first scheme is used, unless another one has clearly more nodes. One that the policy sets is always
    used.
    """

    def __init__(self, topology: str, schemes: Sequence[LabelScheme]) -> None:
        self.topology = topology
        self.scheme = next((scheme for scheme in schemes if scheme.is_own), None)
        self._schemes = tuple(schemes)
        # How many nodes have a name, a number or a zero in each key, and the keys in which a zero is no
        # location.
        self._forms: dict[str, Counter[str]] = defaultdict(Counter)
        self._zero_keys: frozenset[str] = frozenset()
        self._by_key: dict[str, list[LabelScheme]] = {}
        for scheme in schemes:
            for key in scheme.keys:
                self._by_key.setdefault(key, []).append(scheme)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys that make a node's path."""
        return self.scheme.used_keys if self.scheme is not None else ()

    def count(self, labels: Labels, values: Labels, by: int) -> None:
        """Add or remove a node; see LabelScheme.count."""
        for key in values.keys() & self._by_key.keys():
            self._forms[key][_form(values[key])] += by
        for scheme in {scheme for key in values for scheme in self._by_key.get(key, ())}:
            scheme.count(labels, values, by)

    def choose_scheme(self) -> bool:
        """Choose again if necessary. Returns whether other keys or values are used now."""
        before, now = (self.keys, self._zero_keys), self.scheme
        best = max(self._schemes, key=lambda scheme: scheme.labelled_nodes)
        close = best.labelled_nodes - max(_LEAST_MORE, _MORE * best.labelled_nodes)
        if now is None:
            # A scheme of a single node is only used if no other has more.
            least = min(2, best.labelled_nodes)
            self.scheme = next(
                (scheme for scheme in self._schemes if close < scheme.labelled_nodes >= max(1, least)), None
            )
        elif not now.is_own and now.labelled_nodes <= close:
            self.scheme = best
        if self.scheme is not None:
            self.scheme.choose_keys()
        self._zero_keys = frozenset(key for key in self.keys if _is_zero_no_location(self._forms[key]))
        return (self.keys, self._zero_keys) != before

    def value(self, labels: Labels, key: str) -> str:
        """Return the location of a node in a key; empty if it is missing or a placeholder, as a zero among
        names is.
        """
        value = location_value(labels, key)
        return "" if value == _ZERO and key in self._zero_keys else value

    def path(self, values: Labels) -> str:
        """Return a node's path, down to the first key that it lacks; empty if that is the coarsest."""
        steps = [self.topology]
        for key in self.keys:
            if not (value := self.value(values, key)):
                break
            steps.append(value)
        return "/".join(steps) if len(steps) > 1 else ""

    def retained_keys(self, before: Labels, labels: Labels) -> Iterator[str]:
        """Yield the keys that a node has lost, if the other labels of their scheme are unchanged."""
        for scheme in self._schemes:
            values = {key: value for key in scheme.keys if (value := location_value(labels, key))}
            if all(before.get(key) in {None, value} for key, value in values.items()):
                yield from (key for key in scheme.keys if key in before and key not in values)


# Coarsest first. Of two schemes with nearly as many nodes, the first is used.
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
