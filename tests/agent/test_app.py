from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nodeguard.agent.app import endpoint_pool
from nodeguard.agent.options import ReportingOptions
from nodeguard.agent.reporting.delivery_queue import DeliveryQueue
from nodeguard.model.failure import UserError


def refused(address: str, ca_file: str) -> str:
    with pytest.raises(UserError) as error:
        endpoint_pool("agent.yaml", ReportingOptions((address,), "/none", ca_file), DeliveryQueue())
    return str(error.value)


def test_invalid_options_are_refused_at_the_start(tmp_path: Path) -> None:
    missing, empty = str(tmp_path / "none.pem"), tmp_path / "empty.pem"
    empty.write_text("")
    assert refused("https://a/", missing).startswith(
        f"agent.yaml: aggregator.ca_file: {missing}: No such file"
    )
    assert refused("https://a/", str(empty)).startswith(
        f"agent.yaml: aggregator.ca_file: {empty} holds no cert"
    )


def test_each_address_is_an_endpoint() -> None:
    both = ReportingOptions(("https://a/", "https://b/"), "/none")
    assert list(endpoint_pool("agent.yaml", both, DeliveryQueue()).acked_at()) == ["https://a", "https://b"]


def test_the_agent_imports_no_http_client_but_h11() -> None:
    code = "import sys, nodeguard.cli.commands.agent; print({'http.client', 'email'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output == "set()\n"


def test_the_agent_imports_nothing_of_the_fleet() -> None:
    code = (
        "import sys, nodeguard.cli.commands.agent;"
        "print([name for name in sys.modules if name.startswith(('nodeguard.fleet.', 'nodeguard.fleet_api.schema'))])"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output == "[]\n"
