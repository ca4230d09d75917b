"""nodeguard check: one evaluation of all checks, on this machine or on a recording."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from nodeguard.cli.check_catalogue import load_catalogue, parse_selection
from nodeguard.cli.check_result import CheckResult, CheckTask, checks_of_gpus, with_conclusion, with_gpus
from nodeguard.cli.gpu_selection import select_gpus
from nodeguard.cli.options import (
    add_checks,
    add_family,
    add_machine,
    add_output,
    add_root,
    add_runbook_url_base,
    default_folders,
    directory,
)
from nodeguard.cli.scope import exit_code, unrecorded_nvml
from nodeguard.cli.streams import as_document, is_document, is_terminal, print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, duration
from nodeguard.derive.derive import PlatformHints
from nodeguard.fleet_api.view import Section, View
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Finding
from nodeguard.model.recovery import Recovery, Site, recovery_commands
from nodeguard.sources.pci import PciSource
from nodeguard.sources.registry import all_sources

# The configuration of slurmd: on the node, or fetched from the controller. Source: Slurm, configless mode.
_SLURM = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    if options.schema:
        from nodeguard.cli.render.verdict_json import schema  # noqa: PLC0415 - rarely used

        print_output(schema())
        return OK
    if options.gpu and options.output == "prometheus":
        raise UsageError("--gpu: the metrics are of the whole node: leave out --gpu, or use -o json")
    catalogue, signals = load_catalogue(options.checks, options.runbook_url_base or "")
    selection = parse_selection(catalogue, options.names, options.family)
    if options.gpu and selection is not None and not checks_of_gpus(selection.checks):
        raise UsageError(f"--gpu: no check of GPUs is in {', '.join(selection.names)}: leave out --gpu")
    task = CheckTask(options, catalogue, signals, selection, all_sources(catalogue.patterns))
    result = _check_machine(task) if options.bundle is None else _check_recording(task)
    if options.gpu:
        result = with_gpus(task, result, select_gpus(options.gpu, result.judgement.gpus()))
    else:
        result = with_conclusion(task, result)
    _print(task, result)
    return exit_code(result.verdict, strict=options.strict, fail_on=options.fail_on)


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard check",
        description="Check this machine, or a recording of one: what is wrong, and what to do.",
        examples=(
            "nodeguard check",
            "nodeguard check gpu-lost 'gpu-ecc-*'",
            "nodeguard check --family nvlink",
            "nodeguard check --gpu 5",
            "nodeguard check -o wide",
            "nodeguard check --from DIR -v",
        ),
        epilog="Exit codes: 0 ok, 1 warning or suspect, 2 fatal, 3 usage "
        "error or health unknown. --fail-on suspect exits with 0 for a warning; --fail-on never only "
        "reports.",
    )
    add = parser.add_argument
    add(
        "--from",
        "--bundle",
        dest="bundle",
        metavar="DIR",
        type=directory,
        help="check a recording instead of this machine",
    )
    add_root(parser)
    add(
        "-d",
        "--duration",
        dest="seconds",
        metavar="TIME",
        type=duration,
        help="observe for this long (30s, 5m) instead of once",
    )
    add(
        "names",
        metavar="CHECK",
        nargs="*",
        help="run only these checks: ids, or patterns such as 'gpu-ecc-*'; default: all",
    )
    add_family(parser)
    add("--gpu", metavar="GPU", action="append", default=[],
        help="only this GPU and its links: index, UUID, serial number or PCI address (repeatable)"
        )  # fmt: skip
    add_checks(parser)
    add_runbook_url_base(parser)
    add_machine(parser)
    formats = ("text", "wide", "json", "yaml", "name", "prometheus")
    add_output(parser, *formats, names=("-o", "--output", "--format"))
    add("-q", "--quiet", action="store_true", help="print problems only; print nothing if there are none")
    add(
        "-v",
        "--verbose",
        action="store_true",
        help="print everything: all findings in full, passed checks and counters",
    )
    add("--fail-on", choices=("warning", "suspect", "fatal", "never"), default="warning", metavar="HEALTH",
        help="lowest health that gives exit code 1 or 2: warning, suspect, fatal, never "
        "(warning)")  # fmt: skip
    add("--strict", action="store_true", help="exit with 3 if something could not be read")
    add("--schema", action="store_true", help="print the JSON schema of -o json")
    return parser


def _check_recording(task: CheckTask) -> CheckResult:
    """Return the verdict on a recording. Raises UsageError where it cannot be read."""
    from nodeguard.bundle.recording import Recording  # noqa: PLC0415
    from nodeguard.pipeline.replay import replay_verdicts  # noqa: PLC0415 - a live check needs no recordings

    options = task.options
    if options.root:
        raise UsageError("--root excludes --from: a recording has its own root")
    if options.seconds is not None:
        raise UsageError("--duration cannot be used with --from: a recording is checked to its end")
    recording = Recording.open(options.bundle)
    manifest = recording.manifest
    site = PlatformHints(
        options.platform or manifest.platform, options.instance_type or manifest.instance_type
    )
    judgement = task.judgement(site)
    *_, (at, verdict) = replay_verdicts(recording, task.sources, judgement)
    unrecorded = ""
    # The PCI devices of a machine show that it has no GPUs, and so no results of NVML.
    has_gpus = judgement.gpus() or not recording.is_recorded(PciSource.name, PciSource.paths)
    if has_gpus and not recording.has_nvml:
        checks = task.selection.checks if task.selection else task.catalogue.checks
        unrecorded = unrecorded_nvml(checks, task.sources)
    return CheckResult(
        hostname=manifest.hostname,
        verdict=verdict,
        instant=recording.state_at(at).instant,
        judgement=judgement,
        site=judgement.site(manifest.hostname),
        unrecorded=unrecorded,
    )


def _check_machine(task: CheckTask) -> CheckResult:
    """Return the verdict on this machine, after one reading or an observation. Raises UsageError."""
    from nodeguard.cli.progress import progress  # noqa: PLC0415
    from nodeguard.pipeline.one_shot import evaluate_live  # noqa: PLC0415 - a replay needs no threads
    from nodeguard.sources.machines.live import LiveMachine  # noqa: PLC0415

    options = task.options
    judgement = task.judgement(PlatformHints(options.platform, options.instance_type))
    with LiveMachine(options.root or "") as machine, progress("observing", options.seconds or 0.0):
        verdict = evaluate_live(machine, task.sources, judgement, options.seconds or 0.0, options.timeout)
        hostname = os.environ.get("NODE_NAME") or os.uname().nodename
        site = live_site(judgement.site(hostname), os.environ, os.path.exists)
        return CheckResult(hostname, verdict, machine.now(), judgement, site)


def live_site(site: Site, environ: Mapping[str, str], exists: Callable[[str], bool]) -> Site:
    """Return where the commands run for this machine: in the agent's pod, or on a node of Slurm.

    exists: whether a path exists.
    """
    if "KUBERNETES_SERVICE_HOST" in environ:
        return replace(site, scheduler="kubernetes", on_node=False, pod=environ.get("HOSTNAME", ""))
    if not site.scheduler and any(map(exists, _SLURM)):
        # slurmd takes the host name up to the first dot.
        return replace(site, scheduler="slurm", node=site.node.partition(".")[0])
    return site


def action_commands(catalogue: Catalogue, site: Site) -> Callable[[Finding], tuple[str, ...]]:
    """Return the function that gives the commands of a finding's action."""
    checks = {check.id: check for check in catalogue.checks}

    def commands(finding: Finding) -> tuple[str, ...]:
        return recovery_commands(Recovery.of(finding, finding.check, checks), site)

    return commands


