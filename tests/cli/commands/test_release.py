"""Letting go of the GPUs, and what a person says that is over, asked of a real agent."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.bundles import bundle_path
from nodeguard.cli.local_agent import request
from nodeguard.cli.main import main
from nodeguard.cli.usage import UsageError
from nodeguard.wire.instruction import DetachGpus
from tests.cli.commands.test_agent import page, running
from tests.waiting import until


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """An agent's socket, and where its pages are."""
    path = str(tmp_path_factory.mktemp("run") / "agent.sock")
    with running("--from", str(bundle_path("healthy-dgx-h100")), "--socket", path) as (_, where):
        page(f"{where}/readyz")
        yield path, where


def knowledge(where: str) -> str:
    found = re.search(r'nodeguard_node_data_status\{data_status="([a-z-]+)"\} 1', page(f"{where}/metrics"))
    assert found is not None
    return found[1]


def wait_for(where: str, word: str) -> None:
    until(lambda: knowledge(where) == word, lambda: f"it is not {word}", every=0.02)


def test_gpus_are_let_go_of_and_taken_back(
    agent: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, where = agent
    for words, said in (
        (["--duration", "30m"], "The agent is detached from all GPUs until 2"),
        (["-d", "30m", "--gpu", "1B:00"], "The agent is detached from gpu/0000:1b:00 until 2"),
    ):
        assert main(["gpus", "detach", "--socket", path, *words]) == 0
        assert said in capsys.readouterr().out
        wait_for(where, "not-applicable")
        assert "nodeguard_finding{" not in page(f"{where}/metrics")
    assert main(["gpus", "attach", "--socket", path]) == 0
    wait_for(where, "fresh")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--duration", "2d"], "GPUs are detached for a day at most: repeat the command then"),
        (
            ["--duration", "1m", "--gpu", "99:00"],
            "gpu/0000:99:00 is not a GPU of this node; there is gpu/0000:",
        ),
        (["--duration", "1m", "--gpu", "x" * 300], "is not a PCI address: write it like 0000:3b:00"),
    ],
)
def test_what_cannot_be_released_is_refused(
    agent: tuple[str, str], words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gpus", "detach", "--socket", agent[0], *words]) == 3
    assert said in capsys.readouterr().err


def test_without_an_agent_the_socket_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "agent.sock")
    for words in (["gpus", "detach", "-d", "1m"], ["clear", "a", "node"]):
        assert main([*words, "--socket", path]) == 3
        assert f"no agent answers at {path}" in capsys.readouterr().err


def test_what_was_not_answered_may_happen_still(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.sock")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        with pytest.raises(UsageError, match=r"no answer within 0\.05 s; the agent may still carry it out"):
            request(path, DetachGpus("1", 60.0), 0.05)


@pytest.mark.parametrize(
    "words", [["clear", "\udcff", "node"], ["clear", "gpu-lost", "node", "--by", "\udcff"]]
)
def test_words_that_are_no_text_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--socket", "/nowhere"]) == 3
    assert "is not UTF-8: write it again" in capsys.readouterr().err
