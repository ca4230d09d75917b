"""Each service account has the rights that it needs and no others, by the API server's own authoriser."""

from __future__ import annotations

import pytest

from tests.controlplane.api import Api, Object
from tests.controlplane.cluster import Cluster
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE, token

pytestmark = pytest.mark.slow

# A service account without any grant.
UNPRIVILEGED = "unprivileged"

Right = tuple[str, ...]

CLUSTER_RIGHTS = {
    *(("", "nodes", verb) for verb in ("get", "list", "watch", "patch")),
    ("", "nodes/status", "patch"),
    ("", "pods", "list"),
    *(("nodeguard.dev", "nodeincidents", verb) for verb in ("list", "watch", "create", "patch", "delete")),
    ("nodeguard.dev", "marks", "delete"),
    ("nodeguard.dev", "nodeincidents/status", "patch"),
    *(("resource.k8s.io", "resourceslices", verb) for verb in ("list", "watch")),
    *(
        ("resource.k8s.io", "devicetaintrules", verb)
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    ),
    *(("kueue.x-k8s.io", "topologies", verb) for verb in ("list", "watch")),
    ("/.well-known/openid-configuration", "get"),
    ("/openid/v1/jwks", "get"),
}
EVENT_RIGHTS = {("", "events", "create"), ("", "events", "patch")}
NAMESPACE_RIGHTS = {
    *EVENT_RIGHTS,
    ("", "pods", "get"),
    *(("coordination.k8s.io", "leases", "nodeguard-aggregator", verb) for verb in ("get", "patch")),
    *(("", "configmaps", "nodeguard-ca", verb) for verb in ("get", "update")),
    ("", "secrets", "nodeguard-ca", "get"),
    *(("", "configmaps", "nodeguard-decisions", verb) for verb in ("get", "list", "watch", "patch")),
    *(("nodeguard.dev", "nodeactions", verb) for verb in ("get", "list", "watch", "create", "delete")),
    ("nodeguard.dev", "nodeactions/status", "update"),
    ("coordination.k8s.io", "leases", "create"),
    ("", "configmaps", "create"),
    ("", "secrets", "create"),
}


@pytest.fixture(scope="module")
def installed(shared_manifests: Cluster) -> Cluster:
    shared_manifests.api.apply([service_account(UNPRIVILEGED)])
    return shared_manifests


def service_account(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": NAMESPACE},
    }


def rights(made: Cluster, account: str, namespace: str) -> set[Right]:
    """The rights of an account in a namespace and on cluster-scoped objects."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    review: Object = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
    status = _api(made, account).post(path, {**review, "spec": {"namespace": namespace}})["status"]
    assert not status["incomplete"]
    granted: set[Right] = set()
    for rule in status["resourceRules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    named = (name,) if name else ()
                    granted |= {(group, resource, *named, verb) for verb in rule["verbs"]}
    for rule in status["nonResourceRules"]:
        granted |= {(path, verb) for path in rule["nonResourceURLs"] for verb in rule["verbs"]}
    return granted


def _api(made: Cluster, account: str) -> Api:
    return Api(made.port, made.ca, token(made, account))


def is_allowed(made: Cluster, words: str, user: str, *groups: str) -> bool:
    """Return what `kubectl auth can-i` answers about a user in the namespace of nodeguard, without a start of kubectl.

    words: VERB RESOURCE[.GROUP][/NAME] [SUBRESOURCE].
    """
    verb, target, *subresource = words.split()
    resource, _, name = target.partition("/")
    resource, _, group = resource.partition(".")
    attributes = {"verb": verb, "group": group, "resource": resource, "name": name, "namespace": NAMESPACE}
    spec = {
        "user": user,
        "groups": ["system:authenticated", *groups],
        "resourceAttributes": {**attributes, "subresource": "".join(subresource)},
    }
    status = made.api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})["status"]
    assert "evaluationError" not in status
    allowed: bool = status["allowed"]
    return allowed


@pytest.mark.parametrize("namespace", [NAMESPACE, "default", "kube-system"])
def test_the_agent_has_no_granted_rights(installed: Cluster, namespace: str) -> None:
    assert rights(installed, AGENT, namespace) == rights(installed, UNPRIVILEGED, namespace)


@pytest.mark.parametrize(
    ("namespace", "more"),
    [(NAMESPACE, NAMESPACE_RIGHTS), ("default", EVENT_RIGHTS), ("kube-system", set[Right]())],
)
def test_the_aggregator_has_exactly_these_rights(
    installed: Cluster, namespace: str, more: set[Right]
) -> None:
    # Every account has discovery, and the documents of the token issuer.
    granted = rights(installed, AGGREGATOR, namespace)
    common = rights(installed, UNPRIVILEGED, namespace)
    assert granted - common == (CLUSTER_RIGHTS | more) - common
    assert granted >= CLUSTER_RIGHTS


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
        (AGGREGATOR, "list pods", "yes"),
        (AGGREGATOR, "watch pods", "no"),
        (AGGREGATOR, "create pods", "no"),
        (AGGREGATOR, "create pods eviction", "no"),
        (AGGREGATOR, "list secrets", "no"),
        (AGGREGATOR, "get secrets/other", "no"),
        (AGGREGATOR, "delete secrets/nodeguard-ca", "no"),
        (AGGREGATOR, "update secrets/nodeguard-ca", "no"),
        (AGGREGATOR, "update configmaps/nodeguard-policy", "no"),
        (AGGREGATOR, "get secrets/nodeguard-ca", "yes"),
        (AGGREGATOR, "update leases.coordination.k8s.io/other", "no"),
        (AGGREGATOR, "patch clusterroles.rbac.authorization.k8s.io/nodeguard-aggregator", "no"),
        (AGGREGATOR, "create serviceaccounts token", "no"),
    ],
)
def test_the_authoriser_answers(installed: Cluster, account: str, words: str, expected: str) -> None:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    assert is_allowed(installed, words, user, *groups) == (expected == "yes")
