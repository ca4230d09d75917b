"""Values of the chart with real processes: certificates of another issuer, and the uninstall beside an aggregator."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from nodeguard.aggregator.certificates.issue import issue_authority, issue_serving_certificate
from tests.controlplane.cluster import Cluster
from tests.daemonset.helm import CHART, RELEASE, Helm, objects, pick
from tests.daemonset.manifests import AGGREGATOR, NAMESPACE
from tests.e2e import scene
from tests.e2e.devices import device_taints, published_devices
from tests.e2e.fleet import HOST, Fleet, deployed_fleet
from tests.e2e.scene import running_fleet
from tests.e2e.test_drain import FAULTY, training, training_fleet

pytestmark = pytest.mark.slow

SPACE = f"/api/v1/namespaces/{NAMESPACE}"
CERTIFICATE = "nodeguard-aggregator-certificate"


def test_agents_trust_the_certificate_of_cert_manager(controlplane: Cluster, helm: Helm) -> None:
    values = {"certificates": {"mode": "certManager", "certManager": {"issuerRef": {"name": "ca"}}}}
    template = pick(helm.template(values), "Deployment", AGGREGATOR)["spec"]["template"]
    with deployed_fleet(controlplane) as fleet:
        [fleet.aggregator_container] = template["spec"]["containers"]
        fleet.add_node("node-1")
        [aggregator] = fleet.add_aggregators(1)
        # The Secret as cert-manager writes it, which does not run here.
        authority = issue_authority(time.time())
        serving = issue_serving_certificate(authority, [HOST], time.time())
        files = {"tls.crt": serving.certificate, "tls.key": serving.key, "ca.crt": authority.certificate}
        data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
        secret = {"metadata": {"name": CERTIFICATE}, "type": "kubernetes.io/tls", "data": data}
        mounted = controlplane.api.post(f"{SPACE}/secrets", secret)["data"]
        try:
            for name, text in mounted.items():
                aggregator.local(f"/run/secrets/certificate/{name}").write_bytes(base64.b64decode(text))
            aggregator.start()
            fleet.distribute_ca()
            assert fleet.ca.read_text() == authority.certificate
            # The aggregator has created no authority of its own.
            assert not controlplane.has(f"{SPACE}/secrets/nodeguard-ca")
            fleet.agents["node-1"].start()
            aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
        finally:
            controlplane.api.delete(f"{SPACE}/secrets/{CERTIFICATE}")
            controlplane.api.delete(f"{SPACE}/configmaps/nodeguard-ca")


def remove_marks(fleet: Fleet, helm: Helm) -> str:
    """Run the command of the chart's Job with the token of an aggregator, and return its output."""
    rendered = helm("template", RELEASE, str(CHART), "--show-only=templates/uninstall.yaml", values={})
    job = pick(list(objects(rendered)), "Job", "nodeguard-uninstall")
    [container] = job["spec"]["template"]["spec"]["containers"]
    [aggregator] = fleet.aggregators
    variables = {"POD_NAMESPACE": NAMESPACE, "POD_NAME": "nodeguard-uninstall"}
    assert {variable["name"] for variable in container["env"]} == variables.keys()
    return subprocess.run(
        [sys.executable, "-m", "nodeguard.cli.main", *container["args"]],
        env={"PATH": os.environ["PATH"], "KUBECONFIG": str(aggregator.kubeconfig), **variables},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "killed"])
def test_uninstall_removes_all_marks_beside_an_aggregator(
    controlplane: Cluster, helm: Helm, is_running: bool
) -> None:
    policy = f"{scene.ENFORCED}markWith: {{cordon: true}}\n"
    names = ("marked", "sliced")
    with published_devices(controlplane, "sliced"), running_fleet(controlplane, policy, *names) as fleet:
        [aggregator] = fleet.aggregators
        for name in names:
            scene.inject_gpu_fault(fleet.agents[name])
        fleet.agents["marked"].until(lambda: scene.condition(controlplane, "marked"))
        fleet.agents["sliced"].until(lambda: device_taints(controlplane))
        aggregator.until(
            lambda: all(scene.has_incident_state(controlplane, name, "Marked") for name in names)
        )
        if not is_running:
            aggregator.kill()
        assert "GPUs: 1" in remove_marks(fleet, helm)
        assert [scene.nodeguard_fields(controlplane, name) for name in names] == [[], []]
        assert not scene.get_node(controlplane, "marked")["spec"].get("unschedulable")
        assert device_taints(controlplane) == []
        for name in names:
            assert scene.has_incident_state(controlplane, name, "Withheld")
        if is_running:
            # It still receives the fault, and writes nothing.
            assert aggregator.return_code() is None
            aggregator.wait_while_it_plans(3.0)
            assert aggregator.metric("nodeguard_aggregator_active") == 0
            assert [scene.nodeguard_fields(controlplane, name) for name in names] == [[], []]


def test_uninstall_removes_the_conditions_of_a_drain(controlplane: Cluster, helm: Helm) -> None:
    def fields() -> list[Any]:
        return scene.nodeguard_fields(controlplane, FAULTY)

    with training_fleet(controlplane) as fleet, training(fleet):
        scene.inject_switch_fault(fleet.agents[FAULTY])
        [aggregator] = fleet.aggregators
        aggregator.until(lambda: any(item["type"] == "Drained" for item in fields() if "type" in item))
        remove_marks(fleet, helm)
        assert fields() == []
        # It still receives the fault, and the drain is still recorded.
        aggregator.wait_while_it_plans(3.0)
        assert fields() == []
