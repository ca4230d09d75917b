"""The plug-in without a cluster: its help, its errors, and what it gives to kubectl."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from nodeguard.cli.commands import COMMANDS
from nodeguard.cli.main import kubectl_main, main
from nodeguard.cli.plugin import pod, run
from nodeguard.cli.plugin.options import ClusterOptions
from nodeguard.cli.program import PROGRAM, as_typed
from nodeguard.cli.usage import UsageError
from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError
from tests.paths import ROOT

pytestmark = pytest.mark.slow  # imports the client of Kubernetes

LEADER = "pod/nodeguard-aggregator-6f7c9d-x2vbn"

# Writes its arguments to a file, and ends with the code or the signal that the file `end` has.
KUBECTL = """#!{python}
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
(here / "seen").write_text(json.dumps(sys.argv[1:]))
end = int((here / "end").read_text())
os.kill(os.getpid(), -end) if end < 0 else sys.exit(end)
"""


@pytest.fixture(autouse=True)
def without_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the environment after a test: the plug-in sets its program for the whole process."""
    monkeypatch.setenv(PROGRAM, "")


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of a program in place of kubectl, on a cluster with a leader."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(python=sys.executable))
    kubectl.chmod(0o755)
    (tmp_path / "end").write_text("0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SUDO_USER", "ada")

    def ask(_: ClusterOptions, query: Callable[[Any], Awaitable[str]]) -> str:
        return LEADER

    monkeypatch.setattr(pod, "ask", ask)
    return tmp_path


def given(laptop: Path) -> list[str]:
    arguments: list[str] = json.loads((laptop / "seen").read_text())
    return arguments


def test_a_command_of_the_fleet_runs_in_the_pod_of_the_leader(laptop: Path) -> None:
    assert kubectl_main(["-n", "gpu", "--context", "prod", "get", "nodes", "-o", "json"]) == 0
    assert given(laptop) == [
        *("exec", "--namespace=gpu", "--context=prod", LEADER, "--container=aggregator", "--"),
        "env", "NODEGUARD_PROGRAM=kubectl nodeguard --namespace=gpu --context=prod",
        *("nodeguard", "get", "nodes", "-o", "json", "--color=never"),
    ]  # fmt: skip


