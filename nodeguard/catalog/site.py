"""A site's folders of checks: which files in them are read, and what they may not hold.

A folder may be empty: a ConfigMap that is optional and missing is mounted as an empty folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nodeguard.catalog.located import CatalogueError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from nodeguard.catalog.checks import CheckFile


def site_files(folder: Traversable) -> list[Traversable]:
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
        raise CatalogueError(str(folder), 0, "", problem, "name a folder of YAML files") from None
    other = [path for path in there if path.name.endswith(".yml")]
    if other:
        raise CatalogueError(
            str(other[0]), 0, "", "is not read, as it does not end in .yaml", "rename it to .yaml"
        )
    found = [path for path in there if path.name.endswith(".yaml") and path.is_file()]
    subfolders = [path.name for path in there if path.is_dir()]
    if subfolders and not found:
        problem = f"holds no .yaml file, only the folder {subfolders[0]}, which is not read"
        remedy = "put the files directly into the folder, with names that end in .yaml"
        raise CatalogueError(str(folder), 0, "", problem, remedy)
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
