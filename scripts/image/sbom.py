"""The bill of materials of an image in CycloneDX 1.5: Python distributions, interpreter, and Debian packages.

    python sbom.py NAME SITE_PACKAGES DPKG_STATUS > sbom.cdx.json

DPKG_STATUS: the database of the base, which may be for another processor than that of this interpreter.

It has no time and no random number: the same contents give the same file.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

PRODUCT = "gpu-nodeguard"
OS_RELEASE = Path("/etc/os-release")

Component = dict[str, Any]


def bill(name: str, packages: Path, status: Path, release: Path = OS_RELEASE) -> Component:
    """Return the bill of materials.

    name: of the image. packages: directory of the installed Python distributions. status: the database of
    dpkg, with the packages of the base. release: os-release(5) of the base.
    """
    python = [distribution_component(package) for package in distributions(path=[str(packages)])]
    (version,) = [component["version"] for component in python if component["name"] == PRODUCT]
    interpreter = _component("cpython", platform.python_version(), "generic", "PSF-2.0") | {
        "type": "platform"
    }
    image = {"type": "container", "name": name, "version": version, "bom-ref": name}
    return document(image, [interpreter, *python, *_debian(status, release)])


def document(product: Component, components: Iterable[Component]) -> Component:
    """Return a document that describes a product by its components."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": product},
        "components": sorted(components, key=lambda component: str(component["purl"])),
    }


def _component(
    name: str, version: str, ecosystem: str, license_text: str = "", suffix: str = ""
) -> Component:
    """Return a component with its package URL. license_text: an SPDX expression, or free text."""
    purl = f"pkg:{ecosystem}/{quote(name)}@{quote(version, safe='.-_~')}{suffix}"
    component: Component = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": purl,
        "bom-ref": purl,
    }
    if license_text:
        component["licenses"] = [{"license": {"name": license_text}}]
    return component


def distribution_component(distribution: Distribution) -> Component:
    """Return the component of an installed Python distribution."""
    metadata = distribution.metadata
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in metadata.get_all("Classifier") or []
        if text.startswith("License :: ")
    ]
    (declared, *_) = [
        *(metadata.get_all("License-Expression") or []),
        *(metadata.get_all("License") or []),
        "",
    ]
    # Some distributions have the whole text of their licence in this field.
    license_text = declared if declared and "\n" not in declared else ", ".join(classifiers)
    name = metadata["Name"]
    normal = name.lower().replace("_", "-").replace(".", "-")
    return _component(normal, distribution.version, "pypi", license_text)


def _debian(status: Path, release: Path) -> Iterator[Component]:
    """Yield the installed packages of a Debian base; none for a base without dpkg."""
    if not status.is_file():
        return
    fields = dict(line.split("=", 1) for line in release.read_text().splitlines() if "=" in line)
    distribution = fields["ID"].strip('"')
    for paragraph in status.read_text().split("\n\n"):
        entry = dict(
            line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " "
        )
        if entry.get("Status", "").endswith(" installed"):
            suffix = f"?arch={entry['Architecture']}"
            yield _component(entry["Package"], entry["Version"], f"deb/{distribution}", suffix=suffix)


if __name__ == "__main__":
    json.dump(bill(sys.argv[1], *map(Path, sys.argv[2:4])), sys.stdout, indent=1)
    print()
