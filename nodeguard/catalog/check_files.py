"""Files of checks: nodeguard's own and a site's, read, validated against the signals, and combined.

A site's folder may be empty: Kubernetes mounts a missing optional ConfigMap as an empty folder.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, UnsetType
from msgspec.structs import replace

from nodeguard.catalog.check_schema import CheckFileSchema, CheckSchema
from nodeguard.catalog.conditions import ConditionParser
from nodeguard.catalog.fault_classes import require_matching_checks, require_unique_classes
from nodeguard.catalog.signal_targets import PLACEHOLDER, SignalTargets
from nodeguard.config.amounts import decode_amounts
from nodeguard.config.errors import ConfigError, FieldPath
from nodeguard.config.file_version import require_version
from nodeguard.config.yaml_document import YamlDocument, collect_errors, convert, load_yaml
from nodeguard.model.check import Check, Compare, EventOccurred
from nodeguard.model.diagnosis import FaultClass
from nodeguard.model.finding import Action, Health
from nodeguard.model.projection import project
from nodeguard.model.recovery import COMMAND_VALUES, RESET, RESET_ALL
from nodeguard.model.signal import Signal

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

# The pages of the checks. A site that has its own sets runbook_url_base.
_PAGES = "https://github.com/nodeguard/nodeguard/blob/main/docs/reference/checks"

_REFERENCES = frozenset({"", "peers", "inventory"})

# Placeholders of every message, besides signals and the fields of events.
_COMMON_PLACEHOLDERS = frozenset({"target", "component", "count", "action"})


class CheckFile(Struct, frozen=True):
    """The content of a file of checks. lines: of each check and each disabled id, by id.

    document: the file, None for a catalogue that is compiled.
    """

    file: str
    checks: tuple[Check, ...]
    disabled: tuple[str, ...]
    lines: dict[str, int]
    fault_classes: tuple[FaultClass, ...] = ()
    document: YamlDocument | None = None


def read_check_file(path: Path | Traversable, signals: Mapping[str, Signal]) -> CheckFile:
    """Return the checks of one YAML file. signals: all that exist, by name. Raises ConfigError."""
    return _parse_check_file(load_yaml(path), signals)


def check_file_errors(path: Path | Traversable, signals: Mapping[str, Signal]) -> list[ConfigError]:
    """Return all errors of one YAML file of checks that do not depend on another file."""
    try:
        document = load_yaml(path)
    except ConfigError as error:
        return [error]
    return collect_errors(document, lambda rest: _parse_check_file(rest, signals))


def _parse_check_file(document: YamlDocument, signals: Mapping[str, Signal]) -> CheckFile:
    require_version(document)
    schema = convert(document, CheckFileSchema, decode=decode_amounts)
    parser = ConditionParser(document, signals)
    applies = _applies(schema, parser)
    checks = []
    lines: dict[str, int] = {}
    for index, check in enumerate(schema.checks):
        if check.id in lines:
            problem = f"'{check.id}' appears twice"
            raise document.error(("checks", index, "id"), problem, "rename or remove one of them")
        lines[check.id] = document.line(("checks", index))
        checks.append(replace(_check(check, schema, parser, index), applies_when=applies))
    for index, name in enumerate(schema.disable):
        lines.setdefault(name, document.line(("disable", index)))
    classes = schema.fault_classes
    require_unique_classes(document, ("fault_classes",), classes)
    return CheckFile(document.file, tuple(checks), tuple(schema.disable), lines, classes, document)


def _check(schema: CheckSchema, file: CheckFileSchema, parser: ConditionParser, index: int) -> Check:
    path, document = ("checks", index), parser.document
    family = file.family if isinstance(schema.family, UnsetType) else schema.family
    if isinstance(family, UnsetType):
        raise document.error((*path, "family"), "is missing", "write it here, or once for the whole file")
    target = schema.target
    check = project(
        Check,
        schema,
        family=family,
        targets=(target,) if isinstance(target, str) else tuple(dict.fromkeys(target)),
        when=parser.condition(schema.when, (*path, "when")),
        description=schema.description.strip(),
        runbook=f"{_PAGES}/{schema.id}.md",
        hardware=tuple(file.hardware),
    )
    _require_clear(check, document, path)
    _require_known_placeholders(check, document, path, parser.signals)
    _require_known_command_values(check, document, path)
    if check.health == Health.OK and check.action not in {Action.NONE, Action.RESTART_WORKLOAD}:
        remedy = "write `none`, or `restart-workload` for an error of an application"
        raise document.error((*path, "action"), "does not go with health ok", remedy)
    return check


def _require_known_command_values(check: Check, document: YamlDocument, path: FieldPath) -> None:
    """Refuse a command that names a value which one of the check's kinds of target does not have."""
    allowed = frozenset[str].intersection(*(COMMAND_VALUES.get(kind, frozenset()) for kind in check.targets))
    for index, command in enumerate(check.how):
        if command in {RESET, RESET_ALL}:
            continue
        for reset in (RESET, RESET_ALL):
            if reset in command:
                remedy = f"write {reset} as a command of its own"
                raise document.error((*path, "how", index), f"has {reset} within a command", remedy)
        _require_paired_braces(command, document, (*path, "how", index))
        for placeholder in PLACEHOLDER.findall(command):
            if placeholder not in allowed:
                problem = f"names {{{placeholder}}}, which its targets do not have"
                remedy = f"use one of {', '.join(sorted(allowed))}" if allowed else "name no value"
                raise document.error((*path, "how", index), problem, remedy)


