"""The notification file: valid settings, and errors with file, line, field and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeguard.aggregator.certificates.issue import issue_authority
from nodeguard.aggregator.notifications.settings import (
    PAGERDUTY_URL,
    MarkWebhook,
    Webhook,
    read_notifications,
)
from nodeguard.config.errors import ConfigError
from nodeguard.executors.owners import OwnedNodes
from nodeguard.model.finding import Health


def read(directory: Path, text: str) -> tuple[Webhook, ...]:
    file = directory / "notifications.yaml"
    file.write_text(text)
    return read_notifications(file).webhooks


def test_secrets_are_read_from_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://hooks.example/T1/B2/secret\n")
    (tmp_path / "key").write_text("whsec_aGVsbG8=\n")
    (tmp_path / "routing").write_text("R123\n")
    slack, pager = read(
        tmp_path,
        "webhooks:\n- {name: chat, format: slack, urlFile: url, secretFile: key, minHealth: warning}\n"
        "- {name: pager, format: pagerduty, routingKeyFile: routing}\n",
    )
    expected = ("https://hooks.example/T1/B2/secret", b"whsec_aGVsbG8=", Health.WARNING)
    assert (slack.url, slack.secret, slack.min_health) == expected
    assert (pager.url, pager.routing_key, pager.min_health) == (PAGERDUTY_URL, "R123", Health.SUSPECT)


def test_the_authorities_of_a_receiver_are_read(tmp_path: Path) -> None:
    certificate = issue_authority(0.0).certificate
    (tmp_path / "ca.crt").write_text(certificate)
    internal, public = read(
        tmp_path,
        "webhooks:\n- {name: a, url: 'https://a.example', caFile: ca.crt}\n- {name: b, url: 'https://b.example'}\n",
    )
    assert (internal.ca, public.ca) == (certificate, "")


def test_a_receiver_of_marks_has_a_key_and_authorities(tmp_path: Path) -> None:
    certificate = issue_authority(0.0).certificate
    (tmp_path / "ca.crt").write_text(certificate)
    (tmp_path / "key").write_text("secret\n")
    file = tmp_path / "notifications.yaml"
    file.write_text(
        "markWebhooks:\n- {name: slurm, url: 'https://a.example', secretFile: key, caFile: ca.crt}\n"
    )
    settings = read_notifications(file)
    assert settings.webhooks == ()
    assert settings.mark_webhooks == (MarkWebhook("slurm", "https://a.example", b"secret", certificate),)


def test_a_receiver_of_marks_can_own_nodes(tmp_path: Path) -> None:
    file = tmp_path / "notifications.yaml"
    url = "url: 'https://a.example'"
    file.write_text(
        f"markWebhooks:\n- {{name: slurm, {url}, owns: {{labels: {{pool: slurm}}, node: 'gpu-*'}}}}\n"
        f"- {{name: rest, {url}, owns: {{}}}}\n- {{name: mirror, {url}}}\n"
    )
    settings = read_notifications(file)
    expected = [OwnedNodes("gpu-*", {"pool": "slurm"}), OwnedNodes(), None]
    assert [webhook.owns for webhook in settings.mark_webhooks] == expected
    owners = settings.owners()
    assert owners.owner("gpu-1", {"pool": "slurm"}) == "slurm"
    assert owners.owner("gpu-1", {}) == "rest"
    assert [owners.is_owner(name) for name in ("slurm", "rest", "mirror")] == [True, True, False]


def test_the_spool_is_beside_the_file_as_the_secrets_are(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    file = tmp_path / "notifications.yaml"
    file.write_text(
        "spoolDirectory: spool\nwebhooks:\n- {name: a, url: 'https://bücher.example/a%20b?c#d'}\n"
    )
    assert read_notifications(file).spool_directory == tmp_path / "spool"


def test_without_kubernetes_a_receiver_owns_all_nodes_or_none(tmp_path: Path) -> None:
    file = tmp_path / "notifications.yaml"
    text = "markWebhooks:\n- name: slurm\n  url: 'https://a.example'\n  owns: {}\n"
    file.write_text(text)
    assert read_notifications(file, standalone=True).owners().owner("any", {}) == "slurm"
    file.write_text(text.replace("{}", "{node: 'gpu-*'}"))
    with pytest.raises(ConfigError, match=r"yaml:4: owns: .*write owns: \{\}"):
        read_notifications(file, standalone=True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("webhooks: []\n", "webhooks"),
        (
            "webhooks:\n- {name: a, url: 'http://hooks.example/x'}\n",
            "neither https:// nor http:// on loopback",
        ),
        ("webhooks:\n- {name: a, url: 'ftp://hooks.example/x'}\n", "use an address with https://"),
        ("webhooks:\n- {name: a, url: 'https://[/x'}\n", "is no URL: "),
        ("webhooks:\n- {name: a}\n", "set url, or urlFile"),
        ("webhooks:\n- {name: a, url: 'https://a.example', urlFile: url}\n", "exclude each other"),
        ("webhooks:\n- {name: a, urlFile: missing}\n", "missing cannot be read: No such file or directory"),
        ("webhooks:\n- {name: a, format: pagerduty}\n", "routingKeyFile"),
        ("webhooks:\n- {name: a, url: 'https://a.example', routingKeyFile: url}\n", "routingKeyFile"),
        ("webhooks:\n- {name: a, urlFile: empty}\n", "does not have exactly one line"),
        ("webhooks:\n- {name: a, url: 'https://a.example', caFile: url}\n", "has no usable certificates"),
        ("webhooks:\n- {name: a, url: 'https://a.example', caFile: nothing}\n", "has no usable certificates"),
        ("webhooks:\n- {name: a, url: 'https://a.example', caFile: binary}\n", "in PEM"),
        ("webhooks:\n- {name: a, url: 'https://a.example', caFile: missing}\n", "missing cannot be read"),
        (
            "webhooks:\n- {name: a, url: 'https://a.example'}\n- {name: a, url: 'https://b.example'}\n",
            "used twice",
        ),
        (
            "webhooks:\n- {name: a, url: 'https://a.example'}\nmarkWebhooks:\n- {name: a, url: 'https://b.example'}\n",
            "yaml:4: name: 'a' is used twice",
        ),
        ("markWebhooks:\n- {name: a}\n", "set url, or urlFile"),
        ("markWebhooks:\n- {name: a, url: 'https://a.example', format: slack}\n", "format"),
        ("webhooks:\n- {name: a, url: 'https://a.example', colour: red}\n", "colour"),
        (
            "webhooks:\n- {name: a, url: 'https://a.example'}\nspoolDirectory: /nowhere\n",
            "/nowhere is not a directory",
        ),
        ("webhooks:\n- {name: a, urlFile: latin}\n", "latin is no UTF-8: save the file as UTF-8"),
        ("webhooks:\n- {name: a, url: 'https://a.example', secretFile: latin}\n", "secretFile: "),
        ("webhooks:\n- {name: a, format: pagerduty, routingKeyFile: latin}\n", "routingKeyFile: "),
        ("webhooks:\n- {name: a, url: 'https://a.example', secretFile: damaged}\n", "no Base64 after whsec_"),
        ("webhooks:\n- {name: a, url: 'https://a.example', secretFile: cut}\n", "no Base64 after whsec_"),
        ('webhooks:\n- {name: a, urlFile: "a\\0b"}\n', "cannot be read: "),
        ("webhooks:\n- {name: a, url: 'https://a .example'}\n", "is no URL: "),
        ('webhooks:\n- {name: a, url: "https://a.example/\\nb"}\n', "is no URL: "),
        ("webhooks:\n- {name: a, url: 'https://a..example/'}\n", "is no URL: "),
        (f"webhooks:\n- {{name: a, url: 'https://{'a' * 64}.example/'}}\n", "is no URL: "),
        ("webhooks:\n- {name: a, url: 'https://a.example\\@b/'}\n", "is no URL: "),
    ],
)
def test_errors_name_file_line_and_field(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "url").write_text("https://a.example\n")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "nothing").write_text("")
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "latin").write_bytes("https://schlüssel.example".encode("latin-1"))
    (tmp_path / "damaged").write_text("whsec_!!!\n")
    (tmp_path / "cut").write_text("whsec_\n")
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/notifications.yaml:")
    assert problem in str(caught.value)
