"""The files of a release: equal in each build, installable, and with one version."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeguard import __version__
from scripts.version import FILES, version, with_version
from tests.daemonset.helm import CHART, Helm, objects
from tests.paths import ROOT
from tests.wheels import wheels

# One process builds the release for all tests.
pytestmark = pytest.mark.xdist_group("release")

WHEEL = f"gpu_nodeguard-{__version__}-py3-none-any.whl"
SDIST = f"gpu_nodeguard-{__version__}.tar.gz"
PACKAGE = f"nodeguard-{__version__}.tgz"
BILL = f"gpu_nodeguard-{__version__}.cdx.json"


def run(command: Sequence[str | Path], cwd: Path, **variables: str) -> str:
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=cwd, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def checkout(directory: Path) -> Path:
    """Make a repository with one commit: the tracked files of the working tree."""
    directory.mkdir()
    copy = f"git -C {ROOT} ls-files -z | tar -C {ROOT} -c --null -T - | tar -C {directory} -x"
    run(["sh", "-c", copy], directory)
    date = "2030-01-02T03:04:05Z"
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false"]
    run(["git", "init", "--quiet"], directory)
    # To compress all files takes longer than all else here.
    run(["git", "-c", "core.compression=0", "add", "--all"], directory)
    commit = ["git", *identity, "commit", "--quiet", "--no-verify", "--message=Release"]
    run(commit, directory, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
    return directory


def release(clone: Path, **variables: str) -> Path:
    run([sys.executable, "-m", "scripts.release"], clone, **variables)
    return clone / "dist"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("release") / "clone")


@pytest.fixture(scope="module")
def dist(clone: Path) -> Path:
    return release(clone)


@pytest.mark.slow
def test_two_builds_are_equal(clone: Path, dist: Path, tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        run(["git", "clone", "--quiet", clone, "elsewhere"], tmp_path)
        again = release(tmp_path / "elsewhere", TZ="Asia/Tokyo", COLUMNS="40", LC_ALL="C")
    finally:
        os.umask(previous)
    assert {path.name for path in dist.iterdir()} == {WHEEL, SDIST, PACKAGE, BILL, "SHA256SUMS"}
    for path in dist.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name


@pytest.mark.slow
def test_the_checksums_are_those_of_all_files(dist: Path) -> None:
    run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], dist)
    assert len((dist / "SHA256SUMS").read_text().splitlines()) == len(list(dist.iterdir())) - 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [WHEEL, SDIST])
def test_a_new_environment_checks_a_recording(dist: Path, tmp_path: Path, name: str) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    # The pip of this environment serves the new one: to install another takes seconds.
    run([sys.executable, "-m", "venv", "--without-pip", python.parents[1]], tmp_path)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", f"--python={python}", "install"]
    options = ["--quiet", "--no-compile", "--no-index", f"--find-links={wheels()}"]
    # False: the build of the sdist does not compile its packages either.
    run([*pip, *options, dist / name], tmp_path, PIP_NO_COMPILE="false")
    checked = subprocess.run(
        [python.with_name("nodeguard"), "check", "--from", ROOT / "fixtures" / "gpu-off-bus"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 2, checked.stderr
    assert "gpu-lost" in checked.stdout


@pytest.mark.slow
def test_the_chart_package_renders_the_same_objects(dist: Path, helm: Helm) -> None:
    packaged = objects(helm("template", "nodeguard", str(dist / PACKAGE), values={}))
    assert list(packaged) == list(objects(helm("template", "nodeguard", str(CHART), values={})))
    with tarfile.open(dist / PACKAGE) as archive:
        assert {name.partition("/")[0] for name in archive.getnames()} == {"nodeguard"}


@pytest.mark.slow
def test_the_bill_of_materials_is_of_the_wheel_and_the_pinned_packages(dist: Path) -> None:
    bill = json.loads((dist / BILL).read_text())
    digest = hashlib.sha256((dist / WHEEL).read_bytes()).hexdigest()
    product = bill["metadata"]["component"]
    assert (product["version"], product["hashes"]) == (__version__, [{"alg": "SHA-256", "content": digest}])
    pinned = re.findall(
        r"^(\S+)==(\S+)", (ROOT / "requirements" / "aggregator.txt").read_text(), re.MULTILINE
    )
    assert len(bill["components"]) == len(pinned)
    versions = {component["name"]: component["version"] for component in bill["components"]}
    assert versions["aiohttp"] == dict(pinned)["aiohttp"]
    assert all(component["licenses"] for component in bill["components"])


@pytest.mark.slow
def test_a_changed_working_tree_is_refused(clone: Path) -> None:
    forgotten = clone / "nodeguard" / "forgotten.py"
    forgotten.touch()
    refused = subprocess.run(
        [sys.executable, "-m", "scripts.release"], cwd=clone, check=False, capture_output=True, text=True
    )
    forgotten.unlink()
    assert refused.returncode != 0
    assert "commit or remove these changes first:\n?? nodeguard/forgotten.py" in refused.stderr


def test_the_version_has_one_source() -> None:
    assert version() == __version__
    for name in FILES:
        text = (ROOT / name).read_text()
        assert with_version(text, version()) == text, "run `python -m scripts.version`"
        changed = with_version(text, "9.8.7")
        assert changed != text, name
        assert version() not in changed, name
