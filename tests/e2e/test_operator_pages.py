"""The tasks of an operator of a cluster, with the commands of their pages, on a real API server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cluster import Cluster
from tests.docs.pages import blocks, example
from tests.e2e import scene
from tests.e2e.fleet import Fleet
from tests.e2e.operator import Operator
from tests.e2e.scene import running_fleet
from tests.waiting import until

pytestmark = pytest.mark.slow

# A drain needs a kubelet: tests/e2e/test_pods.py runs it.
ENFORCE, HOLD, RETURN = (
    f"docs/tasks/{name}.md" for name in ("enforce-the-first-check", "pause-hold-unmark", "return-a-node")
)
DRAIN = "docs/tasks/drain-a-node.md"
REPORT = "docs/tasks/report-availability.md"
READ, CHANGED, REPLACE, RESET = (
    f"docs/tasks/{name}.md"
    for name in ("read-the-fleet", "what-changed", "replace-the-authority", "reset-a-gpu")
)
RUNBOOK, RUNBOOKS = "docs/runbooks/node-quarantined.md", "docs/runbooks/alerts.md"
INSTALL, INCIDENTS = "docs/install/kubernetes.md", "docs/reference/kubernetes-api.md"
DOMAINS, NEIGHBOURS, FILL = (
    f"docs/concepts/{name}.md" for name in ("failure-domains", "neighbours", "gangs")
)

# The node of the pages, and a machine that loses the GPU of the pages 55 s after its start.
NODE, RECORDING = "gpu-7", "gpu-off-bus"

# Appended to the policy of the page: the waits of a fleet take minutes.
FAST = "gracePeriod: {quarantine: 1s}\nsoak: {initial: 1s}\n"

DESCRIBE, DESCRIBE_NODE = f"nodeguard describe node {NODE}", f"kubectl describe node {NODE}"

# No kubelet runs a pod here: commands of nodeguard ask the aggregator of this machine.
NAMES = {"kubectl exec -i -n nodeguard deploy/nodeguard-aggregator --": ""}


@pytest.fixture
def fleet(controlplane: Cluster) -> Iterator[Fleet]:
    with running_fleet(
        controlplane, "defaultMode: observe\n", NODE, "gpu-8", bundles={NODE: RECORDING}
    ) as running:
        yield running


@pytest.fixture
def operator(fleet: Fleet, tmp_path: Path) -> Operator:
    return _operator(fleet, tmp_path)


def _operator(fleet: Fleet, tmp_path: Path) -> Operator:
    [aggregator] = fleet.aggregators
    log = fleet.cluster.processes.log(aggregator.name)
    sockets = {"NODEGUARD_AGGREGATOR_SOCKET": str(aggregator.socket)}
    return Operator(fleet.cluster.kubeconfig, log.read_text, tmp_path, NAMES, sockets)


def shown(text: str) -> str:
    """Return a text in one line, without the hash of an incident and the sizes of the catalogue."""
    line = re.sub(r"-[0-9a-f]{8}\b", "-HASH", " ".join(text.split()))
    return re.sub(r"\d+ (fatal|suspect) checks", r"N \1 checks", line)


# What the pages print before a message of `kubectl describe`, without the columns of times.
_COLUMNS = re.compile(r"^Warning Nodeguard\w+ ")


def until_shown(operator: Operator, command: str, printed: str, page: str = ENFORCE) -> None:
    """Wait until a command of the page shows what the page prints."""
    message = _COLUMNS.sub("", shown(printed))
    output = ""

    def is_shown() -> bool:
        nonlocal output
        output = operator.run(page, command)
        return message in shown(output)

    until(is_shown, lambda: f"'{message}' is not in:\n{output}", every=0.3)


def test_the_first_check_is_enforced_paused_held_and_released(fleet: Fleet, operator: Operator) -> None:
    see_the_dry_run(fleet, operator)
    enforce(fleet, operator)
    pause(fleet, operator)
    hold_and_unmark(fleet, operator)
    return_the_node(fleet, operator)
    replace_the_authority(fleet, operator)


def see_the_dry_run(fleet: Fleet, operator: Operator) -> None:
    # The agent replays a minute before the fault: a command in a loop would cost more than all of this test.
    agent = fleet.agents[NODE]
    agent.until(lambda: 'check="gpu-lost"' in agent.get("/metrics"))
    until_shown(operator, DESCRIBE_NODE, example(ENFORCE, "Warning  NodeguardDryRun"))
    assert "1 node would be quarantined" in shown(operator.run(ENFORCE, "nodeguard status"))
    assert "dry run" in operator.run(ENFORCE, "nodeguard get incidents --check gpu-lost --all")
    assert "would be quarantined: gpu-lost" in operator.run(ENFORCE, DESCRIBE)
    assert scene.taints(fleet.cluster, NODE) == []


def enforce(fleet: Fleet, operator: Operator) -> None:
    [aggregator] = fleet.aggregators
    policy = next(block.text for block in blocks(ENFORCE) if "\nmodeRules:" in block.text)
    operator.write("policy.yaml", policy)
    checked = operator.run(ENFORCE, "nodeguard policy check policy.yaml --nodes 512")
    assert shown(checked).startswith(shown(example(ENFORCE, "policy.yaml - ok")))
    in_pod = "kubectl exec -i -n nodeguard deploy/nodeguard-aggregator --"
    piped = operator.run(ENFORCE, f"{in_pod} nodeguard policy check - --nodes 512 < policy.yaml")
    assert "fatal checks is enforced: gpu-lost" in piped
    # The kubelet brings the ConfigMap to the aggregator, with the same text.
    fleet.policy.write_text(policy + FAST)
    aggregator.until(lambda: scene.is_marked(fleet.cluster, NODE))
    until_shown(operator, "nodeguard status", "observe by default; enforced: gpu-lost")
    assert operator.run(RUNBOOK, DESCRIBE).startswith(f"FATAL  {NODE}")


def pause(fleet: Fleet, operator: Operator) -> None:
    paused = operator.run(HOLD, 'nodeguard pause --reason "a bad driver"')
    assert paused.startswith("paused: no new marks are set, also after a restart")
    until_shown(operator, "nodeguard status", "a bad driver")
    assert operator.run(HOLD, "nodeguard resume") == "resumed: marks are set again\n"
    assert "a bad driver" not in shown(operator.run(ENFORCE, "nodeguard status"))
    assert scene.is_marked(fleet.cluster, NODE)


def hold_and_unmark(fleet: Fleet, operator: Operator) -> None:
    [aggregator] = fleet.aggregators
    operator.run(HOLD, f'kubectl annotate node {NODE} nodeguard.dev/hold="alice debugs it"')
    until_shown(operator, DESCRIBE, "alice debugs it")
    operator.run(HOLD, f"kubectl annotate node {NODE} nodeguard.dev/hold-")
    unmarked = operator.run(HOLD, f'nodeguard unmark {NODE} --reason "a false alarm"')
    assert unmarked.startswith(f"the marks of {NODE} are removed, and it has a hold")
    aggregator.until(lambda: not scene.is_marked(fleet.cluster, NODE))
    held = scene.get_node(fleet.cluster, NODE)["metadata"]["annotations"]["nodeguard.dev/hold"]
    assert "a false alarm" in held
    # A fault that still exists is marked again.
    operator.run(HOLD, f"kubectl annotate node {NODE} nodeguard.dev/hold-")
    aggregator.until(lambda: scene.is_marked(fleet.cluster, NODE))
    operator.run(HOLD, f'kubectl annotate node {NODE} nodeguard.dev/maintenance="firmware"')
    until_shown(operator, DESCRIBE, "firmware")
    fleet.cluster.kubectl("annotate", "node", NODE, "nodeguard.dev/maintenance-")


def return_the_node(fleet: Fleet, operator: Operator) -> None:
    [aggregator] = fleet.aggregators
    until_shown(operator, DESCRIBE, "waiting for")
    assert "gpu-lost" in operator.run(RETURN, f"nodeguard get incidents --node {NODE}")
    clear = f"nodeguard incidents clear {NODE}/gpu-ecc-uncorrectable"
    names = {f"{NODE}/gpu-ecc-uncorrectable": f"{NODE}/gpu-lost"}
    assert "gpu-lost on GPU 0000:c3:00 is" in operator.run(RETURN, clear, names, accept={3})
    assert scene.is_marked(fleet.cluster, NODE)
    operator.run(RETURN, f"kubectl taint node {NODE} nodeguard.dev/quarantine-")
    aggregator.until(lambda: scene.is_marked(fleet.cluster, NODE))


def replace_the_authority(fleet: Fleet, operator: Operator) -> None:
    agent, old = fleet.agents[NODE], fleet.ca.read_text()
    operator.run(REPLACE, "kubectl delete -n nodeguard secret/nodeguard-ca configmap/nodeguard-ca")
    command = "kubectl get -n nodeguard configmap/nodeguard-ca -o yaml"

    def is_replaced() -> bool:
        shown = operator.run(REPLACE, command, accept={0, 1})
        return "BEGIN" in shown and old.splitlines()[1] not in shown

    until(is_replaced, lambda: "no new authority", every=1.0)
    # The kubelet brings the ConfigMap to the agent.
    fleet.distribute_ca()
    assert fleet.ca.read_text().count("BEGIN") == 1
    agent.kill()
    agent.start()
    agent.until(
        lambda: re.search(r"^nodeguard_last_acknowledged\S+ [^0]", agent.get("/metrics"), re.MULTILINE)
    )


@pytest.fixture
def marked(controlplane: Cluster, tmp_path: Path) -> Iterator[Operator]:
    """An operator of a cluster with one marked node."""
    with running_fleet(controlplane, scene.ENFORCED, NODE, "gpu-8") as running:
        scene.inject_gpu_fault(running.agents[NODE])
        running.agents[NODE].until(lambda: scene.is_marked(controlplane, NODE))
        yield _operator(running, tmp_path)


def incident_of(operator: Operator) -> str:
    """Return the name of the only incident of the node, once its status is written."""

    def listed() -> list[str]:
        command = f"kubectl get nodeincidents --field-selector status.node={NODE}"
        return operator.run(INCIDENTS, command).splitlines()[1:]

    return until(listed, lambda: "no incident", every=0.2)[0].split()[0]


def test_incidents_are_handled_and_the_objects_of_the_pages_are_accepted(
    controlplane: Cluster, marked: Operator
) -> None:
    acknowledge_and_clear_an_incident(marked)
    create_the_objects(controlplane, marked)


def acknowledge_and_clear_an_incident(marked: Operator) -> None:
    name = {"NAME": incident_of(marked)}
    assert NODE in marked.run(INSTALL, "kubectl get nodeincidents")
    withheld = marked.run(INSTALL, "kubectl get nodeincidents --field-selector status.state=Withheld")
    assert withheld == "No resources found\n"
    for patch in (
        '{"acknowledged":"ada"}',
        '{"falseAlarm":{"by":"ada","at":"2027-01-15T08:00:00Z","reason":"a bad sensor"}}',
        '{"clear":{"by":"ada","at":"2027-01-15T08:00:00Z"}}',
    ):
        command = f"kubectl patch nodeincident NAME --type=merge -p '{{\"spec\":{patch}}}'"
        assert marked.run(INCIDENTS, command, name).endswith(" patched\n")
    active = "kubectl wait nodeincident NAME --for=condition=Active=false --timeout=1h"
    assert "condition met" in marked.run(INSTALL, active, name)
    texts: dict[str, str] = {}

    def is_in_history() -> bool:
        recorded = json.loads(marked.run(CHANGED, "nodeguard history --since 1h -o json"))
        texts.update({entry["change"]: entry["text"] for entry in recorded["entries"]})
        return texts.keys() >= {"acknowledged", "cleared", "false-alarm"}

    # The history is written in the background.
    until(is_in_history, lambda: str(texts), every=0.3)
    assert texts["acknowledged"] == "acknowledged by ada"
    assert texts["cleared"] == "clear requested by ada at 2027-01-15T08:00:00Z"
    assert texts["false-alarm"] == "recorded as a false alarm by ada at 2027-01-15T08:00:00Z: a bad sensor"
    command = 'nodeguard incidents clear gpu-3/port-flap --false-alarm --reason "a switch was replaced"'
    recorded = marked.run(REPORT, command, {"gpu-3/port-flap": name["NAME"]})
    assert recorded == f"{name['NAME']} is recorded as a false alarm\n"
    command = 'nodeguard incidents withdraw gpu-3/port-flap --reason "the cable was damaged"'
    withdrawn = marked.run(REPORT, command, {"gpu-3/port-flap": name["NAME"]})
    assert withdrawn == f"{name['NAME']} is no longer recorded as a false alarm\n"


def create_the_objects(controlplane: Cluster, marked: Operator) -> None:
    node = {"NAME": NODE}
    marked.write("policy.yaml", "defaultMode: observe\n")
    marked.write("racks.csv", "node,rack\ngpu-7,r1\n")
    marked.write("site.yaml", "family: site\nchecks: []\n")
    directory = {"DIR": ".", "/etc/nodeguard/checks.d": "."}

    def data(name: str) -> set[str]:
        return set(controlplane.api.get(f"/api/v1/namespaces/nodeguard/configmaps/{name}")["data"])

    apply = "kubectl create configmap nodeguard-policy -n nodeguard --from-file=policy.yaml"
    rendered = "--dry-run=client -o yaml | kubectl apply"
    marked.run(ENFORCE, f"{apply} {rendered} --server-side --force-conflicts -f -")
    assert data("nodeguard-policy") == {"policy.yaml"}
    marked.run(DOMAINS, f"{apply} --from-file=racks.csv {rendered} -f -")
    assert data("nodeguard-policy") == {"policy.yaml", "racks.csv"}
    marked.run(
        DOMAINS,
        f"kubectl annotate --overwrite node {NODE} nodeguard.dev/job=4711 "
        "nodeguard.dev/job-start=2026-11-23T02:00:00Z",
    )
    for annotation in ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt"):
        marked.run(NEIGHBOURS, f"kubectl annotate node NAME {annotation}=true", node)
        assert scene.get_node(controlplane, NODE)["metadata"]["annotations"][annotation] == "true"
    assert "jobs 4711" in shown(marked.run(READ, "nodeguard describe node NAME", node))
    marked.run(INSTALL, "kubectl label namespace nodeguard pod-security.kubernetes.io/enforce=privileged")
    marked.run(INSTALL, "kubectl annotate pods --all --all-namespaces nodeguard.dev/drain-at-")
    marked.run(INSTALL, "kubectl create configmap nodeguard-checks -n nodeguard --from-file=DIR", directory)
    assert data("nodeguard-checks") >= {"site.yaml"}
    binding = "nodeguard-operators --clusterrole=nodeguard-operator --group=gpu-operators"
    marked.run(INSTALL, f"kubectl create clusterrolebinding {binding}")
    binding = "nodeguard-viewers --clusterrole=nodeguard-viewer --group=gpu-users"
    marked.run(INSTALL, f"kubectl create clusterrolebinding {binding}")
    assert "selfsubjectaccessreviews" in marked.run(INSTALL, "kubectl auth can-i --list --as=ada")
    marked.run(FILL, "kubectl apply --server-side -f daemonset/fill")
    marked.run(FILL, "kubectl label namespace notebooks nodeguard.dev/fill=true", {"notebooks": "default"})
    assert marked.run(FILL, "kubectl delete -f daemonset/fill").count(" deleted") == 3


def test_commands_of_the_fleet_pages_answer(marked: Operator) -> None:
    printed = {
        "status": "marked quarantine 1 node",
        "get nodes": f"{NODE} fatal quarantine 1 gpu-gsp-failure",
        "get gpus": "gpu-gsp-failure",
        "get domains": "UNKNOWN no domain is degraded; no shared hardware is named.",
        "get budgets": "fleet 1 2 50% -",
        "get incidents": f"fatal {NODE} GPU 0000:1b:00 gpu-gsp-failure marked",
    }
    for command, text in printed.items():
        until_shown(marked, f"nodeguard {command}", text, READ)
    incident = {"NAME": f"{NODE}/gpu-gsp-failure"}
    assert marked.run(READ, "nodeguard describe node NAME", {"NAME": NODE}).startswith(f"FATAL  {NODE}")
    described = marked.run(READ, "nodeguard describe incident NAME", incident)
    assert described.startswith("FATAL  gpu-gsp-failure - GPU 0 (0000:1b:00, ")
    assert "state marked, new work is kept away" in shown(described)
    previewed = shown(marked.run(READ, "nodeguard drain node NAME --dry-run", {"NAME": NODE}))
    assert "gpu-gsp-failure: no pod to evict" in previewed
    assert shown(marked.run(DRAIN, "nodeguard drain node gpu-7 --dry-run")) == previewed
    acknowledged = marked.run(READ, "nodeguard incidents acknowledge NAME", incident)
    assert shown(acknowledged) == f"{NODE}-gpu-0000-1b-00-HASH is acknowledged"
    cleared = marked.run(READ, "nodeguard incidents clear NAME", incident)
    assert cleared == "gpu-gsp-failure on GPU 0000:1b:00 is cleared\n"
    assert marked.run(READ, "nodeguard explain CHECK", {"CHECK": "gpu-lost"}).startswith(
        "gpu-lost - GPU lost\n"
    )
    # The node of the fault is marked: it takes no work.
    assert marked.run(READ, "nodeguard get nodes --work faulty") == "no nodes: none of 2 matches\n"
    assert marked.run(RUNBOOKS, "nodeguard get nodes --health unknown") == "no nodes: none of 2 matches\n"
    assert marked.run(RUNBOOKS, "nodeguard get incidents --state withheld") == "no incidents: none matches\n"
    for verb in ("detach --node gpu-7 --duration 30m", "attach --node gpu-7"):
        asked = marked.run(RESET, f"nodeguard gpus {verb} --by ada")
        assert asked.startswith(f"the agent of {NODE} is asked: NodeAction detachgpus-")
    until_shown(marked, "nodeguard get actions", f"detach-gpus {NODE} ", READ)
    assert f"clear {NODE} succeeded" in shown(marked.run(READ, "nodeguard get actions"))
    assert marked.run(DRAIN, "nodeguard get actions --kind drain") == "no actions: none of 3 matches\n"
    for command in ("nodeguard history", f"nodeguard history {NODE}", f"nodeguard history {NODE} --since 7d"):
        for change in ("opened", "marked", "resolved", "released"):
            until_shown(marked, command, f"UTC {change} {NODE}: ", CHANGED)


def test_the_manifests_are_applied_and_removed(controlplane: Cluster, tmp_path: Path) -> None:
    """Without a kubelet: the API server accepts the objects, and the controllers delete what is deleted."""
    operator = Operator(controlplane.kubeconfig, str, tmp_path, NAMES)
    operator.write("values.yaml", "image: {registry: registry.example}\n")
    # That of the test before is still being deleted.
    namespace = "/api/v1/namespaces/nodeguard"
    controlplane.until(lambda: not controlplane.has(namespace), "kube-controller-manager")
    operator.run(INSTALL, "kubectl apply --server-side -k daemonset")
    rendered = operator.run(
        INSTALL,
        "helm template nodeguard daemonset/chart -n nodeguard --no-hooks --values values.yaml "
        "--set createNamespace=true",
    )
    assert "registry.example/nodeguard-agent" in rendered
    operator.run(INSTALL, "kubectl delete job -n nodeguard nodeguard-uninstall --ignore-not-found")
    bindings = ("nodeguard-marks", "nodeguard-device-marks", "nodeguard-writes", "nodeguard-objects")
    operator.run(INSTALL, f"kubectl delete validatingadmissionpolicybinding {' '.join(bindings)}")
    operator.run(INSTALL, "kubectl apply --server-side -k daemonset")
    operator.run(INSTALL, "kubectl delete -k daemonset --ignore-not-found")
    assert not controlplane.has(namespace)
