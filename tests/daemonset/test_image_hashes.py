"""The packages of the images, with their hashes: those of constraints.txt, complete, and without an index. Offline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.image.install import MACHINES
from scripts.image.requirements import requirements
from scripts.image_hashes import DIRECTORY, FILES, text
from tests.paths import ROOT

REMEDY = "run `python -m scripts.image_hashes`"

# Of the images, which tests of other machines check too.
ENVIRONMENT = {
    "python_version": "3.11",
    "python_full_version": "3.11.15",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
}


def pinned(name: str) -> dict[str, list[str]]:
    """Return the hashes of a file by the name and version of the package."""
    content = (DIRECTORY / f"{name}.txt").read_text().replace(" \\\n", " ")
    lines = [line.split() for line in content.splitlines() if not line.startswith("#")]
    return {line[0]: [option.removeprefix("--hash=sha256:") for option in line[1:]] for line in lines}


def needed(requirement: Requirement, seen: set[str]) -> Iterator[str]:
    """Yield the names of the packages that a requirement needs at run time, with itself."""
    name = canonicalize_name(requirement.name)
    if name in seen:
        return
    seen.add(name)
    yield name
    for line in requires(name) or ():
        further = Requirement(line)
        extras = requirement.extras or {""}
        if further.marker is None or any(
            further.marker.evaluate({**ENVIRONMENT, "extra": extra}) for extra in extras
        ):
            yield from needed(further, seen)


@pytest.mark.parametrize("name", FILES)
def test_versions_are_those_of_the_constraints(name: str) -> None:
    constraints = {
        canonicalize_name(package): version
        for package, _, version in (
            line.partition("==") for line in (ROOT / "constraints.txt").read_text().split()
        )
    }
    for line in pinned(name):
        package, _, version = line.partition("==")
        assert constraints[canonicalize_name(package)] == version, REMEDY


@pytest.mark.parametrize(("name", "arguments"), FILES.items(), ids=FILES)
def test_each_package_is_listed(name: str, arguments: list[str]) -> None:
    seen: set[str] = set()
    wanted = requirements(ROOT / "pyproject.toml", arguments)
    expected = {package for line in wanted for package in needed(Requirement(line), seen)}
    listed = {canonicalize_name(line.partition("==")[0]) for line in pinned(name)}
    assert listed == expected, REMEDY


@pytest.mark.parametrize("name", FILES)
def test_each_package_has_a_hash_for_each_machine_type(name: str) -> None:
    for line, hashes in pinned(name).items():
        assert 1 <= len(hashes) <= len(MACHINES), line
        assert all(re.fullmatch("[0-9a-f]{64}", value) for value in hashes), line
    content = (DIRECTORY / f"{name}.txt").read_text()
    assert "://" not in content
    assert "index" not in content


def test_a_wheel_for_all_machine_types_has_one_hash() -> None:
    hashes = [{"a==1": "0" * 64, "b==2": "1" * 64}, {"a==1": "0" * 64, "b==2": "2" * 64, "C==3": "3" * 64}]
    assert text(hashes).splitlines()[1:] == [
        "a==1 \\",
        f"    --hash=sha256:{'0' * 64}",
        "b==2 \\",
        f"    --hash=sha256:{'1' * 64} \\",
        f"    --hash=sha256:{'2' * 64}",
        "C==3 \\",
        f"    --hash=sha256:{'3' * 64}",
    ]
