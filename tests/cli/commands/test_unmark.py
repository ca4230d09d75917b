"""`nodeguard unmark --without-aggregator`; tests/daemonset/test_release.py runs it in a cluster."""

from __future__ import annotations

import pytest

from nodeguard.cli.main import main


def test_it_needs_a_confirmation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unmark", "--all", "--without-aggregator"]) == 3
    assert "--without-aggregator removes all marks at once: add --yes" in capsys.readouterr().err


def test_an_empty_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unmark", "gpu-7", ""]) == 3
    assert "the name of a node is empty" in capsys.readouterr().err


@pytest.mark.slow  # imports the client of Kubernetes
def test_it_needs_access_to_a_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    assert main(["unmark", "--all", "--yes", "--without-aggregator"]) == 3
    expected = "marks may be left: /nowhere/kubeconfig: No such file or directory; run inside a pod with"
    assert expected in capsys.readouterr().err
    named = ["--kubeconfig", "/nowhere/other"]
    assert main(["unmark", "--all", "--yes", "--without-aggregator", *named]) == 3
    assert "marks may be left: /nowhere/other: No such file" in capsys.readouterr().err
    template = ["-o", "jsonpath={.nope}"]
    assert main(["unmark", "--all", "--yes", "--without-aggregator", *template]) == 3
    assert "unmark: the output has no field 'nope': its fields are message" in capsys.readouterr().err
    assert main(["unmark", "--all", "--yes", "--context", "other"]) == 3
    assert "--context is for --without-aggregator only: add" in capsys.readouterr().err
