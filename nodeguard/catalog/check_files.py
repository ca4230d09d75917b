"""Files of checks: read, held against the signals that exist, and turned into checks.

A wrong one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, UnsetType
from msgspec.structs import replace

from nodeguard.catalog.check_schema import CheckFileSchema, CheckSchema
from nodeguard.catalog.conditions import ConditionError, parse_condition
from nodeguard.config.yaml_document import ConfigError, YamlDocument, convert, load_yaml
from nodeguard.model.check import Check, Compare, EventOccurred
from nodeguard.model.finding import Health
from nodeguard.model.signal import Signal

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


_PLACE = re.compile(r"\{([^}]*)\}")

# What a sentence may name besides signals and an event's fields.
_ALWAYS = frozenset({"slot", "part", "count"})


class CheckFile(Struct, frozen=True):
    """What a file of checks holds. lines: where each check begins, and each id that is to be disabled."""

    file: str
    checks: tuple[Check, ...]
    disabled: tuple[str, ...]
    lines: dict[str, int]


def read_check_file(path: Path | Traversable, signals: Mapping[str, Signal]) -> CheckFile:
    """The checks of one YAML file.

    signals: all that exist, by name. Raises CatalogueError for the first defect.
    """
    located = load_yaml(path)
    form = convert(located, CheckFileSchema)
    applies = _applies(form, located, signals)
    checks = []
    lines: dict[str, int] = {}
    for at, one in enumerate(form.checks):
        if one.id in lines:
            raise located.error(
                ("checks", at, "id"), f"'{one.id}' stands twice", "rename or remove one of them"
            )
        lines[one.id] = located.line(("checks", at))
        checks.append(replace(_check(one, form, located, at, signals), applies=applies))
    for at, name in enumerate(form.disable):
        lines.setdefault(name, located.line(("disable", at)))
    return CheckFile(located.file, tuple(checks), tuple(form.disable), lines)


def _check(
    form: CheckSchema, file: CheckFileSchema, located: YamlDocument, at: int, signals: Mapping[str, Signal]
) -> Check:
    place = ("checks", at)
    family = file.family if isinstance(form.family, UnsetType) else form.family
    if isinstance(family, UnsetType):
        raise located.error((*place, "family"), "is missing", "say it here, or once for the whole file")
    try:
        when = parse_condition(form.when, signals)
    except ConditionError as defect:
        raise located.error((*place, *_steps(defect.field)), defect.problem, defect.remedy) from None
    check = Check(
        id=form.id,
        title=form.title,
        family=family,
        targets=(form.target,) if isinstance(form.target, str) else tuple(dict.fromkeys(form.target)),
        health=form.health,
        action=form.action,
        when=when,
        message=form.message,
        remedy=form.remedy,
        explanation=form.explain.strip(),
        source=form.basis,
        clears=tuple(form.clears),
        topologies=tuple(form.views),
        symptom_of=tuple(form.symptom_of),
        runbook=f"docs/checks.md#{form.id}",
        hardware=tuple(file.hardware),
    )
    _held_to_clear(check, located, place)
    _held_to_what_exists(check, located, place, signals)
    return check


def _applies(form: CheckFileSchema, located: YamlDocument, signals: Mapping[str, Signal]) -> Compare | None:
    if isinstance(form.applies, UnsetType):
        return None
    try:
        found = parse_condition(form.applies, signals, "applies")
    except ConditionError as defect:
        raise located.error(_steps(defect.field), defect.problem, defect.remedy) from None
    if not isinstance(found, Compare):
        raise located.error(
            ("applies",), "is more than one reading", "compare one signal, such as port.link_layer"
        )
    return found


def _steps(field: str) -> tuple[str | int, ...]:
    """`when.any[1].signal` as steps."""
    return tuple(int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", field))


def _held_to_clear(check: Check, located: YamlDocument, place: tuple[str | int, ...]) -> None:
    """Refuse a check with an event that nothing ends, and signs that end no event.

    An event ends with a window, another event (`until`), or a sign. One with `until` can have signs as well.
    """
    without_window = [leaf for leaf in check.leaves() if isinstance(leaf, EventOccurred) and not leaf.over]
    lasting = [leaf for leaf in without_window if not leaf.until]
    if lasting and not check.clears:
        problem = f"is missing, and {lasting[0].event} stands until something clears it"
        remedy = (
            "name what clears it, such as reset or reboot, or give the event an end with `over` or `until`"
        )
        raise located.error((*place, "clears"), problem, remedy)
    if check.clears and not without_window:
        problem = "is said of a check that hears of no lasting event"
        raise located.error((*place, "clears"), problem, "take it away: it ends when its condition does")


def _held_to_what_exists(
    check: Check, located: YamlDocument, place: tuple[str | int, ...], signals: Mapping[str, Signal]
) -> None:
    """Sentences name only signals, and fields of the check's own events."""
    fields = {
        field
        for leaf in check.leaves()
        if isinstance(leaf, EventOccurred)
        for field in signals[leaf.event].fields
    }
    for name in ("message", "remedy"):
        for word in _PLACE.findall(getattr(check, name)):
            if word.partition("~")[0] not in signals and word not in fields | _ALWAYS:
                known = ", ".join(sorted(fields | _ALWAYS))
                problem = f"names {{{word}}}, which is no signal and no field"
                raise located.error((*place, name), problem, f"name a signal, or one of {known}")
    if check.health == Health.OK and check.action != "none":
        raise located.error((*place, "action"), "is said of a check that finds nothing wrong", "write `none`")


