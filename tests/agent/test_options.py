from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodeguard.agent.options import OptionsFile, ReportingOptions, read_options_file
from nodeguard.config.errors import ConfigError

WHOLE = """\
listen: 127.0.0.1:9434
state: /var/lib/nodeguard
checks: [/etc/nodeguard/checks.d]
aggregator:
  addresses: [https://a:8443/v1/messages, https://b:8443/v1/messages]
  token_file: /run/secrets/nodeguard/token
"""


def test_a_file_has_the_settings_of_options(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(WHOLE)
    assert read_options_file(str(tmp_path / "agent.yaml")) == OptionsFile(
        listen="127.0.0.1:9434",
        state="/var/lib/nodeguard",
        checks=("/etc/nodeguard/checks.d",),
        aggregator=ReportingOptions(
            ("https://a:8443/v1/messages", "https://b:8443/v1/messages"), "/run/secrets/nodeguard/token"
        ),
    )


def test_a_node_without_kubernetes_has_a_certificate(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(
        "aggregator: {addresses: [https://a/], certificate_file: /c, key_file: /k}\n"
    )
    assert read_options_file(str(tmp_path / "agent.yaml")).aggregator == ReportingOptions(
        ("https://a/",), certificate_file="/c", key_file="/k"
    )


def test_plain_http_on_this_machine_needs_no_credentials(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("aggregator: {addresses: ['http://127.0.0.1:8443/v1/messages']}\n")
    assert read_options_file(str(tmp_path / "agent.yaml")).aggregator == ReportingOptions(
        ("http://127.0.0.1:8443/v1/messages",)
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("listen: 1\n", "agent.yaml:1: listen"),
        ("state: /a\naggregator:\n  addresses: []\n  token_file: /t\n", "agent.yaml:3: addresses"),
        (
            "aggregator:\n  addresses:\n  - https://a/\n  - htps://b/\n",
            "agent.yaml:4: addresses[1]: has the scheme 'htps' before the host b, where https is expected: write",
        ),
        ("aggregator: {addresses: [a]}\n", "agent.yaml:1: addresses[0]: has no host: write it as https://"),
        (
            "aggregator: {addresses: [//a/]}\n",
            "agent.yaml:1: addresses[0]: has no scheme before the host a, where https is expected",
        ),
        (
            "aggregator: {addresses: [http://gpu.example/]}\n",
            "agent.yaml:1: addresses[0]: would show the token to the network: only https may be used to gpu.example",
        ),
        (
            "state: /a\naggregator: {addresses: [https://a/]}\n",
            "agent.yaml:2: token_file: is missing: set it, or certificate_file and key_file",
        ),
        (
            "aggregator:\n  addresses: [https://a/]\n  key_file: /k\n",
            "agent.yaml:1: certificate_file: is missing",
        ),
        (
            "aggregator: {addresses: [https://a/], certificate_file: /c}\n",
            "agent.yaml:1: key_file: is missing",
        ),
        (
            "aggregator:\n  addresses: [https://a/]\n  certificate_file: /c\n  key_file: /k\n  token_file: /t\n",
            "agent.yaml:5: token_file: is set beside a certificate: keep it for Kubernetes",
        ),
        ('checks: ["a\\0b"]\n', "agent.yaml:1: checks[0]: 'a\\x00b' does not fit: write text"),
        ('socket: "a\\0b"\n', "agent.yaml:1: socket: 'a\\x00b' does not fit: write text"),
        ('aggregator: {addresses: [https://a/], token_file: "\\0"}', "agent.yaml:1: token_file: "),
        ("state: [\n", "agent.yaml:"),
    ],
)
def test_an_invalid_setting_is_reported_with_its_line(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "agent.yaml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(error)):
        read_options_file(str(tmp_path / "agent.yaml"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("  addresses: https://u:secret@a/\n", "agent.yaml:2: addresses: the value does not fit: write a list"),
        ("  addresses: [{https://u:secret@a/: 1}]\n", "agent.yaml:2: addresses[0]: a mapping does not fit: write text"),
        ("  addresses: [https://u:secret@a/]\n", "agent.yaml:2: addresses[0]: must not have a user, query or fragment"),
        ("  https://u:secret@a/\n", "agent.yaml:1: aggregator: the value does not fit: write a mapping"),
        ("  https://u:secret@a/: 1\n", "agent.yaml:1: aggregator: has a key that is not known here: use one of addresses,"),
        ("  address: 1\n", "agent.yaml:2: address: is not known here: use one of addresses,"),
        (f"  addresses: [https://a/]\n  token_file: secret{'t' * 5000}\n", "agent.yaml:3: token_file: the value does not fit"),
    ],
)  # fmt: skip
def test_errors_do_not_show_aggregator_settings(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "agent.yaml").write_text(f"aggregator:\n{text}")
    with pytest.raises(ConfigError) as raised:
        read_options_file(str(tmp_path / "agent.yaml"))
    assert error in str(raised.value)
    assert "secret" not in str(raised.value)
