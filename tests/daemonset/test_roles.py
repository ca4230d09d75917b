"""The roles of people: what each switch of the chart renders, and what the API server then allows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controlplane.cluster import Cluster
from tests.daemonset.helm import CHART, RELEASE, Helm, objects
from tests.daemonset.manifests import NAMESPACE
from tests.daemonset.test_admission import RBAC, bind
from tests.daemonset.test_rbac import UNPRIVILEGED, Right, is_allowed, rights, service_account
from tests.daemonset.test_rights import rights as rules_of

pytestmark = pytest.mark.slow

VIEWER, OPERATOR, ADMIN = "nodeguard-viewer", "nodeguard-operator", "nodeguard-admin"
# What the roles of Kubernetes include.
VIEW = "nodeguard-aggregate-to-view"
PEOPLE_OF = {"users": ["ada"], "groups": ["gpu-operators"]}

READ_INCIDENTS: set[Right] = {
    ("nodeguard.dev", kind, verb)
    for kind in ("nodeincidents", "nodeactions")
    for verb in ("get", "list", "watch")
}
READ: set[Right] = READ_INCIDENTS | {
    (group, kind, verb)
    for group, kind in (("", "nodes"), ("resource.k8s.io", "devicetaintrules"))
    for verb in ("get", "list")
}
OPERATE: set[Right] = READ | {
    ("nodeguard.dev", "nodeincidents", "patch"),
    ("nodeguard.dev", "marks", "delete"),
}
EXECUTE: set[Right] = {
    ("", "pods", "get"),
    ("", "pods", "list"),
    ("", "pods/exec", "get"),
    ("", "pods/exec", "create"),
    ("apps", "deployments", "nodeguard-aggregator", "get"),
    ("coordination.k8s.io", "leases", "nodeguard-aggregator", "get"),
}

# Service accounts in place of users, each with its role and the rights of that role in the namespace of nodeguard.
PEOPLE: dict[str, tuple[str, set[Right]]] = {
    "reader": (VIEWER, READ),
    "sre": (OPERATOR, OPERATE),
    "root": (ADMIN, EXECUTE | READ),
}


def rendered_roles(helm: Helm, values: dict[str, Any]) -> dict[str, str]:
    """Return the kinds of the roles and bindings of people by name."""
    people = {VIEWER, VIEW, OPERATOR, ADMIN}
    made = [item for item in helm.template(values) if item["metadata"]["name"] in people]
    return {
        f"{item['kind']}/{item['metadata']['name']}": item["metadata"].get("namespace", "") for item in made
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {f"ClusterRole/{VIEWER}": "", f"ClusterRole/{VIEW}": "", f"ClusterRole/{OPERATOR}": ""}),
        ({"roles": {"viewer": {"enabled": False}, "operator": {"enabled": False}}}, {}),
        # The operator also acknowledges and clears incidents, which no admission policy limits.
        (
            {
                "admissionPolicy": {"enabled": False},
                "roles": {"viewer": {"enabled": False}, "operator": PEOPLE_OF},
            },
            {f"ClusterRole/{OPERATOR}": "", f"ClusterRoleBinding/{OPERATOR}": ""},
        ),
        (
            {"roles": {"viewer": PEOPLE_OF, "admin": {"enabled": True, **PEOPLE_OF}}},
            {
                f"ClusterRole/{VIEWER}": "",
                f"ClusterRole/{VIEW}": "",
                f"ClusterRole/{OPERATOR}": "",
                f"Role/{ADMIN}": NAMESPACE,
                f"ClusterRoleBinding/{VIEWER}": "",
                f"RoleBinding/{ADMIN}": NAMESPACE,
            },
        ),
        (
            {"roles": {"viewer": {"enabled": False}, "admin": {"enabled": True, **PEOPLE_OF}}},
            {f"ClusterRole/{OPERATOR}": "", f"Role/{ADMIN}": NAMESPACE, f"RoleBinding/{ADMIN}": NAMESPACE},
        ),
    ],
    ids=["default", "none", "without the policies", "bound", "admins without the viewer"],
)
def test_each_switch_renders_its_role(values: dict[str, Any], expected: dict[str, str], helm: Helm) -> None:
    assert rendered_roles(helm, values) == expected


def test_admins_are_viewers_too(helm: Helm) -> None:
    viewers, admins = {"users": ["ada"]}, {"enabled": True, "users": ["root"], "groups": ["gpu-admins"]}
    [binding] = [
        item
        for item in helm.template({"roles": {"viewer": viewers, "admin": admins}})
        if (item["kind"], item["metadata"]["name"]) == ("ClusterRoleBinding", VIEWER)
    ]
    assert [subject["name"] for subject in binding["subjects"]] == ["ada", "root", "gpu-admins"]


@pytest.mark.parametrize("people", [{"users": ["ada"]}, {"groups": ["gpu-admins"]}])
def test_people_of_a_role_that_is_off_are_refused(people: dict[str, Any], helm: Helm) -> None:
    expected = "set roles.admin.enabled to true, or leave them empty"
    assert expected in helm.refusal({"roles": {"admin": people}})


def test_only_admins_get_a_right_in_pods(helm: Helm) -> None:
    for item in helm.template({"roles": {"admin": {"enabled": True}}}):
        granted = {right[0] for right in rules_of(item.get("rules") or [])}
        if any(resource.startswith("pods/") for resource in granted):
            assert item["metadata"]["name"] == ADMIN


@pytest.fixture(scope="module")
def installed(shared_manifests: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    command = ("template", RELEASE, str(CHART), "--show-only=templates/roles.yaml")
    helm = Helm(tmp_path_factory.mktemp("helm"))
    roles = {
        role.removeprefix("nodeguard-"): {
            "enabled": True,
            "users": [f"system:serviceaccount:{NAMESPACE}:{account}"],
            "groups": [f"{account}s"],
        }
        for account, (role, _) in PEOPLE.items()
    }
    shared_manifests.api.apply(objects(helm(*command, values={"roles": roles})))
    shared_manifests.api.apply(service_account(account) for account in (UNPRIVILEGED, "viewing", *PEOPLE))
    bind(shared_manifests, "viewing", "view")
    return shared_manifests


@pytest.mark.parametrize("account", PEOPLE)
def test_a_role_gives_exactly_its_rights(installed: Cluster, account: str) -> None:
    role, expected = PEOPLE[account]
    for namespace in (NAMESPACE, "default", "kube-system"):
        granted = rights(installed, account, namespace) - rights(installed, UNPRIVILEGED, namespace)
        assert granted == (expected if role != ADMIN or namespace == NAMESPACE else READ)


def test_a_group_has_the_rights_of_its_role(installed: Cluster) -> None:
    assert is_allowed(installed, "list nodeincidents.nodeguard.dev", "ada", "readers")
    assert is_allowed(installed, "create pods exec", "ada", "roots")
    assert not is_allowed(installed, "create pods exec", "ada", "readers")


def test_the_view_of_kubernetes_reads_incidents_and_no_more_nodes_than_before(installed: Cluster) -> None:
    def rules() -> set[Right]:
        return rights(installed, "viewing", "default")

    installed.until(lambda: rules() >= READ_INCIDENTS, "kube-controller-manager")
    added = {right for right in rules() if right[0] == "nodeguard.dev"} | (rules() & READ)
    assert added == READ_INCIDENTS
    assert installed.api.get(f"{RBAC}/clusterroles/view")["rules"]