def _applies(schema: CheckFileSchema, parser: ConditionParser) -> Compare | None:
    if isinstance(schema.applies_when, UnsetType):
        return None
    condition = parser.condition(schema.applies_when, ("applies_when",))
    if not isinstance(condition, Compare):
        remedy = "compare one signal, such as port.link_layer"
        raise parser.document.error(("applies_when",), "is more than one reading", remedy)
    return condition


def _require_clear(check: Check, document: YamlDocument, path: FieldPath) -> None:
    """Refuse a check with an event that nothing clears, and signs without an event to clear.

    A window (`over`), another event (`until`) or a sign clears an event; one of them is enough.
    """
    events = [leaf for leaf in check.leaves() if isinstance(leaf, EventOccurred)]
    lasting = [leaf for leaf in events if not leaf.over and not leaf.until]
    if lasting and not check.cleared_by:
        problem = f"is missing, and {lasting[0].event} stays active until something clears it"
        remedy = (
            "name what clears it, such as reset or reboot, or give the event an end with `over` or `until`"
        )
        raise document.entry_error(path, "cleared_by", problem, remedy)
    if check.cleared_by and not events:
        problem = "does not go with a check without an event"
        remedy = "remove it: the check ends when its condition does"
        raise document.entry_error(path, "cleared_by", problem, remedy)


def _require_known_placeholders(
    check: Check, document: YamlDocument, path: FieldPath, signals: Mapping[str, Signal]
) -> None:
    """Refuse a message that names anything but a signal or a field of the check's own events."""
    fields = {
        field
        for leaf in check.leaves()
        if isinstance(leaf, EventOccurred)
        for field in signals[leaf.event].fields
    }
    allowed = ", ".join(sorted(fields | _COMMON_PLACEHOLDERS))
    for name in ("message", "remedy"):
        text = getattr(check, name)
        _require_paired_braces(text, document, (*path, name))
        for placeholder in PLACEHOLDER.findall(text):
            if placeholder in fields | _COMMON_PLACEHOLDERS:
                continue
            signal_name, _, reference = placeholder.partition("~")
            signal = signals.get(signal_name)
            if signal is None or placeholder.endswith("~") or reference not in _REFERENCES:
                problem = f"names {{{placeholder}}}, which is no signal and no field"
                raise document.error((*path, name), problem, f"name a signal, or one of {allowed}")
            if signal.kind == "event":
                problem = f"names {{{placeholder}}}, an event, which has no value"
                raise document.error((*path, name), problem, f"name one of {allowed}")


def _require_paired_braces(text: str, document: YamlDocument, path: FieldPath) -> None:
    """Refuse a text with a brace that is not part of a `{name}`."""
    if rest := re.search(r"[{}]", PLACEHOLDER.sub("", text)):
        problem = f"has a {rest[0]} that is not part of a {{name}}"
        raise document.error(path, problem, "write the name of a value between { and }, or remove the brace")


