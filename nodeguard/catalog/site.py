"""A site's folders of checks: which files in them are read, and what they may not hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nodeguard.catalog.located import CatalogueError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from nodeguard.catalog.checks import CheckFile


def site_files(folder: Traversable) -> list[Traversable]:
    """The YAML files of a folder. Raises CatalogueError where there is none, or one would be left."""
    try:
        there = sorted(
            (path for path in folder.iterdir() if not path.name.startswith(".")), key=lambda path: path.name
        )
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise CatalogueError(str(folder), 0, "", problem, "name a folder of YAML files") from None
    other = [path for path in there if path.name.endswith(".yml")]
    if other:
        raise CatalogueError(
            str(other[0]), 0, "", "is not read, as it does not end in .yaml", "rename it to .yaml"
        )
    found = [path for path in there if path.name.endswith(".yaml") and path.is_file()]
    if not found:
        folders = [path.name for path in there if path.is_dir()]
        held = f", only the folder {folders[0]}, which is not looked into" if folders else ""
        remedy = "put the files directly into the folder, with names that end in .yaml"
        raise CatalogueError(str(folder), 0, "", f"holds no .yaml file{held}", remedy)
    return found


def held_apart(files: Iterable[CheckFile]) -> None:
    """Raises CatalogueError where two files of one folder have a check of the same id."""
    first: dict[str, CheckFile] = {}
    for file in files:
        for check in file.checks:
            other = first.setdefault(check.id, file)
            if other is not file:
                problem = f"'{check.id}' stands in {other.file}:{other.lines[check.id]}, too"
                raise CatalogueError(
                    file.file, file.lines[check.id], "id", problem, "rename or remove one of them"
                )
