"""The roles of people: what each switch of the chart renders, and what the API server then allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.cluster import Cluster, NewCluster
from tests.daemonset.helm import CHART, RELEASE, Helm
from tests.daemonset.manifests import NAMESPACE, apply
from tests.daemonset.test_admission import RBAC
from tests.daemonset.test_rbac import UNPRIVILEGED, Right, rights
from tests.daemonset.test_rights import rights as rules_of

pytestmark = pytest.mark.slow

VIEWER, OPERATOR, ADMIN = "nodeguard-viewer", "nodeguard-operator", "nodeguard-admin"
ALLOWED = {"allowedUsers": ["ada"], "allowedGroups": ["gpu-operators"]}

READ: set[Right] = {("nodeguard.dev", "nodeincidents", verb) for verb in ("get", "list", "watch")}
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
    "root": (ADMIN, EXECUTE),
}


def rendered_roles(helm: Helm, values: dict[str, Any]) -> dict[str, str]:
    """Return the kinds of the roles and bindings of people by name."""
    people = {VIEWER, OPERATOR, ADMIN}
    made = [item for item in helm.template(values) if item["metadata"]["name"] in people]
    return {
        f"{item['kind']}/{item['metadata']['name']}": item["metadata"].get("namespace", "") for item in made
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {f"ClusterRole/{VIEWER}": "", f"ClusterRole/{OPERATOR}": ""}),
        ({"roles": {"viewer": {"enabled": False}, "operator": {"enabled": False}}}, {}),
        # The operator also acknowledges and clears incidents, which no admission policy limits.
        (
            {"admissionPolicy": {"enabled": False, **ALLOWED}, "roles": {"viewer": {"enabled": False}}},
            {f"ClusterRole/{OPERATOR}": ""},
        ),
        (
            {"admissionPolicy": ALLOWED, "roles": {"viewer": {"enabled": False}}},
            {f"ClusterRole/{OPERATOR}": "", f"ClusterRoleBinding/{OPERATOR}": ""},
        ),
        (
            {"roles": {"admin": {"enabled": True}}},
            {f"ClusterRole/{VIEWER}": "", f"ClusterRole/{OPERATOR}": "", f"Role/{ADMIN}": NAMESPACE},
        ),
    ],
    ids=["default", "none", "without the policies", "bound", "admin"],
)
def test_each_switch_renders_its_role(values: dict[str, Any], expected: dict[str, str], helm: Helm) -> None:
    assert rendered_roles(helm, values) == expected


def test_a_binding_without_its_role_is_refused(helm: Helm) -> None:
    values = {"admissionPolicy": ALLOWED, "roles": {"operator": {"enabled": False}}}
    assert "set roles.operator.enabled to true, or leave them empty" in helm.refusal(values)


def test_only_admins_get_a_right_in_pods(helm: Helm) -> None:
    for item in helm.template({"roles": {"admin": {"enabled": True}}}):
        granted = {right[0] for right in rules_of(item.get("rules") or [])}
        if any(resource.startswith("pods/") for resource in granted):
            assert item["metadata"]["name"] == ADMIN


@pytest.fixture(scope="module")
def installed(new_cluster: NewCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with new_cluster() as created:
        apply(created)
        rendered = created.processes.directory / "roles.yaml"
        command = ("template", RELEASE, str(CHART), "--show-only=templates/roles.yaml")
        helm = Helm(tmp_path_factory.mktemp("helm"))
        rendered.write_text(helm(*command, values={"roles": {"admin": {"enabled": True}}}))
        created.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(rendered))
        for account in (UNPRIVILEGED, "viewing", *PEOPLE):
            created.kubectl("create", "serviceaccount", "-n", NAMESPACE, account)
        for account, (role, _) in PEOPLE.items():
            bind(created, account, role)
        bind(created, "viewing", "view")
        yield created


def bind(made: Cluster, account: str, role: str) -> None:
    """Give a role to an account as the pages show it for users."""
    subject = f"--serviceaccount={NAMESPACE}:{account}"
    if role == ADMIN:
        made.kubectl("create", "rolebinding", account, "-n", NAMESPACE, f"--role={role}", subject)
    else:
        made.kubectl("create", "clusterrolebinding", account, f"--clusterrole={role}", subject)


@pytest.mark.parametrize("account", PEOPLE)
def test_a_role_gives_exactly_its_rights(installed: Cluster, account: str) -> None:
    role, expected = PEOPLE[account]
    for namespace in (NAMESPACE, "default", "kube-system"):
        granted = rights(installed, account, namespace) - rights(installed, UNPRIVILEGED, namespace)
        assert granted == (expected if role != ADMIN or namespace == NAMESPACE else set())


def test_the_view_of_kubernetes_reads_incidents(installed: Cluster) -> None:
    def rules() -> set[Right]:
        return rights(installed, "viewing", "default")

    installed.until(lambda: rules() >= READ, "kube-controller-manager")
    written = {right for right in rules() if right[0] == "nodeguard.dev"} - READ
    assert written == set()
    assert installed.api.get(f"{RBAC}/clusterroles/view")["rules"]
