"""What the engineer on call reads of a faulty GPU and a faulty leaf switch, on a real control plane."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.controlplane.cluster import Cluster
from tests.docs.pages import yaml_blocks
from tests.e2e.monitoring import Monitoring
from tests.e2e.test_forged_nodes import DOWN, LOST, running
from tests.e2e.test_standalone import COMMAND
from tests.paths import ROOT
from tests.webhooks import WebhookReceiver

pytestmark = [pytest.mark.slow, pytest.mark.promtool]

PAGE = "docs/install/prometheus.md"
RULES = ROOT / "daemonset" / "alerts" / "aggregator.yaml"
NODE, DOMAIN = "gpu-020", "fabric/l0"
IN_POD = "kubectl exec -n nodeguard deploy/nodeguard-aggregator -- "


def test_a_message_has_what_failed_what_it_costs_and_what_to_do(
    controlplane: Cluster, tmp_path: Path
) -> None:
    receiver = WebhookReceiver()
    [settings] = (block["receivers"][0] for block in yaml_blocks(PAGE) if "receivers" in block)
    [slack] = settings["slack_configs"]
    del slack["api_url_file"]
    slack["api_url"] = receiver.url

    def messages() -> dict[str, str]:
        texts = (body["attachments"][0]["text"] for body in receiver.bodies)
        return {text.partition(" is ")[0]: text for text in texts}

    with receiver.serving(), running(controlplane, size=40, leaf=8) as scene:
        job = {
            "job_name": "nodeguard-aggregator",
            "static_configs": [{"targets": [scene.aggregator.metrics]}],
        }
        alerts = ["NodeguardIncident"]
        monitoring = Monitoring(tmp_path, [job], [RULES], receiver, alerts, settings=settings)
        with monitoring.running():
            scene.agents.set_reports({**dict.fromkeys(scene.leaf, DOWN), NODE: LOST})
            scene.aggregator.until(lambda: messages().keys() == {NODE, DOMAIN})
        of_node, of_domain = messages()[NODE].splitlines(), messages()[DOMAIN].splitlines()
        assert of_node[0] == f"{NODE} is unhealthy (fatal): GPU 0000:1b:00 has gpu-lost; to do: reset gpu"
        assert of_node[1].startswith(f"New work is kept off node {NODE}. ")
        assert of_domain[0] == f"{DOMAIN} is degraded (link-down); the network team acts"
        assert of_domain[1].startswith(
            f"New gang work is kept off 8 nodes of {DOMAIN}. Its nodes need no repair. "
        )
        for message, advice in ((of_node, "reset the GPU"), (of_domain, "The network team acts")):
            assert message[2].endswith("alerts.md#nodeguardincident")
            [name] = re.findall(f"{IN_POD}nodeguard describe incident (\\S+) ", message[1])
            command = (*COMMAND, "describe", "incident", name, "--socket", str(scene.aggregator.socket))
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert advice.lower() in printed.lower()
        described = {name: controlplane.kubectl("describe", "node", name) for name in (NODE, scene.leaf[0])}
    assert f"new work is kept off node {NODE}; to do: reset the GPU (" in described[NODE]
    assert "The node needs no repair for it: the network team acts." in described[scene.leaf[0]]
