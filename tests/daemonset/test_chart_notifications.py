"""The notification file of the chart, as the aggregator reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeguard.aggregator.notifications.settings import read_notifications
from tests.cli.parsed_options import aggregator_options
from tests.daemonset.chart_values import VALUES, pod_container, workloads
from tests.daemonset.helm import Helm, pick
from tests.daemonset.manifests import AGGREGATOR

pytestmark = pytest.mark.slow


def test_the_notification_file_is_beside_its_secrets(helm: Helm, tmp_path: Path) -> None:
    rendered = helm.template(VALUES["settings"])
    _, aggregator = workloads(rendered)
    container = pod_container(aggregator)
    file = aggregator_options(container["args"][1:]).notifications
    assert file is not None
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "notifications"]
    [volume] = [volume for volume in aggregator["spec"]["volumes"] if volume["name"] == "notifications"]
    text, secret = volume["projected"]["sources"]
    assert (Path(mount["mountPath"]), secret) == (file.parent, {"secret": {"name": "webhooks"}})
    (tmp_path / "slack-url").write_text("https://hooks.example/T0KEN\n")
    (tmp_path / file.name).write_text(
        pick(rendered, "ConfigMap", text["configMap"]["name"])["data"][file.name]
    )
    [webhook] = read_notifications(tmp_path / file.name).webhooks
    assert (webhook.name, webhook.url) == ("chat", "https://hooks.example/T0KEN")
    egress = pick(rendered, "NetworkPolicy", AGGREGATOR)["spec"]["egress"]
    assert {"port": 443} in [port for rule in egress for port in rule["ports"]]
    assert "notifications" not in json.dumps(helm.template())
