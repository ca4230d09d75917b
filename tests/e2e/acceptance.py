"""The steps of a new operator, with the commands and settings of the documentation, and what each has to show."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from nodeguard.aggregator.certificates.issue import issue_authority
from tests.controlplane.api import Object
from tests.controlplane.objects import GPU
from tests.daemonset.manifests import AGENT, AGGREGATOR, NAMESPACE
from tests.docs.pages import yaml_blocks
from tests.e2e import scene
from tests.e2e.monitoring import Monitoring, discovered_targets, notifications
from tests.e2e.operator import NO_NAMES, Operator
from tests.e2e.pod_fleet import PodFleet
from tests.e2e.processes import get_page
from tests.e2e.waits import Waits
from tests.images.store import TAG
from tests.images.store import name as image_name
from tests.kubelet.site import Site
from tests.paths import ROOT
from tests.waiting import PATIENCE
from tests.webhooks import WebhookReceiver

QUICK_START = "docs/quickstart/kubernetes.md"
INSTALL = "docs/install/kubernetes.md"
DOCTOR = "docs/tasks/check-the-installation.md"
NOTIFY = "docs/tasks/send-notifications.md"
PROMETHEUS = "docs/install/prometheus.md"
REHEARSE = "docs/tasks/rehearse-a-fault.md"
ENFORCE = "docs/tasks/enforce-the-first-check.md"
STATUS_PAGE = "docs/tasks/status-page.md"
HOLD = "docs/tasks/pause-hold-unmark.md"

# What the pages put before a command of nodeguard in Kubernetes.
IN_AGGREGATOR = "kubectl exec -n nodeguard deploy/nodeguard-aggregator --"
IN_AGENT = "kubectl exec -n nodeguard POD --"

ROLLOUT = "kubectl rollout status -n nodeguard deployment/nodeguard-aggregator daemonset/nodeguard-agent"
DESCRIBE_NODE = "kubectl describe node gpu-7"

# Where a registry would have the images, and the nodes with faults.
REGISTRY, NODE, OTHER = "registry.example/team", "node-1", "node-2"

# The nodes have no GPU: a fatal check that passes on any machine takes the place of that of the pages.
CHECK, TARGET, FAULT_CLASS = "kernel-oops", "node", "kernel"
NAMES = {
    "REGISTRY": REGISTRY,
    "gpu-lost": CHECK,
    "gpu/0000:3b:00": TARGET,
    "/opt/nodeguard/bin/nodeguard": "nodeguard",
}

# Seconds that a check passes before a release, in place of ten minutes.
SOAK = 10

# The alert of an incident. Prometheus reads metrics and evaluates rules in this interval, by default 30 s or longer.
ALERT, INTERVAL = "NodeguardIncident", "5s"

_PODS = "/api/v1/namespaces/default/pods"


class Acceptance:
    """A site with nodeguard, the monitoring and the webhooks of its operator, and how long each step takes."""

    def __init__(self, site: Site, directory: Path) -> None:
        self.site = site
        self.waits = Waits(site.report)
        self.operator = Operator(site.cluster.kubeconfig, site.report, directory, NAMES)
        self.fleet = PodFleet(site)
        authority = issue_authority(time.time())
        self.tickets = WebhookReceiver(site.nodes[NODE].settings.address)
        self.tickets.encrypt(authority, directory)
        self.pager = WebhookReceiver()
        self._authority = authority.certificate
        self._directory = directory
        self._targets = directory / "targets.json"
        self._values: Object = {"image": {"registry": REGISTRY}}

    def monitoring(self) -> Monitoring:
        """Prometheus with the scrape jobs of the page and the rules as shipped, and Alertmanager."""
        settings, _without_kubernetes = (
            block for block in yaml_blocks(PROMETHEUS) if "scrape_configs" in block
        )
        for job in settings["scrape_configs"]:
            # Debian's Prometheus has no discovery of Kubernetes: the test writes what it would find.
            assert job.pop("kubernetes_sd_configs") == [{"role": "pod", "namespaces": {"names": [NAMESPACE]}}]
            job["file_sd_configs"] = [{"files": [str(self._targets)]}]
        rules = [ROOT / "daemonset" / "alerts" / name for name in ("agent.yaml", "aggregator.yaml")]
        jobs = settings["scrape_configs"]
        return Monitoring(self._directory, jobs, rules, self.pager, [ALERT], INTERVAL)

    def status_page(self) -> AbstractContextManager[None]:
        """Forward the port of the status page."""
        return self.operator.running(
            STATUS_PAGE, "kubectl port-forward -n nodeguard deploy/nodeguard-aggregator 9436"
        )

    def install(self) -> None:
        for node in self.site.nodes.values():
            for image in (AGENT, AGGREGATOR):
                node.tag_image(image_name(image), f"{REGISTRY}/{image}:{TAG}")
        command = "helm install nodeguard daemonset/chart -n nodeguard --create-namespace --set image.registry=REGISTRY"
        with self.waits.step("helm install"):
            notes = self.operator.run(QUICK_START, command)
        assert "observe mode: it writes nothing to Nodes" in notes
        begin = time.monotonic()
        with self.waits.step("all pods are ready"):
            self.operator.run(QUICK_START, ROLLOUT)
        self.waits.for_all(begin, {"`nodeguard status`: all nodes are healthy": self._are_all_healthy})
        look = f"{IN_AGGREGATOR} nodeguard get nodes --unhealthy"
        assert self.operator.run(QUICK_START, look) == f"no nodes: none of {len(self.site.nodes)} matches\n"
        assert "No resources found" in self.operator.run(QUICK_START, "kubectl get nodeincidents")

    def check_installation(self) -> None:
        """Run the doctor: nothing fails."""
        with self.waits.step("the doctor, for a node"):
            command = "kubectl exec -n nodeguard ds/nodeguard-agent -- nodeguard doctor --root /host"
            assert "failed" not in self.operator.run(DOCTOR, command)
        with self.waits.step("the doctor, for the cluster"):
            cluster = self.doctor()
        # The nodes have no labels of a fabric, which is true of many a cluster.
        assert "warning  topology labels" in cluster
        assert "label the nodes, or set nodeLocations" in " ".join(cluster.split())
        assert cluster.startswith("nodeguard doctor: 1 warning, ")

    def doctor(self) -> str:
        return self.operator.run(DOCTOR, "/opt/nodeguard/bin/nodeguard doctor --cluster", accept={0, 1})

    def set_up_notifications(self) -> None:
        """Send notifications to receivers of the site, as the page describes it, and allow rehearsals."""
        [values] = [block for block in yaml_blocks(NOTIFY) if "notificationSecretName" in block]
        chat, tickets = values["notifications"]["webhooks"]
        chat["caFile"] = tickets["caFile"]
        tickets["url"] = self.tickets.url
        self.operator.write("slack-url", self.tickets.url)
        self.operator.write("internal-ca.crt", self._authority)
        command = "kubectl create secret generic nodeguard-webhooks -n nodeguard --from-file=slack-url"
        self.operator.run(NOTIFY, f"{command} --from-file=internal-ca.crt")
        with self.waits.step("helm upgrade with notifications, which restarts the aggregators"):
            self._upgrade(NOTIFY, {**values, "image": self._values["image"]})
            self.operator.run(NOTIFY, "kubectl rollout status -n nodeguard deployment/nodeguard-aggregator")
        self.waits.for_all(
            time.monotonic(), {"new aggregators: all nodes are healthy": self._are_all_healthy}
        )

    def rehearse_in_observe_mode(self) -> None:
        """See a fault everywhere, with what would be done, and no mark."""
        [allowed] = [block for block in yaml_blocks(REHEARSE) if "injection" in block]
        allowed["injection"]["checks"] = [NAMES.get(name, name) for name in allowed["injection"]["checks"]]
        begin = time.monotonic()
        self._upgrade(ENFORCE, {"policy": allowed})
        self.waits.for_all(begin, {"the policy allows the rehearsal": lambda: self._can_inject(NODE)})
        begin = self._inject(NODE)
        self.waits.for_all(
            begin,
            {
                "fault: on the status page": lambda: CHECK in get_page("localhost:9436", "/incidents"),
                "fault: `nodeguard get incidents`": lambda: (
                    "dry run" in self._ask(ENFORCE, "nodeguard get incidents --check gpu-lost --all")
                ),
                "fault: `kubectl get nodeincidents`": lambda: (
                    NODE in self.operator.run(QUICK_START, "kubectl get nodeincidents")
                ),
                "fault: `kubectl describe node` has an Event": lambda: (
                    "NodeguardDryRun" in self.operator.run(ENFORCE, DESCRIBE_NODE, _for(NODE))
                ),
                "fault: at the webhooks": lambda: "opened" in self._notified(),
                f"fault: an alert (Prometheus reads every {INTERVAL})": lambda: self._is_alerted("firing"),
            },
        )
        assert scene.nodeguard_fields(self.site.cluster, NODE) == []
        status = " ".join(self._ask(ENFORCE, "nodeguard status").split())
        assert "OBSERVE MODE - no new mark is set. No mark of a real fault is requested" in status
        assert f"injected: {CHECK}, dry run" in status
        described = self._ask(ENFORCE, "nodeguard describe node gpu-7", _for(NODE))
        assert "dry run" in described
        events = " ".join(self.operator.run(ENFORCE, DESCRIBE_NODE, _for(NODE)).split())
        assert f"dry run: would quarantine node {NODE}" in events

    def enforce(self) -> None:
        """Enforce the check as the page describes it: the mark keeps new GPU pods away, and no running one."""
        self._create_gpu_pod("before", NODE)
        self.site.until(lambda: self._phase("before") == "Running")
        [policy] = [block for block in yaml_blocks(ENFORCE) if list(block) == ["version", "modeRules"]]
        for rule in policy["modeRules"]:
            rule["check"] = NAMES[rule["check"]]
        self.operator.write("policy.yaml", yaml.safe_dump(policy))
        check = (
            f"{IN_AGGREGATOR.replace('exec', 'exec -i')} nodeguard policy check - --nodes 512 < policy.yaml"
        )
        assert f"fatal checks is enforced: {CHECK}." in self.operator.run(ENFORCE, check)
        begin = time.monotonic()
        soak = {"soak": {"initial": f"{SOAK}s"}}
        self._upgrade(ENFORCE, {"policy": {**self._values["policy"], **policy, **soak}})
        self.waits.for_all(
            begin,
            {
                "enforce: `nodeguard status` (a minute by default)": lambda: (
                    f"enforced: {CHECK}" in " ".join(self._ask(ENFORCE, "nodeguard status").split())
                ),
                "enforce: the taint": lambda: scene.is_marked(self.site.cluster, NODE),
                "enforce: the condition in `kubectl describe node`": lambda: (
                    "NodeguardHealthy False"
                    in " ".join(self.operator.run(ENFORCE, DESCRIBE_NODE, _for(NODE)).split())
                ),
            },
        )
        described = self.operator.run(ENFORCE, DESCRIBE_NODE, _for(NODE))
        assert f"nodeguard.dev/quarantine={FAULT_CLASS}:NoSchedule" in described
        begin = time.monotonic()
        self._create_gpu_pod("pinned", NODE)
        self._create_gpu_pod("free")
        self.waits.for_all(
            begin,
            {
                "a new GPU pod runs on another node": lambda: self._phase("free") == "Running",
                "a new GPU pod for this node waits": lambda: "untolerated taint" in str(self._pod("pinned")),
                "`kubectl describe node` has the Event": lambda: (
                    "NodeguardMarked" in self.operator.run(ENFORCE, DESCRIBE_NODE, _for(NODE))
                ),
            },
        )
        assert self._pod("free")["spec"]["nodeName"] == OTHER
        assert self._phase("before") == "Running"

    def recover(self) -> None:
        """End the fault: the mark is released after the soak period, and the receivers learn it."""
        begin = time.monotonic()
        self._run_in_agent(NODE, "nodeguard inject --clear 1")
        self.waits.for_all(
            begin,
            {
                f"end: the taint is removed (soak period {SOAK} s)": lambda: scene.is_unmarked(
                    self.site.cluster, NODE
                ),
                "end: the pod that waited runs": lambda: self._phase("pinned") == "Running",
                "end: resolved at the webhooks": lambda: self._notified()[-1] == "resolved",
            },
        )
        self.ended = begin
        assert self._phase("before") == "Running"
        assert "resolved" in self._ask(ENFORCE, "nodeguard get incidents --check gpu-lost --all")

    def upgrade_with_a_mark(self) -> None:
        """Change settings of all pods while a node is marked: the mark, the hold and the incidents stay."""
        self._inject(OTHER)
        self.site.until(lambda: scene.is_marked(self.site.cluster, OTHER))
        hold = 'kubectl annotate node gpu-7 nodeguard.dev/hold="alice debugs it"'
        self.operator.run(HOLD, hold, _for(OTHER))
        before = {pod["metadata"]["uid"] for pod in self.fleet.living(AGGREGATOR)}
        settings = {
            "agent": {"settings": {"log_level": "debug"}},
            "aggregator": {"extraArgs": ["--log-level=debug"]},
        }
        begin = time.monotonic()
        self._upgrade(INSTALL, settings)

        def is_replaced() -> bool:
            pods = {pod["metadata"]["uid"] for pod in self.fleet.living(AGGREGATOR)}
            return len(before & pods) == 1 and self.fleet.ready(AGENT) == len(self.site.nodes)

        # The other aggregator needs the marked node.
        self.waits.for_all(begin, {"helm upgrade of settings, with a marked node": is_replaced})
        self.site.until(lambda: self.fleet.reporting() == set(self.site.nodes))
        assert "an update is not complete" in " ".join(self.doctor().split())
        assert scene.is_marked(self.site.cluster, OTHER)
        described = self._ask(ENFORCE, "nodeguard describe node gpu-7", _for(OTHER))
        assert "alice debugs it" in described
        incidents = self.operator.run(QUICK_START, "kubectl get nodeincidents")
        assert {NODE, OTHER, "Resolved"} <= set(incidents.split())

    def expect_resolved_alert(self) -> None:
        name = "end: the alert is resolved (2 min by its rule)"
        self.waits.for_all(self.ended, {name: lambda: self._is_alerted("resolved")})

    def remove(self) -> None:
        """Uninstall: no mark is left, and of the rest what the page names."""
        with self.waits.step("helm uninstall, which removes the mark"):
            self.operator.run(INSTALL, "helm uninstall nodeguard -n nodeguard")
        assert scene.nodeguard_fields(self.site.cluster, NODE) == []
        assert scene.nodeguard_fields(self.site.cluster, OTHER) == ["nodeguard.dev/hold"]
        self.operator.run(
            INSTALL, "kubectl annotate nodes --all nodeguard.dev/hold- nodeguard.dev/maintenance-"
        )
        assert scene.nodeguard_fields(self.site.cluster, OTHER) == []
        incidents = self.operator.run(QUICK_START, "kubectl get nodeincidents")
        assert NODE in incidents
        assert OTHER in incidents
        with self.waits.step("deletion of the incidents and the namespace"):
            self.operator.run(
                INSTALL,
                "kubectl delete customresourcedefinition nodeincidents.nodeguard.dev nodeactions.nodeguard.dev",
            )
            self.operator.run(INSTALL, "kubectl delete namespace nodeguard")
        kinds = "clusterroles,clusterrolebindings,flowschemas,prioritylevelconfigurations"
        policies = "validatingadmissionpolicies,validatingadmissionpolicybindings,customresourcedefinitions"
        assert "nodeguard" not in self.site.kubectl("get", f"{kinds},{policies}", "-o", "name")

    def delete_pods(self) -> None:
        self.site.cluster.api.delete(_PODS)

    def delete_objects(self) -> None:
        """Delete the incidents, and the namespace with all that is in it."""
        delete = ("delete", "--ignore-not-found", f"--timeout={PATIENCE:g}s")
        for kind in ("nodeincidents", "nodeactions"):
            self.site.kubectl(*delete, "customresourcedefinition", f"{kind}.nodeguard.dev")
        self.site.kubectl(*delete, "namespace", NAMESPACE)

    def release_hold(self) -> None:
        self.site.kubectl("annotate", "node", OTHER, "nodeguard.dev/hold-")

    def _ask(self, page: str, printed: str, names: Mapping[str, str] = NO_NAMES) -> str:
        return self.operator.run_in(IN_AGGREGATOR, page, printed, names)

    def _are_all_healthy(self) -> bool:
        status = self.operator.run(QUICK_START, f"{IN_AGGREGATOR} nodeguard status")
        return f"OK  {len(self.site.nodes)} nodes" in status

    def _upgrade(self, page: str, change: Mapping[str, Any]) -> None:
        """Apply the values of the site with some changed."""
        self._values = {**self._values, **change}
        self.operator.write("values.yaml", yaml.safe_dump(self._values))
        self.operator.run(page, "helm upgrade nodeguard daemonset/chart -n nodeguard --values values.yaml")

    def _run_in_agent(self, node: str, printed: str) -> str:
        """Run a command that the page of rehearsals prints in the agent's pod of a node."""
        listed = self.operator.run(REHEARSE, "kubectl get pods -n nodeguard -o wide").splitlines()
        [pod] = [line.split()[0] for line in listed if line.startswith(AGENT) and node in line.split()]
        return self.operator.run_in(IN_AGENT, REHEARSE, printed, {"POD": pod})

    def _can_inject(self, node: str) -> bool:
        try:
            self._run_in_agent(node, "nodeguard inject gpu-lost --target gpu/0000:3b:00 --dry-run")
        except AssertionError as refused:
            assert "the policy allows no injected fault" in str(refused)
            return False
        return True

    def _inject(self, node: str) -> float:
        """Inject a fault. Returns the monotonic time before it."""
        begin = time.monotonic()
        output = self._run_in_agent(node, "nodeguard inject gpu-lost --target gpu/0000:3b:00 --for 10m")
        assert "to end it: nodeguard inject --clear 1" in output
        return begin

    def _notified(self) -> list[str]:
        """Return the changes that the ticket system has received about the node with the fault."""
        return [body["change"] for body in self.tickets.bodies if body.get("node") == NODE]

    def _is_alerted(self, status: str) -> bool:
        self._targets.write_text(json.dumps(list(discovered_targets(self.site.cluster))))
        return (ALERT, NODE) in notifications(self.pager, status)

    def _create_gpu_pod(self, name: str, node: str | None = None) -> None:
        """Create a pod that requests a GPU, on one node or anywhere."""
        image = self.site.nodes[NODE].settings.pause
        container = {"name": "work", "image": image, "resources": {"limits": {GPU: "1"}}}
        selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0, **selector}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.site.cluster.api.post(_PODS, pod)

    def _pod(self, name: str) -> Object:
        return self.site.cluster.api.get(f"{_PODS}/{name}")

    def _phase(self, name: str) -> str:
        return str(self._pod(name)["status"].get("phase"))


def _for(node: str) -> dict[str, str]:
    """Return the placeholder of a node with its value."""
    return {"gpu-7": node}
