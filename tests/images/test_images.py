"""The images as they are built: their size, their configuration, and their contents in a real container."""

from __future__ import annotations

import json
import tomllib

import pytest

from scripts.image.install import ELF_MACHINES
from scripts.image.prune import GENERATED
from tests.images.archives import Archives
from tests.images.store import AGENT, AGGREGATOR, TAG, locked_store, name
from tests.kubelet.site import Site
from tests.paths import ROOT

pytestmark = pytest.mark.slow

IMAGES = (AGENT, AGGREGATOR)
MB = 10**6

# Bytes beyond the base image.
LIMITS = {AGENT: 90 * MB, AGGREGATOR: 150 * MB}


@pytest.mark.parametrize("image", IMAGES)
def test_size_beyond_the_base(images: Archives, image: str) -> None:
    assert images.images[image].added_bytes <= LIMITS[image]


@pytest.mark.parametrize("image", IMAGES)
def test_labels(images: Archives, image: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = images.images[image].labels
    expected = {
        "title": image,
        "version": project["version"],
        "licenses": project["license"],
        "source": project["urls"]["Source"],
    }
    assert {key: labels[f"org.opencontainers.image.{key}"] for key in expected} == expected
    assert project["version"] == TAG


def test_the_aggregator_is_not_root(images: Archives) -> None:
    assert images.images[AGGREGATOR].user == "65532:65532"
    assert images.images[AGENT].user == "0:0"  # for the kernel log and NVML


@pytest.mark.parametrize("image", IMAGES)
def test_the_bill_of_materials_names_what_is_installed(images: Archives, image: str) -> None:
    built = images.images[image]
    assert built.embedded_bill == built.bill
    bill = json.loads(built.bill)
    installed = {path.partition("/")[0] for path in built.files if ".dist-info/" in path}
    components = bill["components"]
    pypi = {part["name"]: part["version"] for part in components if part["purl"].startswith("pkg:pypi/")}
    assert len(pypi) == len(installed)
    assert pypi["gpu-nodeguard"] == TAG
    assert ("aiohttp" in pypi) == (image == AGGREGATOR)
    assert any(part["purl"].startswith("pkg:deb/debian/libc6@") for part in components)
    assert bill["metadata"]["component"]["name"] == image


@pytest.mark.parametrize("image", IMAGES)
def test_the_image_for_another_processor_is_complete(images: Archives, image: str) -> None:
    """Built on this machine: its base for arm64 has no program, so no step of the build needs one of it."""
    with locked_store() as store:
        built = store.build_for_arm64(image)
    assert (built.architecture, built.has_code) == ("arm64", True)
    assert set(built.libraries.values()) == {ELF_MACHINES["aarch64"]}
    # The same packages, and a library for each one of this machine.
    packages = {path for path in images.images[image].files if path.endswith(".so")}
    assert len(built.libraries) == len(packages)
    parts = [part["purl"] for part in json.loads(built.bill)["components"]]
    python = {part for part in parts if part.startswith("pkg:pypi/")}
    native = [part["purl"] for part in json.loads(images.images[image].bill)["components"]]
    assert python == {part for part in native if part.startswith("pkg:pypi/")}
    assert [part for part in parts if part.startswith("pkg:deb/")] == [
        "pkg:deb/debian/libc6@2.36-9?arch=arm64"
    ]


def test_the_agent_has_no_library_of_the_aggregator(images: Archives) -> None:
    packages = {path.partition("/")[0] for path in images.images[AGENT].files}
    assert "nodeguard" in packages
    assert packages.isdisjoint({"aiohttp", "cryptography", "kubernetes", "pip", "pydantic", "uvloop"})


@pytest.mark.parametrize("directory", GENERATED)
def test_generated_classes_are_left_out(images: Archives, directory: str) -> None:
    below = f"kubernetes/{directory}/"
    names = {path.rpartition("/")[2] for path in images.images[AGGREGATOR].files if path.startswith(below)}
    assert {name.partition(".")[0] for name in names} == {"__init__"}


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


# Runs in a container: the library reads a kubeconfig that names a program for the token.
KUBECONFIG = """
import asyncio, json
from nodeguard.kube.access import ApiAccess
credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "secret"}}
program = {
    "apiVersion": credential["apiVersion"],
    "command": "python",
    "args": ["-c", f"print({json.dumps(credential)!r})"],
    "interactiveMode": "Never",
}
with open("/dev/shm/config", "w") as file:
    json.dump({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "site",
        "clusters": [{"name": "site", "cluster": {"server": "http://192.0.2.1"}}],
        "users": [{"name": "site", "user": {"exec": program}}],
        "contexts": [{"name": "site", "context": {"cluster": "site", "user": "site"}}],
    }, file)

async def load():
    access = await ApiAccess.connect("/dev/shm/config")
    print(access.credentials.url, await access.authorization())

asyncio.run(load())
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
    assert run_in_container(site, AGGREGATOR, python, "-c", KUBECONFIG) == "http://192.0.2.1 Bearer secret\n"
    who = "import os; print(os.getuid(), os.getgid())"
    assert run_in_container(site, AGGREGATOR, python, "-c", who) == "65532 65532\n"


@pytest.mark.parametrize("image", IMAGES)
def test_the_command_runs_on_a_read_only_root_without_a_shell(site: Site, image: str) -> None:
    assert TAG in run_in_container(site, image, "nodeguard", "--version")
    families = run_in_container(site, image, "nodeguard", "checks")
    assert "gpu" in families
