"""What is built: a wheel that carries the catalogue compiled, an sdist that builds the same wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT

YAML = {
    f"nodeguard/checks/{path.relative_to(ROOT / 'checks')}" for path in (ROOT / "checks").glob("**/*.yaml")
}


def build(source: Path, kind: str, target: Path) -> Path:
    """Build a wheel or sdist of a source tree with the tools that are installed here."""
    target.mkdir()
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    made = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", "-c", code, str(target)],
        cwd=source,
        check=True,
        capture_output=True,
        text=True,
    )
    return target / made.stdout.splitlines()[-1]


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that git knows, as a newcomer gets them."""
    copy = tmp_path_factory.mktemp("tree")
    listed = subprocess.run(["git", "ls-files", "-z", "nodeguard", "checks", "*.py", "*.toml", "*.md", "LICENSE"], cwd=ROOT, check=True, capture_output=True)  # fmt: skip
    for name in listed.stdout.decode().split("\0"):
        if name and not name.startswith(("tests/", "fixtures/", "bench/", "docs/")):
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, "wheel", tmp_path_factory.mktemp("built") / "wheel")


def test_the_wheel_holds_the_catalogue_compiled_and_as_yaml(wheel: Path) -> None:
    names = set(contents(wheel))
    assert "nodeguard/checks/compiled.msgpack" in names
    assert names >= YAML
    assert "nodeguard/py.typed" in names
    assert "nodeguard/aggregator/policy/example.yaml" in names


def test_no_other_top_level_package_is_installed(wheel: Path) -> None:
    assert {name.split("/")[0] for name in contents(wheel)} == {"nodeguard", "nodeguard-0.1.0.dist-info"}


def test_the_sdist_builds_the_same_wheel(tree: Path, wheel: Path, tmp_path: Path) -> None:
    sdist = build(tree, "sdist", tmp_path / "sdist")
    subprocess.run(["tar", "-xzf", str(sdist), "-C", str(tmp_path)], check=True)
    again = build(tmp_path / sdist.name.removesuffix(".tar.gz"), "wheel", tmp_path / "again")
    assert contents(again) == contents(wheel)


def test_an_installed_wheel_judges_without_parsing_yaml(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = (
        "import sys; from nodeguard.cli.main import main; code = main(['check', '--family', 'kernel']);"
        "import nodeguard; assert nodeguard.__file__.startswith(sys.argv[1]), nodeguard.__file__;"
        "sys.exit('yaml was imported' if 'yaml' in sys.modules else code)"
    )
    ran = subprocess.run(  # noqa: PLW1510 - its exit code is what is looked at
        [sys.executable, "-c", code, str(site)],
        env={"PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode in {0, 1, 2}, ran.stderr
    assert "yaml" not in ran.stderr
