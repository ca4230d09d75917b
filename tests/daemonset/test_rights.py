"""Each account may do what it needs, and nothing else: asked of the API server's own authoriser."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.controlplane.api import Api, Object
from tests.controlplane.cluster import API, Cluster, NewCluster
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE, apply, token

# A service account to which nothing was ever granted.
NOBODY = "nobody"

Right = tuple[str, ...]

EVERYWHERE = {
    *(("", "nodes", verb) for verb in ("get", "list", "watch", "patch")),
    ("", "nodes/status", "patch"),
    *(
        ("nodeguard.dev", "nodeincidents", verb)
        for verb in ("get", "list", "watch", "create", "patch", "update", "delete")
    ),
    *(("nodeguard.dev", "nodeincidents/status", verb) for verb in ("get", "patch", "update")),
    *(("resource.k8s.io", "resourceslices", verb) for verb in ("list", "watch")),
    *(
        ("resource.k8s.io", "devicetaintrules", verb)
        for verb in ("get", "list", "watch", "create", "patch", "update", "delete")
    ),
    *(("kueue.x-k8s.io", "topologies", verb) for verb in ("get", "list", "watch")),
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("/.well-known/openid-configuration", "get"),
    ("/openid/v1/jwks", "get"),
}
EVENTS = {("", "events", "create"), ("", "events", "patch")}
AT_HOME = {
    *EVENTS,
    ("", "pods", "get"),
    *(("coordination.k8s.io", "leases", "nodeguard-aggregator", verb) for verb in ("get", "patch")),
    *(("", kind, "nodeguard-ca", verb) for kind in ("configmaps", "secrets") for verb in ("get", "update")),
    *(("", "configmaps", "nodeguard-decisions", verb) for verb in ("get", "list", "watch", "patch")),
    ("coordination.k8s.io", "leases", "create"),
    ("", "configmaps", "create"),
    ("", "secrets", "create"),
}


@pytest.fixture(scope="module")
def installed(new_cluster: NewCluster) -> Iterator[Cluster]:
    with new_cluster(API) as alone:
        apply(alone)
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        alone.api.post(path, {"metadata": {"name": NOBODY}})
        yield alone


def rights(made: Cluster, account: str, namespace: str) -> set[Right]:
    """All that an account may do in a namespace and outside of any."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    asked: Object = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
    status = _api(made, account).post(path, {**asked, "spec": {"namespace": namespace}})["status"]
    assert not status["incomplete"]
    found: set[Right] = set()
    for rule in status["resourceRules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    named = (name,) if name else ()
                    found |= {(group, resource, *named, verb) for verb in rule["verbs"]}
    for rule in status["nonResourceRules"]:
        found |= {(path, verb) for path in rule["nonResourceURLs"] for verb in rule["verbs"]}
    return found


def _api(made: Cluster, account: str) -> Api:
    return Api(int(made.url.rpartition(":")[2]), made.ca, token(made, account))


@pytest.mark.parametrize("namespace", [NAMESPACE, "default", "kube-system"])
def test_the_agent_has_no_right_that_not_everybody_has(installed: Cluster, namespace: str) -> None:
    assert rights(installed, AGENT, namespace) == rights(installed, NOBODY, namespace)


@pytest.mark.parametrize(
    ("namespace", "more"), [(NAMESPACE, AT_HOME), ("default", EVENTS), ("kube-system", set[Right]())]
)
def test_the_aggregator_has_these_rights_and_no_other(
    installed: Cluster, namespace: str, more: set[Right]
) -> None:
    # What everybody has: discovery, and the documents of the token issuer.
    found = rights(installed, AGGREGATOR, namespace)
    everybody = rights(installed, NOBODY, namespace)
    assert found - everybody == (EVERYWHERE | more) - everybody
    assert found >= EVERYWHERE


@pytest.mark.parametrize(
    ("account", "words", "expected"),
    [
        (AGENT, "get nodes", "no"),
        (AGENT, "patch nodes/node-1", "no"),
        (AGENT, "create tokenreviews.authentication.k8s.io", "no"),
        (AGENT, "get configmaps/nodeguard-ca", "no"),
        (AGENT, "get secrets/nodeguard-ca", "no"),
        (AGGREGATOR, "patch nodes/node-1", "yes"),
        (AGGREGATOR, "delete nodes/node-1", "no"),
        (AGGREGATOR, "create nodes", "no"),
        (AGGREGATOR, "create pods", "no"),
        (AGGREGATOR, "create pods --subresource=eviction", "no"),
        (AGGREGATOR, "list secrets", "no"),
        (AGGREGATOR, "get secrets/other", "no"),
        (AGGREGATOR, "delete secrets/nodeguard-ca", "no"),
        (AGGREGATOR, "update configmaps/nodeguard-policy", "no"),
        (AGGREGATOR, "get secrets/nodeguard-ca", "yes"),
        (AGGREGATOR, "update leases.coordination.k8s.io/other", "no"),
        (AGGREGATOR, "patch clusterroles.rbac.authorization.k8s.io/nodeguard-aggregator", "no"),
        (AGGREGATOR, "create serviceaccounts --subresource=token", "no"),
    ],
)
def test_kubectl_says_the_same(installed: Cluster, account: str, words: str, expected: str) -> None:
    who = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
    command = ["auth", "can-i", *words.split(), who, f"--namespace={NAMESPACE}"]
    if expected == "yes":
        assert installed.kubectl(*command).split()[-1] == "yes"
        return
    with pytest.raises(subprocess.CalledProcessError) as said:
        installed.kubectl(*command)
    assert said.value.stdout.split()[0] == "no"
