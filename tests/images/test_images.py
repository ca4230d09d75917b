"""The images as they are built: their size, their configuration, and their contents in a real container."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from scripts.image.prune import GENERATED
from tests.images.archives import Archives
from tests.images.store import AGENT, AGGREGATOR, TAG, name
from tests.kubelet.site import Site
from tests.paths import ROOT

pytestmark = pytest.mark.slow

IMAGES = (AGENT, AGGREGATOR)
MB = 10**6

# Bytes beyond the base image.
LIMITS = {AGENT: 90 * MB, AGGREGATOR: 150 * MB}

SITE_PACKAGES = "opt/nodeguard/lib/python3.11/site-packages"


def configuration(images: Archives, image: str) -> Any:
    return images.store.inspect(name(image))["OCIv1"]["config"]


@pytest.mark.parametrize("image", IMAGES)
def test_size_beyond_the_base(images: Archives, image: str) -> None:
    assert images.store.size(name(image)) - images.store.size(images.store.base) <= LIMITS[image]


@pytest.mark.parametrize("image", IMAGES)
def test_labels(images: Archives, image: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = configuration(images, image)["Labels"]
    expected = {
        "title": image,
        "version": project["version"],
        "licenses": project["license"],
        "source": project["urls"]["Source"],
    }
    assert {key: labels[f"org.opencontainers.image.{key}"] for key in expected} == expected
    assert project["version"] == TAG


def test_the_aggregator_is_not_root(images: Archives) -> None:
    assert configuration(images, AGGREGATOR)["User"] == "65532:65532"
    assert configuration(images, AGENT)["User"] == "0:0"  # for the kernel log and NVML


@pytest.mark.parametrize("image", IMAGES)
def test_the_bill_of_materials_names_what_is_installed(images: Archives, image: str, tmp_path: Path) -> None:
    images.store.write_bill(image, tmp_path)
    bill = json.loads((tmp_path / f"{image}.cdx.json").read_text())
    with images.store.files(name(image)) as root:
        assert json.loads((root / "opt/nodeguard/sbom.cdx.json").read_text()) == bill
        installed = {
            path.name.removesuffix(".dist-info") for path in (root / SITE_PACKAGES).glob("*.dist-info")
        }
    found = {(part["name"], part["version"]): part for part in bill["components"]}
    pypi = {key for key, part in found.items() if part["purl"].startswith("pkg:pypi/")}
    assert len(pypi) == len(installed)
    assert ("gpu-nodeguard", TAG) in pypi
    assert any(part["purl"].startswith("pkg:deb/debian/libc6@") for part in found.values())
    assert bill["metadata"]["component"]["name"] == image
    (aiohttp,) = [part for part in found.values() if part["name"] == "aiohttp"] or [None]
    assert (aiohttp is not None) == (image == AGGREGATOR)


def test_the_agent_has_no_library_of_the_aggregator(images: Archives) -> None:
    with images.store.files(name(AGENT)) as root:
        packages = {path.name for path in (root / SITE_PACKAGES).iterdir()}
    assert packages.isdisjoint({"aiohttp", "cryptography", "kubernetes", "pip", "pydantic", "uvloop"})


def test_generated_classes_are_left_out(images: Archives) -> None:
    with images.store.files(name(AGGREGATOR)) as root:
        for directory in GENERATED:
            files = [
                path
                for path in (root / SITE_PACKAGES / "kubernetes" / directory).rglob("*")
                if path.is_file()
            ]
            assert {path.name.partition(".")[0] for path in files} == {"__init__"}


# Runs in a container: every module of nodeguard is imported, as unused parts of it may be at run time.
IMPORTS = """
import importlib, pkgutil, sys
import nodeguard
skipped = tuple(sys.argv[1:])
for module in pkgutil.walk_packages(nodeguard.__path__, "nodeguard."):
    if not module.name.startswith(skipped or "-") and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print("imported", len(sys.modules) > 500)
"""


def run_in_container(site: Site, image: str, *command: str) -> str:
    """Run a command in a container on a node: read-only root, no shell, no network."""
    node = site.nodes["node-1"]
    no_shell = [
        f"--mount=type=bind,src=/dev/null,dst=/usr/bin/{shell},options=bind:ro" for shell in ("dash", "bash")
    ]
    flags = ["--rm", "--read-only", *no_shell]
    return node.run("ctr", "--namespace=k8s.io", "run", *flags, name(image), f"test-{image}", *command)


def test_the_aggregator_runs_without_the_generated_classes(site: Site) -> None:
    python = "/opt/nodeguard/bin/python"
    assert run_in_container(site, AGGREGATOR, python, "-c", IMPORTS) == "imported True\n"
    who = "import os; print(os.getuid(), os.getgid())"
    assert run_in_container(site, AGGREGATOR, python, "-c", who) == "65532 65532\n"


@pytest.mark.parametrize("image", IMAGES)
def test_the_command_runs_on_a_read_only_root_without_a_shell(site: Site, image: str) -> None:
    assert TAG in run_in_container(site, image, "nodeguard", "--version")
    families = run_in_container(site, image, "nodeguard", "checks")
    assert "gpu" in families
