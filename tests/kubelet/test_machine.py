"""What a machine lacks for pods is named with the remedy."""

from __future__ import annotations

import os

import pytest

from tests.kubelet.machine import missing_for_pods


def test_without_root_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert missing_for_pods() == [
        "pods need root: run the tests as root, in a container or a virtual machine"
    ]
