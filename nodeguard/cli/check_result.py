"""The result of nodeguard check: the verdict on a machine, restricted to some checks or GPUs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from typing import NamedTuple

from nodeguard.cli.check_catalogue import Selection
from nodeguard.cli.gpu_selection import GpuSelection
from nodeguard.cli.machine_inventory import InventoryJudgement
from nodeguard.cli.options import validate_platform, warn_about_instance_type
from nodeguard.cli.render.conclusion import conclusion
from nodeguard.cli.scope import reason_not_evaluated, restrict_verdict
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check
from nodeguard.model.finding import Finding, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.recovery import Site
from nodeguard.model.signal import Signal
from nodeguard.sources.source import Source


class CheckTask(NamedTuple):
    """What to check, and with which checks. selection: None for all."""

    options: Namespace
    catalogue: Catalogue
    signals: dict[str, Signal]
    selection: Selection | None
    sources: tuple[Source, ...]

    def judgement(self, site: PlatformHints) -> InventoryJudgement:
        """Return the judgement of a node. Raises UsageError for an unknown platform."""
        validate_platform(self.catalogue, site.platform)
        warn_about_instance_type(self.catalogue, self.options.instance_type, self.options.platform)
        ids = None if self.selection is None else frozenset(check.id for check in self.selection.checks)
        return InventoryJudgement(self.catalogue, self.signals, site, ids)


class CheckResult(NamedTuple):
    """The verdict on a node at a time, with its judgement, and where commands for it run.

    conclusion: what the verdict means. is_partial: whether it is on some checks or GPUs only. elsewhere:
    findings of the node that are not about the selected GPUs. unrecorded: what a recording lacks, and the
    checks that need it; empty for nothing.
    """

    hostname: str
    verdict: Verdict
    instant: Instant
    judgement: InventoryJudgement
    site: Site
    conclusion: str = ""
    is_partial: bool = False
    elsewhere: tuple[Finding, ...] = ()
    unrecorded: str = ""


def checks_of_gpus(checks: Iterable[Check]) -> list[Check]:
    """Return the checks of GPUs and their links."""
    return [check for check in checks if not {"gpu", "nvlink"}.isdisjoint(check.targets)]


def with_conclusion(task: CheckTask, result: CheckResult) -> CheckResult:
    """Return a result with its conclusion, restricted to the selected checks."""
    verdict, selection, reason = result.verdict, task.selection, ""
    if selection is not None:
        verdict = restrict_verdict(verdict, selection.checks, task.sources)
        if not (verdict.evaluated or verdict.read_failures or result.unrecorded):
            reason = reason_not_evaluated(selection.names, selection.checks)
    text = conclusion(
        result.hostname,
        verdict,
        reason,
        selection.text if selection else "",
        is_incomplete=bool(result.unrecorded),
    )
    return result._replace(verdict=verdict, conclusion=text, is_partial=selection is not None)


def with_gpus(task: CheckTask, result: CheckResult, gpus: GpuSelection) -> CheckResult:
    """Return a result that is restricted to some GPUs, with its conclusion."""
    selection = task.selection
    checks = checks_of_gpus(selection.checks if selection else task.catalogue.checks)
    verdict = result.judgement.verdict_of(gpus.includes, result.verdict.platform)
    verdict = gpus.restrict(result.verdict, restrict_verdict(verdict, checks, task.sources), checks)
    reason = ""
    if unread := ", ".join(gpus.unread(verdict, checks)):
        reason = f"NVML has not read {unread}"
        if selection is not None:
            reason = f"{selection.text} could not be evaluated on {unread}"
    elsewhere = tuple(gpus.elsewhere(result.verdict, verdict))
    text = conclusion(
        f"{gpus.text} of {result.hostname}",
        verdict,
        reason,
        selection=selection.text if selection else "all checks",
        elsewhere=elsewhere,
        is_incomplete=bool(result.unrecorded),
    )
    return result._replace(verdict=verdict, conclusion=text, is_partial=True, elsewhere=elsewhere)