def _print(task: CheckTask, result: CheckResult) -> None:
    options, verdict = task.options, result.verdict
    commands = action_commands(task.catalogue, result.site)
    inventory = result.judgement.inventory()
    match options.output:
        case output if is_document(output):
            from nodeguard.cli.render.verdict_json import JsonContext, check_output  # noqa: PLC0415 - for documents

            components = result.judgement.state.components
            context = JsonContext(result.hostname, result.conclusion, result.instant, components, commands)
            print_output(as_document(check_output(verdict, inventory, context), output))
        case "name":
            from nodeguard.cli.render.finding_table import finding_names  # noqa: PLC0415

            if verdict.findings:
                print_output("\n".join(finding_names(verdict.findings)))
        case "prometheus":
            from nodeguard.cli.render.verdict_metrics import as_metrics  # noqa: PLC0415
            from nodeguard.sources.nvml import gpu_identities  # noqa: PLC0415

            print_output(as_metrics(verdict, result.instant, gpu_identities(task.sources)), end="")
        case _:
            if options.quiet and exit_code(verdict, strict=options.strict) == OK:
                return
            from nodeguard.cli.machine_inventory import inventory_text  # noqa: PLC0415
            from nodeguard.cli.render.finding_table import finding_lines  # noqa: PLC0415
            from nodeguard.cli.render.first_screen import first_screen  # noqa: PLC0415
            from nodeguard.cli.render.terminal import (  # noqa: PLC0415
                CHECK,
                format_lines,
                format_view,
                terminal_width,
                view_lines,
            )
            from nodeguard.cli.render.verdict import VerdictText, headline, verdict_view  # noqa: PLC0415
            from nodeguard.fleet_api.text.check import meanings  # noqa: PLC0415

            # The command that explains a check has those of the environment, too.
            named = options.checks[len(default_folders()) :]
            text = VerdictText(
                conclusion=result.conclusion,
                verdict=verdict,
                instant=result.instant,
                meanings=meanings(task.catalogue),
                inventory=inventory_text(inventory, verdict.platform),
                checks_option=" ".join(f"--checks {shlex.quote(f'{folder}')}" for folder in named),
                commands=commands,
                is_partial=result.is_partial,
                elsewhere=result.elsewhere,
                unrecorded=result.unrecorded,
            )
            if options.output == "wide":
                width = terminal_width() if is_terminal() else None
                rows = finding_lines(verdict.findings, result.instant.wall, width) if verdict.findings else []
                first = view_lines(View((Section(headline(text)),)), CHECK)
                print_output(format_lines([*first, *rows]))
                return
            if options.verbose:
                view = verdict_view(text, quiet=options.quiet, verbose=True)
            else:
                view = first_screen(text, quiet=options.quiet)
            print_output(format_view(view, CHECK))
