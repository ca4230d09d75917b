"""A backup and its restoration, with the commands of the page."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.certificates import Authority
from tests.controlplane.cluster import Cluster
from tests.docs.pages import printed_lines
from tests.e2e import scene
from tests.e2e.operator import Operator
from tests.e2e.processes import until
from tests.e2e.test_standalone import XID, Site, certificate_settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("jq") and shutil.which("sqlite3")), reason="the page needs jq and sqlite3"
    ),
]

PAGE = "docs/tasks/back-up.md"
DIRECTORY = "/var/lib/nodeguard-aggregator"
NODE = "gpu-7"
[COPY] = (line for line in printed_lines(PAGE) if line.startswith("kubectl exec"))
[SAVE] = (line for line in printed_lines(PAGE) if line.startswith("kubectl get nodeincidents -o json"))


def test_a_directory_without_kubernetes_is_restored(tmp_path: Path) -> None:
    site = Site(tmp_path)
    state = tmp_path / "state"
    operator = Operator(Path("/dev/null"), str, tmp_path, {DIRECTORY: str(state)})
    authority = Authority(tmp_path)
    options = (
        *("--client-ca", str(authority.certificate), "--cert-host", "localhost"),
        *("--history", str(state)),
    )

    def changes() -> list[str]:
        return [entry["change"] for entry in site.query("history", NODE).get("entries", ())]

    def authority_file() -> str:
        return (state / "ca.crt").read_text() if (state / "ca.crt").exists() else ""

    with ExitStack() as stack:
        with site.aggregator(*options):
            bundle = stack.enter_context(site.node(NODE, certificate_settings(site, authority, NODE)))
            site.wait_for_reports(1)
            with (bundle / "kmsg").open("a") as kernel:
                kernel.write(XID)
            until(lambda: site.states() == {NODE: "Advised"}, site.log)
            site.run("pause", "--reason", "row 4 is rewired")
            site.run("incidents", "acknowledge", NODE, "--by", "ada")
            until(lambda: "opened" in changes(), site.log)
            operator.run(PAGE, "install -d -m 700 backup")
            operator.run(PAGE, f"cp -a {DIRECTORY}/*.json backup")
            operator.run(PAGE, f'sqlite3 {DIRECTORY}/history.sqlite ".backup backup/history.sqlite"')
            # What comes later is lost.
            site.run("resume")
        certificate = authority_file()
        shutil.rmtree(state)
        with site.aggregator(*options):
            until(lambda: authority_file() not in {"", certificate}, site.log)
        operator.run(PAGE, f"install -d -m 700 {DIRECTORY}")
        operator.run(PAGE, f"rm -f {DIRECTORY}/history.sqlite-*")
        operator.run(PAGE, f"cp backup/* {DIRECTORY}")
        operator.run(PAGE, f"chown --reference={DIRECTORY} {DIRECTORY}/*")
        with site.aggregator(*options):
            until(lambda: certificate in authority_file(), site.log)
            site.wait_for_reports(1)
            assert "row 4 is rewired" in site.query("status")["paused"]
            [incident] = site.query("get", "incidents")["incidents"]
            assert incident["acknowledged"] == "ada"
            # The history goes on in the restored file.
            site.run("incidents", "clear", NODE)
            until(lambda: {"opened", "resolved"} <= set(changes()), site.log)
            assert site.query("status")["history_problem"] == ""


def test_decisions_on_incidents_are_restored(controlplane: Cluster, tmp_path: Path) -> None:
    operator = Operator(controlplane.kubeconfig, str, tmp_path, {})

    def spec() -> Any:
        incidents = scene.incidents(controlplane, NODE)
        return incidents[0].get("spec", {}) if incidents else None

    with scene.running_fleet(controlplane, scene.ENFORCED, NODE) as fleet:
        [aggregator], agent = fleet.aggregators, fleet.agents[NODE]
        scene.inject_gpu_fault(agent)
        agent.until(lambda: scene.has_incident_state(controlplane, NODE, "Marked"))
        [incident] = scene.incidents(controlplane, NODE)
        statement = {"by": "ada", "at": "2027-01-15T08:00:00Z", "reason": "a bad sensor"}
        decided = {"acknowledged": "ada", "falseAlarm": statement}
        agent.suspend()  # it would carry the clear out
        patch = json.dumps({"spec": {**decided, "clear": {"by": "ada"}}})
        name = incident["metadata"]["name"]
        controlplane.kubectl("patch", "nodeincident", name, "--type=merge", "-p", patch)
        operator.run(PAGE, SAVE)
        controlplane.kubectl("delete", "nodeincident", name)
        aggregator.until(lambda: spec() == {})
        operator.run(PAGE, "kubectl apply --server-side --force-conflicts -f - < incidents.json")
        assert spec() == decided
        view = f"/v1/incidents/{name}"
        aggregator.until(lambda: aggregator.query(view).get("acknowledged") == "ada")
        assert aggregator.query(view)["false_alarm"]["by"] == "ada"
        agent.resume()
        assert scene.is_marked(controlplane, NODE)
        history = str(aggregator.directory / "history.sqlite")
        in_pod = {"kubectl exec -n nodeguard POD --": "", "/var/lib/nodeguard/history.sqlite": history}

        def is_in_copy() -> bool:
            operator.run(PAGE, COPY, in_pod)
            return "gpu-gsp-failure" in operator.run(PAGE, "nodeguard report history-a.sqlite")

        aggregator.until(is_in_copy)
