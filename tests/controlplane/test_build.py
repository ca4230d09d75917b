"""The build of the control plane's programs, and its errors."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane import build, programs, toolchain
from tests.controlplane.programs import HERE, KUBELET, KUBERNETES, KUEUE, PARTS, BuildError, Part

UNREACHED = (
    'go: k8s.io/kubernetes@v1.37.1: Get "https://proxy.example/k8s.io/kubernetes/@v/v1.37.1.mod": '
    "dial tcp: lookup proxy.example: no such host"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go1.26.6\n", (1, 26, 6)),
        ("module example\n\ngo 1.26.0\n\ntool x\n", (1, 26, 0)),
        ("go1.27rc1", (1, 27)),
        ("devel", ()),
        ("", ()),
    ],
)
def test_versions_are_read(text: str, expected: tuple[int, ...]) -> None:
    assert toolchain.version(text) == expected


def test_the_callers_go_settings_do_not_affect_the_build() -> None:
    caller = {
        "GOFLAGS": "-mod=vendor",
        "GOOS": "plan9",
        "GOWORK": "/x",
        "GOPROXY": "https://p",
        "GOCACHE": "/c",
    }
    variables = toolchain.environment(caller, Path("/somewhere"))
    assert "GOOS" not in variables
    assert (variables["GOFLAGS"], variables["GOWORK"]) == ("-mod=readonly -modcacherw", "off")
    assert (variables["GOPROXY"], variables["GOCACHE"]) == ("https://p", "/c")
    assert variables["GOMODCACHE"] == "/somewhere/modules"


def test_no_file_names_a_registry() -> None:
    for part in PARTS:
        assert "GOPROXY" not in (part.module / "go.mod").read_text()
        assert "://" not in (part.module / "go.mod").read_text()


def test_the_version_of_kubernetes_is_set_by_the_linker() -> None:
    (flags,) = KUBERNETES.flags
    version = flags.partition("version.gitVersion=")[2].split()[0]
    assert f"k8s.io/kubernetes {version} // indirect\n" in (HERE / "go.mod").read_text()
    assert re.fullmatch(r"v1\.\d+\.\d+", version)


def test_the_error_of_a_missing_program_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BuildError, match="etcd is missing: run `scripts/controlplane kubernetes`"):
        programs.program("etcd")
    with pytest.raises(
        BuildError, match=r"manifests of sigs\.k8s\.io/kueue are missing: run `scripts/controlplane kueue`"
    ):
        programs.manifests("sigs.k8s.io/kueue")


def test_a_change_of_one_part_leaves_the_others(tmp_path: Path) -> None:
    changed = tmp_path / "kueue"
    shutil.copytree(KUEUE.module, changed)
    same = KUEUE._replace(module=changed)
    assert same.directory() == KUEUE.directory()
    (changed / "go.sum").write_text("")
    assert same.directory() != KUEUE.directory()
    assert len({part.directory() for part in PARTS}) == len(PARTS)


def test_the_kubelet_has_the_version_of_the_control_plane() -> None:
    def pinned(part: Part) -> str:
        (line,) = re.findall(r"k8s\.io/kubernetes v\S+", (part.module / "go.mod").read_text())
        return str(line)

    assert pinned(KUBELET) == pinned(KUBERNETES)


def test_the_error_without_a_network_names_the_settings() -> None:
    message = build.failure("list", [UNREACHED, UNREACHED])
    assert message.count(UNREACHED) == 1
    assert "set GOPROXY or HTTPS_PROXY" in message


def test_the_error_of_another_failure_does_not_name_the_network() -> None:
    message = build.failure("build", ["x.go:1: syntax error"])
    assert "x.go:1: syntax error" in message
    assert "proxy" not in message


def test_without_disk_space_no_build_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "NEEDED", 1 << 60)
    with pytest.raises(BuildError, match=r"needs 1073741824 GB .* set XDG_CACHE_HOME"):
        build.build()
    assert [path.name for path in programs.cache().iterdir()] == ["lock"]


def test_a_second_run_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    programs.cache().mkdir(parents=True)
    with (programs.cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "tests.controlplane.build", "kueue"]
        with subprocess.Popen(
            command, cwd=HERE.parent.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as second:
            assert second.stderr is not None
            assert "another run builds the control plane" in second.stderr.readline()
            KUEUE.directory().mkdir()
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert second.communicate()[0] == f"{KUEUE.directory() / 'bin'}\n"
        assert second.returncode == 0
