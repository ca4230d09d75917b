from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nodeguard.agent.options import AggregatorOptions
from nodeguard.agent.reporting.delivery_state import DeliveryQueue
from nodeguard.cli.receivers import senders
from nodeguard.cli.usage import UsageError
from tests.agent.reporting.receiver import TLS


def refused(address: str, ca_file: str) -> str:
    with pytest.raises(UsageError) as found:
        senders("agent.yaml", AggregatorOptions((address,), "/none", ca_file), DeliveryQueue(), print)
    return str(found.value)


def test_what_can_be_known_at_the_start_is_refused_there(tmp_path: Path) -> None:
    missing, empty = str(tmp_path / "none.pem"), tmp_path / "empty.pem"
    empty.write_text("")
    assert refused("https://a/", missing).startswith(
        f"agent.yaml: aggregator.ca_file: {missing}: No such file"
    )
    assert refused("https://a/", str(empty)).startswith(
        f"agent.yaml: aggregator.ca_file: {empty} holds no cert"
    )
    said = refused("https://u:secret@a/", str(TLS / "ca.pem"))
    assert said.startswith("agent.yaml: aggregator.addresses: ")
    assert "secret" not in said


def test_each_address_is_told() -> None:
    both = AggregatorOptions(("https://a/", "https://b/"), "/none")
    assert list(senders("agent.yaml", both, DeliveryQueue(), print).heard()) == ["https://a", "https://b"]


def test_http_is_imported_where_somebody_is_told_alone() -> None:
    code = "import sys, nodeguard.cli.commands.agent; print({'http.client', 'email'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said == "set()\n"
