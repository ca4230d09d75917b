"""The Containerfiles build from the files that they copy, with pinned versions and no registry."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.wheelhouse import PYTHON
from tests.daemonset.manifests import AGENT, AGGREGATOR, DAEMONSET, document

pytestmark = pytest.mark.slow

ROOT = DAEMONSET.parent
FILES = ["Containerfile.agent", "Containerfile.aggregator"]


def instructions(file: str) -> list[tuple[str, str]]:
    """The instructions of a file with their arguments."""
    text = (ROOT / file).read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def copied(file: str) -> list[tuple[list[str], str]]:
    """The sources of the working tree and the target of each COPY."""
    copies = [rest.split() for word, rest in instructions(file) if word == "COPY" and "--from" not in rest]
    return [(words[:-1], words[-1]) for words in copies]


def test_the_wheel_builds_from_the_copied_files(tmp_path: Path) -> None:
    """Both images copy the same files, so that it is built once."""
    agent, aggregator = map(copied, FILES)
    assert agent == aggregator
    for sources, target in agent:
        for source in sources:
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "compiled.msgpack")
                shutil.copytree(ROOT / source, tmp_path / target, ignore=ignored)
            else:
                shutil.copy(ROOT / source, tmp_path / target)
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(wheels), str(tmp_path)]
    subprocess.run([*pip, *options], check=True, capture_output=True)
    (wheel,) = wheels.glob("gpu_nodeguard-*.whl")
    assert "nodeguard/checks/compiled.msgpack" in zipfile.ZipFile(wheel).namelist()


@pytest.mark.parametrize("file", FILES)
def test_the_build_context_is_what_is_copied(file: str) -> None:
    context = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {source for sources, _ in copied(file) for source in sources} == context


@pytest.mark.parametrize("file", FILES)
def test_packages_are_installed_with_their_hashes(file: str) -> None:
    runs = [rest for word, rest in instructions(file) if word == "RUN"]
    of_build, own_wheel = (rest for rest in runs if " pip " in rest and " install " in rest)
    assert "--require-hashes --requirement requirements/build.txt" in of_build
    assert "--no-deps --no-index dist/*.whl" in own_wheel
    [of_image] = [rest.split() for rest in runs if "image/install.py" in rest]
    assert of_image[2:4] == ['"$TARGETARCH"', f"requirements/{file.removeprefix('Containerfile.')}.txt"]
    assert '"--require-hashes"' in (ROOT / "scripts/image/install.py").read_text()


@pytest.mark.parametrize("file", FILES)
def test_no_step_runs_on_the_processor_of_the_image(file: str) -> None:
    stage = ""
    for word, rest in instructions(file):
        if word == "FROM":
            stage = rest
        assert word != "RUN" or stage.startswith("--platform=$BUILDPLATFORM "), rest


@pytest.mark.parametrize("file", FILES)
def test_base_image_is_pinned_by_its_digest_and_names_no_registry(file: str) -> None:
    bases = {
        rest.removeprefix("--platform=$BUILDPLATFORM ").split()[0]
        for word, rest in instructions(file)
        if word == "FROM"
    }
    assert bases == {"scratch", "${BASE}"}
    (base,) = [rest for word, rest in instructions(file) if word == "ARG" and rest.startswith("BASE=")]
    assert re.fullmatch(rf"BASE=python:{re.escape(PYTHON)}\.\d+-slim-bookworm@sha256:[0-9a-f]{{64}}", base)


def test_both_images_have_the_same_base() -> None:
    bases = [dict(instructions(file)[:1]) for file in FILES]
    assert bases[0] == bases[1]


def test_user_of_the_aggregator_is_that_of_its_manifest() -> None:
    (user,) = [rest for word, rest in instructions("Containerfile.aggregator") if word == "USER"]
    context = document("Deployment", AGGREGATOR)["spec"]["template"]["spec"]["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


@pytest.mark.parametrize(("kind", "name"), [("DaemonSet", AGENT), ("Deployment", AGGREGATOR)])
def test_arguments_of_the_manifest_match_the_entry_point(kind: str, name: str) -> None:
    by_name = dict(instructions(f"Containerfile.{name.removeprefix('nodeguard-')}"))
    assert by_name["ENTRYPOINT"] == '["nodeguard"]'
    (container,) = document(kind, name)["spec"]["template"]["spec"]["containers"]
    assert f'"{container["args"][0]}"' in by_name["CMD"]
