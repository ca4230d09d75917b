"""The admission policies on the largest Nodes that the API server accepts: the same results, and no evaluation that fails.

A policy that fails by its cost would admit what it refuses on a smaller Node, or stop the work of others.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.daemonset.changes import HEALTHY, MARK, STATE, taints
from tests.daemonset.manifests import AGGREGATOR, apply
from tests.daemonset.test_admission import NODES, add_accounts, client, is_admitted, mark_node

pytestmark = pytest.mark.slow

# The most entries that the API server stores, nearly, and some more that it refuses: etcd takes 1.5 MiB, and annotations
# have a limit of 256 KiB. Labels are only compared as a whole: theirs are long.
LARGEST = {
    "taints": 74_000,
    "own taints": 38_000,
    "conditions": 84_000,
    "annotations": 84_000,
    "labels": 22_000,
}
# Of a new Node: the time for the managed fields of a new object grows with the square of these entries, to 9 s of a
# processor for the most. A policy reads less of a new Node than of a change.
NEW = {**LARGEST, "conditions": 30_000, "annotations": 30_000}
REFUSED = {
    "taints": 80_000,
    "own taints": 46_000,
    "conditions": 110_000,
    "annotations": 90_000,
    "labels": 30_000,
}

# HTTP status of a change that took too long, and how often it is sent: six minutes of the twenty of a test.
_TIMEOUT, _REPETITIONS = 504, 10

FOREIGN = {"key": "example.com/more", "effect": "NoExecute"}


def keys(count: int, prefix: str = "") -> Iterator[str]:
    """Yield the shortest keys."""
    letters = string.ascii_letters + string.digits
    lengths = itertools.count(1)
    every = ("".join(key) for length in lengths for key in itertools.product(letters, repeat=length))
    return (f"{prefix}{key}" for key in itertools.islice(every, count))


def large(kind: str, count: int, name: str = "probe", *, is_marked: bool = True) -> Object:
    """Return a Node with a mark before all other entries. Without managed fields, more entries fit into it."""
    annotations = {STATE: "{}"} if is_marked else {}
    own_taints, conditions = ([MARK], [HEALTHY]) if is_marked else ([], [])
    metadata: Object = {"name": name, "managedFields": [{}], "annotations": annotations}
    body: Object = {
        "metadata": metadata,
        "spec": {"taints": own_taints},
        "status": {"conditions": conditions},
    }
    match kind:
        case "taints":
            own_taints += [{"key": key, "effect": "NoSchedule"} for key in keys(count)]
        case "own taints":
            own_taints += [{"key": key, "effect": "NoSchedule"} for key in keys(count, "nodeguard.dev/")]
        case "conditions":
            conditions += [{"type": key, "status": "1"} for key in keys(count)]
        case "annotations":
            annotations.update(dict.fromkeys(keys(count - len(annotations)), ""))
        case "labels":
            metadata["labels"] = dict.fromkeys(keys(count, "label" * 11), "")
    return body


@pytest.fixture(scope="module")
def installed(new_cluster: NewCluster) -> Iterator[Cluster]:
    with new_cluster(API) as created:
        apply(created)
        add_accounts(created)
        mark_node(created, "probe")
        created.until(lambda: not is_admitted(created, "developer", taints(), "probe"), "kube-apiserver")
        yield created
        created.api.delete(NODES)


@pytest.fixture(scope="module", params=LARGEST)
def kind(request: pytest.FixtureRequest, installed: Cluster) -> str:
    """Create a Node, and enlarge it to the largest one of a kind.

    It has no managed fields by then: where a Node has none, the API server does not compute those of a change, which
    takes longer for these Nodes than all else, and grows with the square of the annotations.
    """
    name: str = request.param
    reason = refusal(lambda: installed.api.post(NODES, large(name, 1, object_name(name))))
    assert not reason or "already exists" in reason
    for change in (NodePatch(add("/metadata/managedFields", [{}])), enlarged(name, LARGEST[name])):
        assert json_patch(installed.api, name, change, is_dry=False) == ""
    return name


def object_name(kind: str) -> str:
    """Return the name of the largest Node of a kind."""
    return kind.replace(" ", "-")


def refusal(call: Callable[[], object]) -> str:
    """Return why a request is refused; empty where it is admitted.

    An API server ends a change after 34 seconds, which a busy machine may need. The request is repeated then.
    """
    for _ in range(_REPETITIONS):
        try:
            call()
        except ApiError as error:
            if error.code != _TIMEOUT:
                return str(error)
        else:
            return ""
    raise TimeoutError(f"the API server has ended a change after 34 s, {_REPETITIONS} times")


class NodePatch:
    """Operations of a JSON Patch on a Node. status: on its status."""

    def __init__(self, *operations: Object, status: bool = False) -> None:
        self.operations, self.status = operations, status


def large_list(kind: str) -> str:
    """Return which list of the Node is large: each kind has the changes that all need, and those of its list."""
    return kind.removeprefix("own ")


def enlarged(kind: str, count: int) -> NodePatch:
    """Return the change that gives a Node so many entries of a kind."""
    body = large(kind, count)
    match large_list(kind):
        case "taints":
            return NodePatch(add("/spec/taints", body["spec"]["taints"]))
        case "conditions":
            return NodePatch(add("/status/conditions", body["status"]["conditions"]), status=True)
        case name:
            return NodePatch(add(f"/metadata/{name}", body["metadata"][name]))


def json_patch(api: Api, kind: str, change: NodePatch, *, is_dry: bool = True) -> str:
    """Return why a change of the largest Node is refused."""
    path = f"{NODES}/{object_name(kind)}{'/status' if change.status else ''}{'?dryRun=All' if is_dry else ''}"
    return refusal(lambda: api.of_metadata().patch(path, list(change.operations), "json"))


def refused(api: Api, kind: str, changes: Mapping[str, NodePatch]) -> dict[str, str]:
    """Return the changes of the largest Node that are refused, each with the reason."""
    reasons = {name: json_patch(api, kind, change) for name, change in changes.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def replace(path: str, value: Any) -> Object:
    return {"op": "replace", "path": path, "value": value}


def add(path: str, value: Any) -> Object:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Object:
    return {"op": "remove", "path": path}


STATE_PATH = f"/metadata/annotations/{STATE.replace('/', '~1')}"


def test_it_is_the_largest_node(kind: str, installed: Cluster) -> None:
    reason = json_patch(installed.api, kind, enlarged(kind, REFUSED[kind]), is_dry=False)
    assert "too large" in reason or "Too long" in reason


def test_marks_are_protected(kind: str, installed: Cluster) -> None:
    developer = client(installed, "developer")
    new_taint = {"key": "nodeguard.dev/more", "effect": "NoSchedule"}
    forged = {**HEALTHY, "status": "True"}
    of_list = {
        "taints": {"taint added": NodePatch(add("/spec/taints/-", new_taint))},
        "annotations": {"state removed by the status": NodePatch(remove(STATE_PATH), status=True)},
        "conditions": {"condition forged": NodePatch(add("/status/conditions/-", forged), status=True)},
    }
    changes = {
        "taint removed": NodePatch(remove("/spec/taints/0")),
        "state removed": NodePatch(remove(STATE_PATH)),
        "condition removed": NodePatch(remove("/status/conditions/0"), status=True),
        **of_list.get(large_list(kind), {}),
    }
    reasons = {name: json_patch(developer, kind, change) for name, change in changes.items()}
    reasons["created"] = refusal(
        lambda: installed.kubelet("probe").post(f"{NODES}?dryRun=All", large(kind, NEW[kind]))
    )
    assert [name for name, reason in reasons.items() if "right `delete` on marks" not in reason] == []


def test_others_do_their_work(kind: str, installed: Cluster) -> None:
    developer = client(installed, "developer")
    # As the cluster autoscaler and the controller of the node's lifecycle do.
    taint_added = json_patch(developer, kind, NodePatch(add("/spec/taints/-", FOREIGN)))
    # The aggregator removes so many taints of nodeguard: it never writes them.
    assert bool(taint_added) == (kind == "own taints")
    heartbeat = add("/status/conditions/-", {"type": "Ready", "status": "True", "reason": "KubeletReady"})
    of_list = {
        "annotations": {"annotation": NodePatch(add("/metadata/annotations/a", ""))},
        "labels": {"cordon": NodePatch(add("/spec/unschedulable", True))},
    }
    changes = {"heartbeat": NodePatch(heartbeat, status=True), **of_list.get(large_list(kind), {})}
    if kind != "own taints":
        # The policies admit it, and then there is such a Node.
        new = large(kind, NEW[kind], is_marked=False)
        reason = refusal(lambda: installed.kubelet("probe").post(f"{NODES}?dryRun=All", new))
        assert "already exists" in reason
    assert refused(developer, kind, changes) == {}


def test_the_aggregator_writes_marks(kind: str, installed: Cluster) -> None:
    mark = {"key": "nodeguard.dev/suspect", "effect": "NoSchedule"}
    release = NodePatch(remove("/spec/taints/0"), remove(STATE_PATH))
    of_list = {
        "taints": {"release": release},
        "annotations": {"release": release},
        "conditions": {"no condition": NodePatch(remove("/status/conditions/0"), status=True)},
    }
    changes = {
        "mark": NodePatch(add("/spec/taints/-", mark), replace(STATE_PATH, '{"causes":[]}')),
        "condition": NodePatch(replace("/status/conditions/0/status", "True"), status=True),
        **of_list.get(large_list(kind), {}),
    }
    assert refused(client(installed, AGGREGATOR), kind, changes) == {}


def test_the_aggregator_writes_nothing_else(kind: str, installed: Cluster) -> None:
    of_list = {
        "taints": {"taints": NodePatch(replace("/spec/taints", [FOREIGN]))},
        "annotations": {"annotation": NodePatch(add("/metadata/annotations/example.com", ""))},
        "conditions": {"conditions": NodePatch(replace("/status/conditions", []), status=True)},
        "labels": {
            "label": NodePatch(add("/metadata/labels", {"a": "b"})),
            "cordon": NodePatch(add("/spec/unschedulable", True)),
        },
    }
    address = {"type": "Hostname", "address": "a"}
    changes = {
        "provider": NodePatch(add("/spec/providerID", "x://y")),
        "addresses": NodePatch(add("/status/addresses", [address]), status=True),
        **of_list[large_list(kind)],
    }
    reasons = refused(client(installed, AGGREGATOR), kind, changes)
    assert reasons.keys() == changes.keys()
    assert all("the aggregator of nodeguard" in reason for reason in reasons.values())


def test_no_evaluation_failed(installed: Cluster) -> None:
    lines = installed.api.text("/metrics").splitlines()
    checks = [line for line in lines if line.startswith("apiserver_validating_admission_policy_check_total{")]
    assert checks
    # A refusal counts as an error. Refusals without their message would have failed a test above.
    admitted = [line for line in checks if 'enforcement_action="allow"' in line]
    assert [line for line in admitted if 'error_type="no_error"' not in line] == []