def combine_check_files(files: Iterable[CheckFile]) -> tuple[tuple[Check, ...], dict[str, str]]:
    """Return the enabled checks of some files, and the disabled ids with the file that disables each.

    A check of a later file replaces one with the same id. Raises ConfigError where a file disables an unknown
    check, or a check is a symptom of an unknown one.
    """
    checks: dict[str, Check] = {}
    origin: dict[str, CheckFile] = {}
    disabled: dict[str, str] = {}
    for file in files:
        for check in file.checks:
            checks[check.id] = check
            origin[check.id] = file
            disabled.pop(check.id, None)
        for name in file.disabled:
            if name not in checks:
                raise _unknown_check(file, file.lines[name], "disable", name)
            disabled[name] = file.file
    for check in checks.values():
        for cause in check.symptom_of:
            if cause not in checks:
                file = origin[check.id]
                raise _unknown_check(file, file.lines.get(check.id, 0), "symptom_of", cause)
    enabled = tuple(check for name, check in sorted(checks.items()) if name not in disabled)
    return enabled, disabled


def require_classes_of_checks(files: Iterable[CheckFile], checks: Iterable[Check]) -> None:
    """Raise ConfigError where a fault class of a file has a pattern that matches no check."""
    names = [check.id for check in checks]
    for file in files:
        if file.document is not None:
            require_matching_checks(file.document, ("fault_classes",), file.fault_classes, names)


def require_signals_of_targets(
    files: Iterable[CheckFile], builtin: Iterable[Check], signals: Collection[str]
) -> None:
    """Raise ConfigError where a check of a file can never fire on its targets, or shows a value of others.

    signals: the names of all.
    """
    targets = SignalTargets(builtin)
    for file in files:
        for index, check in enumerate(file.checks if file.document is not None else ()):
            if file.document is not None and (found := targets.problem(check, signals)):
                field, problem, remedy = found
                raise file.document.error(("checks", index, field), problem, remedy)


def _unknown_check(file: CheckFile, line: int, field: str, name: str) -> ConfigError:
    return ConfigError(file.file, line, field, f"'{name}' is no check", "see `nodeguard checks`")


def list_site_files(folder: Traversable) -> list[Traversable]:
    """Return the YAML files directly in a site's folder, sorted by name.

    Raises ConfigError where the folder cannot be read, or has checks that would be ignored: a file that ends
    in .yml, or a subfolder and no file.
    """
    try:
        entries = sorted(
            (path for path in folder.iterdir() if not path.name.startswith(".")), key=lambda path: path.name
        )
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ConfigError(str(folder), 0, "", problem, "name a folder of YAML files") from None
    wrong_ending = [path for path in entries if path.name.endswith(".yml")]
    if wrong_ending:
        problem = "is not read, as it does not end in .yaml"
        raise ConfigError(str(wrong_ending[0]), 0, "", problem, "rename it to .yaml")
    files = [path for path in entries if path.name.endswith(".yaml") and not path.is_dir()]
    for path in files:
        if not path.is_file():
            problem = "is not a file, or a link to none"
            raise ConfigError(str(path), 0, "", problem, "put the file there, or remove the name")
    subfolders = [path.name for path in entries if path.is_dir()]
    if subfolders and not files:
        problem = f"has no .yaml file, only the folder {subfolders[0]}, which is not read"
        remedy = "put the files directly into the folder, with names that end in .yaml"
        raise ConfigError(str(folder), 0, "", problem, remedy)
    return files


def require_unique_ids(files: Iterable[CheckFile]) -> None:
    """Raise ConfigError where two files of one folder have a check with the same id."""
    first: dict[str, CheckFile] = {}
    for file in files:
        for check in file.checks:
            other = first.setdefault(check.id, file)
            if other is not file:
                problem = f"'{check.id}' is in {other.file}:{other.lines[check.id]}, too"
                line = file.lines[check.id]
                raise ConfigError(file.file, line, "id", problem, "rename or remove one of them")
