"""The workflow and the forms of the public forge."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_the_workflow_runs_targets_of_the_makefile() -> None:
    workflow = loaded(ROOT / ".github/workflows/checks.yml")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    targets = {word for step in steps if "run" in step for word in step["run"].removeprefix("make ").split()}
    makefile = (ROOT / "Makefile").read_text()
    assert {"lint", "quick", "test-cluster"} <= targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    assert workflow["permissions"] == {"contents": "read"}


def test_the_release_of_a_tag_has_its_files_and_rights() -> None:
    [job] = loaded(ROOT / ".github/workflows/release.yml")["jobs"].values()
    assert job["permissions"] == {"contents": "write", "id-token": "write", "attestations": "write"}
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[:2] == ["make release", '.venv/bin/python -m scripts.version "$GITHUB_REF_NAME"']
    text = (ROOT / ".github/workflows/release.yml").read_text()
    for part in re.findall(r"for part in (.*?);", text)[0].split():
        assert (ROOT / f"Containerfile.{part}").is_file()
    # A site names its registry in a variable of the repository.
    assert not re.search(r"(?:ghcr|docker|quay)\.io", text)


def test_the_cache_of_the_workflow_depends_on_files_that_exist() -> None:
    [patterns] = re.findall(r"hashFiles\((.*?)\)", (ROOT / ".github/workflows/checks.yml").read_text())
    assert all(any(ROOT.glob(pattern)) for pattern in re.findall(r"'(.*?)'", patterns))


@pytest.mark.parametrize("form", FORMS, ids=[path.stem for path in FORMS])
def test_a_form_asks_for_the_version(form: Path) -> None:
    fields = {field["id"]: field for field in loaded(form)["body"]}
    assert fields["version"]["validations"] == {"required": True}
    assert all(field["attributes"]["label"] for field in fields.values())


def test_the_workflows_run_actions_of_a_commit() -> None:
    workflows = (ROOT / ".github/workflows").glob("*.yml")
    used = [line for path in workflows for line in path.read_text().splitlines() if "uses:" in line]
    # A tag can be moved to other code; a commit cannot.
    assert used
    assert all(re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line) for line in used), used
