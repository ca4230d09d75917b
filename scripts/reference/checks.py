"""Reference pages of the checks: one page for each check, and their index by family."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nodeguard.catalog.catalogue import load_builtin
from nodeguard.executors.kube.condition_reason import FaultReason, reason_class
from nodeguard.fleet_api.text.check import clearing_text, condition_text
from nodeguard.judge.formatting import general_remedy
from nodeguard.model.check import Check, EventOccurred
from nodeguard.model.finding import Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.recovery import Recovery, Site, recovery_commands
from nodeguard.pipeline.signal_registry import all_signals
from scripts.reference.markdown import Lines, code, escaped, page, table

# A target of each kind for which the commands of a page are filled in.
_EXAMPLES = {
    "gpu": ("gpu/0000:18:00", "GPU 0"),
    "nvlink": ("gpu/0000:18:00/nvlink/3", "GPU 0"),
    "nvswitch": ("nvswitch/0000:c1:00", "the NVSwitch at 0000:c1:00"),
    "port": ("port/mlx5_0/1", "port 1 of mlx5_0"),
    "pci": ("pci/0000:9c:00.0", "the device at 0000:9c:00.0"),
    "disk": ("disk/nvme0n1", "nvme0n1"),
    "service": ("service/kubelet", "the kubelet"),
    "fs": ("fs:/var", "/var"),
}
_NODE = ("node", "the node")

_MARKS = {
    Health.FATAL: "Where the policy enforces the check, the Node gets the mark `quarantine`",
    Health.SUSPECT: "Where the policy enforces the check, the Node gets the mark `suspect`",
}


def check_pages() -> dict[str, Callable[[], str]]:
    """Return what writes the index and the page of each check, by path."""
    checks = load_builtin(all_signals).checks
    return {
        "docs/reference/checks.md": partial(_index, checks),
        **{f"docs/reference/checks/{check.id}.md": partial(_page, check) for check in checks},
    }


def _index(checks: tuple[Check, ...]) -> str:
    """All checks by family. Each has the anchor to which links of earlier versions lead."""
    families = sorted({check.family for check in checks})
    count = f"{len(checks)} checks in {len(families)} families. Each has a page. "
    lines = [count + "On a node, `nodeguard explain CHECK` describes it.", ""]
    for family in families:
        rows = (
            (
                f'<a id="{check.id}"></a>[{check.id}](checks/{check.id}.md)',
                check.health.value,
                check.action.value,
                escaped(check.title),
            )
            for check in checks
            if check.family == family
        )
        header = ("check", "health", "action", "meaning")
        lines += [f"## {family}", "", *table(header, rows, has_html=True)]
    return page("Checks", *lines)


def _page(check: Check) -> str:
    """One check: what it means, when it fires and clears, what to do, and where it appears."""
    lines = [f"**{escaped(check.title)}.** {' '.join(check.description.split())}", ""]
    kinds = ", ".join(check.targets)
    family = f"[{check.family}](../checks.md#{check.family})"
    values = (check.health.value, check.action.value, kinds, family)
    lines += table(("health", "action", "applies to", "family"), [values], has_html=True)
    for title, content in (
        ("What fires it", _fires(check)),
        ("What keeps it quiet", _quiet(check)),
        ("What to do", _remedy(check)),
        ("Where it appears", _names(check)),
        ("Source", iter([escaped(check.source)])),
    ):
        lines += [f"## {title}", "", *content, ""]
    return page(check.id, *lines)


def _fires(check: Check) -> Lines:
    names = dict.fromkeys(
        leaf.event if isinstance(leaf, EventOccurred) else leaf.signal for leaf in check.leaves()
    )
    yield escaped(f"{condition_text(check.when)}.")
    yield ""
    yield f"[Signals](../signals.md): {', '.join(map(code, names))}."
    if check.topologies:
        yield ""
        yield (
            f"The finding votes in {', '.join(check.topologies)}: equal faults of nodes that share hardware "
            "are one [degraded domain](../../concepts/failure-domains.md)."
        )
    if check.evidence == "fact":
        yield ""
        yield "It is a fact: no other node makes it less likely."


def _quiet(check: Check) -> Lines:
    yield "- An unreadable reading: it never fires the check; without another reason the result is unknown."
    if check.hardware:
        yield f"- A node that has no {' or '.join(check.hardware)}: the check does not apply."
    if check.applies_when is not None:
        yield f"- A target on which this is false: {escaped(condition_text(check.applies_when))}."
    if check.symptom_of:
        causes = ", ".join(f"[{cause}]({cause}.md)" for cause in check.symptom_of)
        yield f"- A cause that is found, too. The finding is evidence of it then: {causes}."
    yield f"- What clears the finding: {escaped(clearing_text(check))}."


def _remedy(check: Check) -> Lines:
    yield f"{escaped(general_remedy(check))} Action: {check.action.phrase}."
    kind = next((kind for kind in check.targets if kind in _EXAMPLES), "")
    target, label = _EXAMPLES.get(kind, _NODE)
    recovery = Recovery(check, target, check.action, check.health, Hardware(index=0))
    if commands := recovery_commands(recovery, Site("NODE")):
        yield from ("", f"On the node, for {label} as an example:", "")
        yield from (f"    {command}" for command in commands)
        yield ""
        yield "`nodeguard check` prints the commands for the target of the finding."


def _names(check: Check) -> Lines:
    yield f'- Metric of the agent: `nodeguard_finding{{check="{check.id}"}}`.'
    if (mark := _MARKS.get(check.health)) is not None:
        reason = FaultReason(reason_class(check.family), check.action).name
        yield f"- {mark}, with the value `{check.family}`. Its condition"
        yield f"  `NodeguardHealthy` has the reason `{reason}`: see"
        yield "  [Kubernetes API](../kubernetes-api.md#condition-of-nodes)."
    else:
        yield f"- A finding of health {check.health.value} sets no mark, and no condition of the Node."
    yield f"- Commands: `nodeguard explain {check.id}`, `nodeguard check {check.id}`."