def test_hints_have_the_command_as_the_caller_types_it(
    laptop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        kubectl_main(["--context", "prod", "get", "nodes", "--frob"])
    assert capsys.readouterr().err == (
        "kubectl nodeguard --context=prod get nodes: unrecognized arguments: --frob; "
        "see kubectl nodeguard --context=prod get nodes --help\n"
    )
    assert kubectl_main(["frob"]) == 3
    assert capsys.readouterr().err == (
        "kubectl nodeguard: command 'frob' not found: see kubectl nodeguard --help\n"
    )
    # In the pod the program is in the environment.
    monkeypatch.setenv(PROGRAM, "kubectl nodeguard")
    assert main(["explain", "node", "gpu-7"]) == 3
    assert capsys.readouterr().err == (
        "kubectl nodeguard explain: a node is described, not explained: write kubectl nodeguard describe node NAME\n"
    )


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("see nodeguard status", "see kubectl nodeguard status"),
        ("see nodeguard --help", "see kubectl nodeguard --help"),
        ("nodeguard status --agent", "nodeguard status --agent"),
        ("run nodeguard check on the node", "run nodeguard check on the node"),
        ("kubectl nodeguard get nodes", "kubectl nodeguard get nodes"),
        ("nodeguard describes nodes", "nodeguard describes nodes"),
        ("nodeguard gpus detach --gpu 5", "nodeguard gpus detach --gpu 5"),
        ("nodeguard gpus detach --node a", "kubectl nodeguard gpus detach --node a"),
    ],
)
def test_only_commands_that_the_plug_in_runs_for_the_cluster_have_its_name(
    text: str, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert as_typed(text) == text
    monkeypatch.setenv(PROGRAM, "kubectl nodeguard")
    assert as_typed(text) == typed


def test_the_operator_is_the_user_of_the_laptop(laptop: Path) -> None:
    assert kubectl_main(["pause", "--reason", "a bad driver"]) == 0
    assert given(laptop)[-5:] == ["pause", "--reason", "a bad driver", "--by=ada", "--color=never"]
    assert kubectl_main(["unmark", "--by", "eve", "--", "gpu-7"]) == 0
    assert given(laptop)[-7:] == ["unmark", "--by", "eve", "--by=eve", "--color=never", "--", "gpu-7"]


@pytest.mark.parametrize(("end", "code"), [(0, 0), (1, 1), (2, 2), (3, 3), (130, 130), (-15, 143)])
def test_the_exit_code_is_that_of_the_command(laptop: Path, end: int, code: int) -> None:
    (laptop / "end").write_text(str(end))
    assert kubectl_main(["status"]) == code


def test_a_command_that_is_wrong_does_not_reach_the_cluster(
    laptop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        kubectl_main(["get", "nodez"])
    assert ended.value.code == 3
    assert "did you mean node or nodes?" in capsys.readouterr().err
    assert not (laptop / "seen").exists()


def test_without_kubectl_the_error_names_it(laptop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (laptop / "kubectl").unlink()
    assert kubectl_main(["status"]) == 3
    assert capsys.readouterr().err == (
        "kubectl nodeguard status: kubectl is not on the PATH: install it, because this command runs in a pod of the "
        "cluster\n"
    )


def test_a_command_for_the_agent_names_its_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert kubectl_main(["-n", "gpu", "gpus", "detach", "--duration", "30m"]) == 3
    error = capsys.readouterr().err
    assert "asks the agent of one machine: name its node with --on NODE, or add --node NAME" in error
    assert kubectl_main(["status", "--agent"]) == 3
    assert capsys.readouterr().err.endswith("name its node with --on NODE\n")


@pytest.mark.parametrize(
    "line",
    [
        "explain ecc",
        "check --from DIR",
        "doctor --cluster",
        "status",
        "get incidents",
        "get checks",
        "gpus attach --node gpu-7",
    ],
)
def test_a_node_for_a_command_that_asks_no_agent_is_refused(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kubectl_main(["--on", "gpu-7", *line.split()]) == 3
    assert "--on is for commands on a node: check, doctor, " in capsys.readouterr().err


def test_a_command_for_the_agent_runs_in_its_pod(laptop: Path) -> None:
    assert kubectl_main(["--on", "gpu-7", "status", "--agent", "--values"]) == 0
    assert given(laptop)[-5:] == ["nodeguard", "status", "--agent", "--values", "--color=never"]
    assert "--container=agent" in given(laptop)
    assert kubectl_main(["clear", "--on", "gpu-7", "gpu-lost", "node"]) == 0
    assert given(laptop)[-5:] == ["clear", "gpu-lost", "node", "--by=ada", "--color=never"]


def test_a_command_that_reads_a_node_gets_the_root_that_the_chart_mounts(laptop: Path) -> None:
    for line in ("check gpu-lost", "doctor"):
        assert kubectl_main(["--on", "gpu-7", *line.split()]) == 0
        command = [*line.split(), "--root=/host", "--color=never"]
        assert given(laptop)[-len(command) :] == command
    assert kubectl_main(["--on", "gpu-7", "doctor", "--root", "/other"]) == 0
    assert given(laptop)[-4:] == ["doctor", "--root", "/other", "--color=never"]
    manifest = (ROOT / "daemonset" / "agent.yaml").read_text()
    assert "name: root\n              mountPath: /host\n" in manifest


@pytest.mark.parametrize("words", [["--help"], ["help"], ["-n", "gpu", "-h"], []])
def test_the_help_has_its_options_and_all_commands(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert kubectl_main(words) == (0 if words else 3)
    text = capsys.readouterr().out
    assert text.startswith("usage: kubectl nodeguard [OPTION]… COMMAND")
    assert all(f"\n  {command.name} " in text for command in COMMANDS)


def test_other_commands_run_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert kubectl_main(["--context", "prod", "version"]) == 0
    assert capsys.readouterr().out.startswith("nodeguard 0.1.0")
    assert kubectl_main(["get", "checks", "-o", "name", "gpu-lost"]) == 0
    assert capsys.readouterr().out == "check/gpu-lost\n"


@pytest.mark.parametrize("line", ["doctor --cluster --as ada", "--as ada unmark --all --without-aggregator"])
def test_a_command_that_cannot_impersonate_refuses_to_act_as_its_caller(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kubectl_main(line.split()) == 3
    assert "with your rights here: leave --as and --as-group out" in capsys.readouterr().err


def test_a_cluster_that_is_not_reached_is_an_error_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "")
    assert kubectl_main(["--kubeconfig", str(tmp_path / "none"), "get", "incidents"]) == 3
    error = capsys.readouterr().err
    assert error.startswith(f"kubectl nodeguard: the cluster cannot be read: {tmp_path}/none: No such file")


class Server:
    """Answers the requests of the plug-in. holder: of the Lease, None for no Lease. objects: others that exist. ready:
    number of pods of a Deployment.
    """

    def __init__(
        self, holder: str | None, objects: tuple[str, ...] = (), *, allowed: bool = True, ready: int = 0
    ) -> None:
        self._holder, self._objects, self._allowed, self._ready = holder, objects, allowed, ready

    async def request(self, method: str, path: str, **_: object) -> bytes:
        if method == "POST":
            return json.dumps({"status": {"allowed": self._allowed}}).encode()
        name = path.rpartition("/")[2]
        if "/leases/" in path and self._holder is not None:
            return json.dumps({**_OBJECT, "spec": {"holderIdentity": self._holder}}).encode()
        if name in self._objects and "/leases/" not in path:
            status = {"readyReplicas": self._ready} if self._ready else {}
            return json.dumps({**_OBJECT, "status": status}).encode()
        raise ApiError(404, "NotFound", "not found")


_OBJECT = {"metadata": {"name": "x", "uid": "u", "resourceVersion": "1"}}


def found(server: Server) -> str:
    return asyncio.run(pod.find_pod(ClusterOptions("gpu"), cast("ApiClient", server)))


@pytest.mark.parametrize(
    ("holder", "expected"),
    [
        ("leader-1_0a1b2c3d", "pod/leader-1"),
        ("gone-1_0a1b2c3d", "deployment/nodeguard-aggregator"),
        ("", "deployment/nodeguard-aggregator"),
        ("--all_0a1b2c3d", "deployment/nodeguard-aggregator"),
        ("../../nodes/leader-1_0a1b2c3d", "deployment/nodeguard-aggregator"),
    ],
)
def test_the_lease_names_the_pod(holder: str, expected: str) -> None:
    assert found(Server(holder, ("leader-1",))) == expected


def test_the_pod_of_an_agent_is_found_by_its_node() -> None:
    class Pods:
        """Answers that pods exist on one node."""

        async def request(self, method: str, path: str, **_: object) -> bytes:
            if method == "POST":
                return json.dumps({"status": {"allowed": True}}).encode()
            on_node = path.startswith("/api/v1/namespaces/gpu/pods?") and "nodeName%3Dgpu-7%2C" in path
            pods = [{"metadata": {"name": "nodeguard-agent-x2vbn", "uid": "u", "resourceVersion": "1"}}]
            items = pods if on_node else []
            return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()

    client = cast("ApiClient", Pods())
    found_pod = asyncio.run(pod.find_agent(ClusterOptions("gpu", node="gpu-7"), client))
    assert found_pod == "pod/nodeguard-agent-x2vbn"
    with pytest.raises(UsageError, match="no agent runs on a node 'gpu-8': kubectl get pods -n gpu -l"):
        asyncio.run(pod.find_agent(ClusterOptions("gpu", node="gpu-8"), client))


def test_a_namespace_without_an_aggregator_is_named() -> None:
    with pytest.raises(UsageError, match="no aggregator in the namespace gpu: name its namespace with -n"):
        found(Server(None))


def test_an_aggregator_that_has_not_started_yet_is_not_called_missing() -> None:
    with pytest.raises(UsageError, match=r"no aggregator has started yet .* kubectl describe pods -n gpu -l"):
        found(Server(None, ("nodeguard-aggregator",)))


def test_an_aggregator_that_is_ready_answers_before_there_is_a_leader() -> None:
    assert found(Server(None, ("nodeguard-aggregator",), ready=1)) == "deployment/nodeguard-aggregator"


def test_a_missing_right_names_the_role() -> None:
    with pytest.raises(UsageError, match=r"no right to run commands in pods .* the Role nodeguard-admin"):
        found(Server("leader-1_0a1b2c3d", allowed=False))


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (
            "-n gpu --context=c --kubeconfig f doctor --cluster",
            "doctor --cluster --kubeconfig=f --context=c --namespace=gpu",
        ),
        ("unmark --all --without-aggregator --context c", "unmark --all --without-aggregator --context=c"),
        ("--context c explain ecc", "explain ecc"),
    ],
)
def test_commands_that_read_the_cluster_here_get_its_options(
    line: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = list[Sequence[str]]()
    monkeypatch.setenv("POD_NAMESPACE", "")

    def run_command(words: Sequence[str]) -> int:
        commands.append(words)
        return 0

    monkeypatch.setattr(run, "run_command", run_command)
    assert kubectl_main(line.split()) == 0
    assert commands == [command.split()]
