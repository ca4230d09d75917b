"""The chart on real nodes: a release with an invalid policy fails before it changes anything, and says why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemonset.helm import CHART, RELEASE
from tests.daemonset.manifests import AGGREGATOR, NAMESPACE
from tests.e2e.pod_fleet import CHECKED, VALUES, PodFleet
from tests.kubelet.site import Site

pytestmark = pytest.mark.slow

JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{AGGREGATOR}"

# Valid for the schema, and refused by the program.
CONTRADICTION = {"soak": {"initial": "5m", "max": "1m"}}
UNMATCHED = {"modeRules": [{"mode": "enforce", "check": "gpux-*"}]}


@pytest.fixture
def fleet(site: Site) -> Iterator[PodFleet]:
    made = PodFleet(site)
    made.uninstall_leftover()
    yield made
    # The Job that failed stays for its log.
    site.cluster.api.delete(JOBS)
    made.uninstall_leftover()


def refusal(fleet: PodFleet, *command: str, values: dict[str, Any]) -> str:
    """Return what Helm prints about a release that fails."""
    with pytest.raises(AssertionError) as failed:
        fleet.helm(*command, RELEASE, str(CHART), values=values)
    return str(failed.value)


def test_a_release_with_an_invalid_policy_changes_nothing(fleet: PodFleet) -> None:
    cluster = fleet.site.cluster
    output = refusal(fleet, "install", "--create-namespace", values={**VALUES, "policy": CONTRADICTION})
    assert "INSTALLATION FAILED: failed pre-install" in output
    assert "/etc/nodeguard/policy.yaml:" in output
    assert "write `initial` no longer than `max`" in output
    assert not cluster.has(DEPLOYMENT)
    # Its log stays for a Helm that does not print it.
    log = fleet.site.kubectl("logs", "-n", NAMESPACE, "job/nodeguard-policy-check")
    assert "write `initial` no longer than `max`" in log

    # The same command again, with the valid policy and a check of the site.
    fleet.helm("upgrade", "--install", RELEASE, str(CHART), values=CHECKED)
    assert not cluster.has(f"{JOBS}/nodeguard-policy-check")
    before = cluster.api.get(DEPLOYMENT)["metadata"]["generation"]
    output = refusal(fleet, "upgrade", values={**CHECKED, "policy": UNMATCHED})
    assert "UPGRADE FAILED: pre-upgrade hooks failed" in output
    assert "policy.yaml:3: check: 'gpux-*' matches no check: see" in output
    assert cluster.api.get(DEPLOYMENT)["metadata"]["generation"] == before
    policy = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/nodeguard-policy")
    assert "gpux" not in policy["data"]["policy.yaml"]
