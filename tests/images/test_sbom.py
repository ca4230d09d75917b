"""The bill of materials of an image, from the metadata of what is installed."""

from __future__ import annotations

from pathlib import Path

from scripts.image.sbom import bill

STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library
 Provides: nothing

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


def distribution(packages: Path, name: str, version: str, *fields: str) -> None:
    folder = packages / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *fields]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")


def test_components_of_a_debian_image(tmp_path: Path) -> None:
    packages, status, release = tmp_path / "packages", tmp_path / "status", tmp_path / "os-release"
    distribution(packages, "gpu_nodeguard", "0.1.0", "License-Expression: Apache-2.0")
    distribution(packages, "PyYAML", "6.0.3", "License: MIT")
    distribution(packages, "old", "1.0", "Classifier: License :: OSI Approved :: BSD License")
    status.write_text(STATUS)
    release.write_text('ID="debian"\n')
    document = bill("nodeguard-agent", packages, status, release)
    licences = {
        component["purl"]: [entry["license"]["name"] for entry in component.get("licenses", [])]
        for component in document["components"]
        if component["name"] != "cpython"
    }
    assert licences == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64": [],
        "pkg:pypi/gpu-nodeguard@0.1.0": ["Apache-2.0"],
        "pkg:pypi/old@1.0": ["BSD License"],
        "pkg:pypi/pyyaml@6.0.3": ["MIT"],
    }
    assert document["metadata"]["component"]["version"] == "0.1.0"
    assert bill("nodeguard-agent", packages, status, release) == document


def test_a_base_without_dpkg_has_no_packages(tmp_path: Path) -> None:
    distribution(tmp_path, "gpu_nodeguard", "0.1.0")
    components = bill("nodeguard-agent", tmp_path, tmp_path / "none", tmp_path / "none")["components"]
    assert [component["name"] for component in components] == ["cpython", "gpu-nodeguard"]
