"""The package: a wheel with the compiled catalogue and the files of an installation, an sdist that builds it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.slow

YAML = {
    f"nodeguard/checks/{path.relative_to(ROOT / 'checks')}" for path in (ROOT / "checks").glob("**/*.yaml")
}


def build(source: Path, kind: str, target: Path) -> Path:
    """Build a wheel or sdist of a source tree with the tools that are installed here.

    Without `site`, which would find the package of this clone, as no build of a user does.
    """
    target.mkdir()
    code = (
        "import sys; sys.path.append(sys.argv[2]); from setuptools import build_meta; "
        f"print(build_meta.build_{kind}(sys.argv[1]))"
    )
    installed = sysconfig.get_paths()["purelib"]
    made = subprocess.run(
        [sys.executable, "-S", "-W", "error::SyntaxWarning", "-c", code, str(target), installed],
        cwd=source,
        check=True,
        capture_output=True,
        text=True,
    )
    return target / made.stdout.splitlines()[-1]


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


# Files of the repository that a build may see.
_TREE = (
    "nodeguard",
    "checks",
    "daemonset",
    "tests/*.py",
    "tests/judge",
    ":/*.py",
    ":/*.toml",
    ":/*.md",
    ":/*.in",
    ":/LICENSE",
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tracked files that are not ignored by the build, and of some tests, which are."""
    copy = tmp_path_factory.mktemp("tree")
    listed = subprocess.run(["git", "ls-files", "-z", *_TREE], cwd=ROOT, check=True, capture_output=True)  # fmt: skip
    for name in listed.stdout.decode().split("\0"):
        if name:
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, "wheel", tmp_path_factory.mktemp("built") / "wheel")


@pytest.fixture(scope="module")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, "sdist", tmp_path_factory.mktemp("built") / "sdist")


def metadata(wheel: Path) -> Message:
    return message_from_bytes(contents(wheel)["gpu_nodeguard-0.1.0.dist-info/METADATA"])


def test_the_wheel_holds_the_catalogue_compiled_and_as_yaml(wheel: Path) -> None:
    names = set(contents(wheel))
    assert "nodeguard/checks/compiled.msgpack" in names
    assert names >= YAML
    assert "nodeguard/py.typed" in names
    assert "nodeguard/aggregator/policy/example.yaml" in names
    assert {
        f"nodeguard/aggregator/pages/static/{name}" for name in ("icon.svg", "page.css", "page.js")
    } <= names


def test_the_wheel_installs_the_command_and_the_kubectl_plug_in(wheel: Path) -> None:
    programs = contents(wheel)["gpu_nodeguard-0.1.0.dist-info/entry_points.txt"].decode()
    assert programs.split() == [
        *("[console_scripts]", "kubectl-nodeguard", "=", "nodeguard.cli.main:kubectl_main"),
        *("nodeguard", "=", "nodeguard.cli.main:main"),
    ]


def test_no_other_top_level_package_is_installed(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in contents(wheel)}
    assert tops == {"nodeguard", "gpu_nodeguard-0.1.0.dist-info", "gpu_nodeguard-0.1.0.data"}


def test_the_wheel_installs_units_manifests_and_alerts(wheel: Path) -> None:
    prefix = "gpu_nodeguard-0.1.0.data/data/share/nodeguard/"
    installed = {
        name.removeprefix(prefix): content
        for name, content in contents(wheel).items()
        if name.startswith("gpu_nodeguard-0.1.0.data/")
    }
    shipped = [path for path in (ROOT / "daemonset").rglob("*") if path.is_file()]
    assert {name: content for name, content in installed.items() if name.startswith("daemonset/")} == {
        str(path.relative_to(ROOT)): path.read_bytes() for path in shipped
    }
    assert {
        "daemonset/nodeguard-agent.service",
        "daemonset/kustomization.yaml",
        "daemonset/alerts/agent.yaml",
        "daemonset/alerts/node.yaml",
    } <= (installed.keys())


def test_the_wheel_installs_the_man_page_and_completions(wheel: Path) -> None:
    prefix = "gpu_nodeguard-0.1.0.data/data/share/"
    files = contents(wheel)
    assert b".TH" in files[f"{prefix}man/man1/nodeguard.1"]
    for name, line in (
        ("bash-completion/completions/nodeguard", b"-F _nodeguard nodeguard"),
        ("zsh/site-functions/_nodeguard", b"#compdef nodeguard"),
        ("fish/vendor_completions.d/nodeguard.fish", b"complete -c nodeguard"),
    ):
        assert line in files[prefix + name]


def test_the_metadata_names_the_project_and_its_pages(wheel: Path) -> None:
    fields = metadata(wheel)
    assert fields["Name"] == "gpu-nodeguard"
    pages = dict(page.split(", ", 1) for page in fields.get_all("Project-URL", []))
    assert pages.keys() == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    classifiers = fields.get_all("Classifier", [])
    assert "Programming Language :: Python :: 3.11" in classifiers
    assert any(classifier.startswith("Development Status ::") for classifier in classifiers)


def test_each_link_of_the_index_page_is_absolute_and_names_a_file(wheel: Path) -> None:
    page = str(metadata(wheel).get_payload())
    assert page.startswith("# nodeguard\n")
    files = "https://github.com/nodeguard/nodeguard/blob/v0.1.0/"
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert len(links) > 10
    for link in links:
        assert link.startswith("https://"), link
        if link.startswith(files):
            assert (ROOT / link.removeprefix(files).partition("#")[0]).exists(), link


def test_an_invalid_check_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "nodeguard").symlink_to(ROOT / "nodeguard")
    shutil.copytree(ROOT / "checks", tmp_path / "checks", ignore=shutil.ignore_patterns("compiled.msgpack"))
    thermal = tmp_path / "checks" / "thermal.yaml"
    thermal.write_text(thermal.read_text().replace("health: warning", "health: warm", 1))
    command = [sys.executable, "setup.py", "--quiet", "compile_catalogue"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 1
    assert re.fullmatch(rf"{re.escape(str(thermal))}:\d+: health: .*\n", made.stderr)


def test_the_sdist_holds_what_a_build_needs_and_no_tests(sdist: Path, tree: Path) -> None:
    with tarfile.open(sdist) as archive:
        files = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "setup.py"} <= files
    tracked = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    assert {name for name in tracked if name.startswith(("nodeguard/", "checks/", "daemonset/"))} <= files
    assert not [name for name in files if name.startswith(("tests/", "fixtures/", "bench/"))]


def test_the_sdist_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
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


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "nodeguard", "--version"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "nodeguard 0.1.0\n"
