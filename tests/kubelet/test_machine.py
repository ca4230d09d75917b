"""What a machine lacks for pods is named with the remedy."""

from __future__ import annotations

import os

import pytest

from tests.kubelet.machine import main, missing_for_pods


def test_without_root_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert missing_for_pods() == [
        "pods, and tests with the mark root, need root: run the tests as root, in a container or a virtual machine"
    ]


def test_a_machine_that_cannot_run_pods_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    main()
    assert capsys.readouterr().out == (
        "NOT RUN: the tests with images and pods (make test-pods). This machine cannot run pods:\n"
        "  - pods, and tests with the mark root, need root: run the tests as root, in a container or a virtual machine\n"
    )