def combine_check_files(files: Iterable[CheckFile]) -> tuple[tuple[Check, ...], dict[str, str]]:
    """All checks of some files, and the disabled ones with the file that says so.

    Files come in order: a check of a later file replaces one of the same id. Raises CatalogueError where a
    file disables what is not there, or a check is a symptom of one that is not there.
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
                line = file.lines[name]
                raise ConfigError(
                    file.file, line, "disable", f"'{name}' is no check", "see `nodeguard checks`"
                )
            disabled[name] = file.file
    for check in checks.values():
        for cause in check.symptom_of:
            if cause not in checks:
                file = origin[check.id]
                problem = f"'{cause}' is no check"
                line = file.lines.get(check.id, 0)
                raise ConfigError(file.file, line, "symptom_of", problem, "see `nodeguard checks`")
    standing = tuple(check for name, check in sorted(checks.items()) if name not in disabled)
    return standing, disabled


def list_site_files(folder: Traversable) -> list[Traversable]:
    """Return the YAML files that lie directly in a folder, sorted by name; none where it is empty.

    Raises CatalogueError where the folder cannot be read, or holds checks that would be ignored: a file that
    ends in .yml, or nothing but a subfolder.
    """
    try:
        there = sorted(
            (path for path in folder.iterdir() if not path.name.startswith(".")), key=lambda path: path.name
        )
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ConfigError(str(folder), 0, "", problem, "name a folder of YAML files") from None
    other = [path for path in there if path.name.endswith(".yml")]
    if other:
        raise ConfigError(
            str(other[0]), 0, "", "is not read, as it does not end in .yaml", "rename it to .yaml"
        )
    found = [path for path in there if path.name.endswith(".yaml") and path.is_file()]
    subfolders = [path.name for path in there if path.is_dir()]
    if subfolders and not found:
        problem = f"holds no .yaml file, only the folder {subfolders[0]}, which is not read"
        remedy = "put the files directly into the folder, with names that end in .yaml"
        raise ConfigError(str(folder), 0, "", problem, remedy)
    return found


def require_unique_ids(files: Iterable[CheckFile]) -> None:
    """Raises CatalogueError where two files of one folder have a check of the same id."""
    first: dict[str, CheckFile] = {}
    for file in files:
        for check in file.checks:
            other = first.setdefault(check.id, file)
            if other is not file:
                problem = f"'{check.id}' stands in {other.file}:{other.lines[check.id]}, too"
                raise ConfigError(
                    file.file, file.lines[check.id], "id", problem, "rename or remove one of them"
                )
