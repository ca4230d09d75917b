"""The catalogue as a whole: compiled or from YAML, and with what a site adds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.catalog import catalogue as module
from nodeguard.catalog.catalogue import (
    COMPILED,
    CompiledCatalogue,
    add_site_checks,
    compile_catalogue,
    encode_catalogue,
    fingerprint,
    load_builtin,
)
from nodeguard.config.errors import ConfigError
from nodeguard.config.yaml_document import load_yaml
from nodeguard.model.catalogue import Catalogue, LogPattern
from nodeguard.model.check import Check
from nodeguard.model.signal import Signal
from nodeguard.pipeline.signal_registry import all_signals
from tests.catalog.test_check_files import one as check_text
from tests.catalog.test_conditions import SIGNALS
from tests.paths import ROOT

CHECKS = ROOT / "checks"


def signals(patterns: tuple[LogPattern, ...]) -> Mapping[str, Signal]:
    return {**SIGNALS, **all_signals(patterns)}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like checks/, with two checks of its own and the tables that every one needs."""
    folder = tmp_path_factory.mktemp("checks")
    shutil.copytree(CHECKS / "tables", folder / "tables")
    (folder / "tables" / "fault-classes.yaml").write_text(
        '- {name: x, phrase: failed, checks: ["*"], topologies: [{topology: rack}], windows: [2m], share: 0.5}\n'
    )
    (folder / "tables" / "program-messages.yaml").write_text("[]\n")
    (folder / "platforms").mkdir()
    (folder / "x.yaml").write_text("family: x\nchecks:\n" + one("a"))
    (folder / "y.yaml").write_text("family: y\nchecks:\n" + one("b", symptom_of="[a]"))
    (folder / "notes.txt").write_text("no YAML")
    return folder


@pytest.fixture
def folder(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same for one test, in the place of the built-in one."""
    copy = tmp_path / "checks"
    shutil.copytree(small, copy)
    monkeypatch.setattr("nodeguard.catalog.catalogue.builtin_folder", lambda: copy)
    return copy


def one(name: str, target: str = "node", **fields: str) -> str:
    """A check in YAML, by default of the node, of which signals with an unknown first word are read."""
    return check_text(name, target=target, **fields)


def ids(catalogue: Catalogue) -> list[str]:
    return [check.id for check in catalogue.checks]


# Compiled and not.


def test_a_folder_is_compiled_whole(small: Path) -> None:
    catalogue = compile_catalogue(small, signals)
    assert ids(catalogue) == ["a", "b"]
    assert catalogue.patterns
    assert catalogue.xids


def test_the_compiled_form_says_the_same(small: Path) -> None:
    catalogue = compile_catalogue(small, signals)
    assert msgspec.msgpack.decode(encode_catalogue(catalogue), type=CompiledCatalogue).catalogue == catalogue


def test_the_built_in_catalogue_is_what_its_yaml_says() -> None:
    from_yaml = compile_catalogue(CHECKS, all_signals)
    assert load_builtin(all_signals) == from_yaml
    assert msgspec.msgpack.decode(encode_catalogue(from_yaml), type=CompiledCatalogue).catalogue == from_yaml


def test_each_file_states_its_version() -> None:
    """A site copies from them."""
    assert {path.name for path in CHECKS.glob("*.yaml") if load_yaml(path).data.get("version") != 1} == set()


def test_no_check_of_the_built_in_catalogue_is_written_twice() -> None:
    written = [check["id"] for path in CHECKS.glob("*.yaml") for check in load_yaml(path).data["checks"]]
    assert sorted(written) == ids(load_builtin(all_signals))


def compiled_with(folder: Path, made_from: module.Fingerprint) -> None:
    """Puts a compiled catalogue in a folder that its YAML does not say."""
    (folder / COMPILED).write_bytes(
        encode_catalogue(Catalogue(disabled={"a-check": "from the compiled file"}), made_from)
    )


def is_read_from_yaml(catalogue: Catalogue) -> bool:
    return catalogue.disabled != {"a-check": "from the compiled file"}


def test_a_compiled_catalogue_that_is_true_is_taken(folder: Path) -> None:
    compiled_with(folder, fingerprint(folder))
    assert not is_read_from_yaml(load_builtin(signals))


def test_a_package_s_compiled_catalogue_is_taken_as_it_is(folder: Path) -> None:
    compiled_with(folder, ())
    (folder / "x.yaml").write_text("unknown: field\n")
    assert not is_read_from_yaml(load_builtin(signals))


def test_without_a_compiled_one_the_yaml_is_read(folder: Path) -> None:
    assert ids(load_builtin(signals)) == ["a", "b"]


@pytest.mark.parametrize("change", ["write", "touch", "add", "remove", "table"])
def test_a_compiled_catalogue_of_other_yaml_is_not_taken(change: str, folder: Path) -> None:
    compiled_with(folder, fingerprint(folder))
    match change:
        case "write":
            (folder / "x.yaml").write_text("family: x\nchecks:\n" + one("a") + one("c"))
        case "touch":
            os.utime(folder / "x.yaml", ns=(1, 1))
        case "add":
            (folder / "z.yaml").write_text("family: z\n")
        case "remove":
            (folder / "y.yaml").unlink()
        case "table":
            os.utime(folder / "tables" / "xid.yaml", ns=(1, 1))
    assert is_read_from_yaml(load_builtin(signals))


def test_loading_it_imports_no_zipfile() -> None:
    code = (
        "import sys; from nodeguard.cli.check_catalogue import load_catalogue; load_catalogue();"
        "print({'zipfile', 'importlib.resources'} & set(sys.modules))"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output == "set()\n"


WHOLE = encode_catalogue(load_builtin(all_signals))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=3), st.booleans())
def test_a_damaged_catalogue_is_whole_or_refused(at: int, damage: bytes, cut: bool) -> None:
    broken = WHOLE[:at] + damage + (b"" if cut else WHOLE[at + len(damage) :])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nodeguard.catalog.catalogue.builtin_folder", lambda: _Packed(broken))
        patch.setattr(module, "compile_catalogue", lambda *_: Catalogue())
        assert isinstance(load_builtin(all_signals), Catalogue)


class _Packed:
    """A folder in a package, of which only the compiled catalogue is read."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __truediv__(self, name: str) -> _Packed:
        assert name == COMPILED
        return self

    def is_file(self) -> bool:
        return True

    def read_bytes(self) -> bytes:
        return self.data


@pytest.mark.parametrize(
    "damage", [b"", b"\xff", b"not a catalogue", WHOLE[:1000], WHOLE.replace(b"gpu", b"\xffpu")]
)
def test_damaged_catalogue_is_compiled_from_yaml(damage: bytes, folder: Path) -> None:
    (folder / COMPILED).write_bytes(damage)
    assert ids(load_builtin(signals)) == ["a", "b"]


def test_wrong_yaml_is_an_error_with_its_place(folder: Path) -> None:
    (folder / "x.yaml").write_text("family: x\nchecks:\n" + one("a", when="{signal: a.levle, below: 1}"))
    with pytest.raises(ConfigError, match=r"x\.yaml:8: signal: 'a\.levle' is no signal"):
        load_builtin(signals)


# What a site adds.


def site(folder: Path, name: str, *checks: str, disable: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    head = "family: site\n" + (f"disable: [{disable}]\n" if disable else "")
    (folder / name).write_text(head + ("checks:\n" + "".join(checks) if checks else ""))
    return folder


@pytest.fixture(scope="module")
def base(small: Path) -> Catalogue:
    return compile_catalogue(small, signals)


def of(catalogue: Catalogue) -> dict[str, Check]:
    return {check.id: check for check in catalogue.checks}


def test_a_site_overrides_adds_and_disables(base: Catalogue, tmp_path: Path) -> None:
    folder = site(tmp_path / "d", "s.yaml", one("a", title="Ours"), one("c"), disable="b")
    catalogue = add_site_checks(base, [folder], SIGNALS)
    assert {name: check.family for name, check in of(catalogue).items()} == {"a": "site", "c": "site"}
    assert of(catalogue)["a"].title == "Ours"
    assert catalogue.disabled == {"b": f"{folder}/s.yaml"}
    assert (catalogue.xids, catalogue.platforms) == (base.xids, base.platforms)
    assert ids(base) == ["a", "b"]


def test_a_later_folder_wins(base: Catalogue, tmp_path: Path) -> None:
    first = site(tmp_path / "1", "z.yaml", one("a", title="First folder"), one("c", title="First folder"))
    second = site(tmp_path / "2", "a.yaml", one("c", title="Second folder"))
    result = of(add_site_checks(base, [first, second], SIGNALS))
    assert (result["a"].title, result["c"].title) == ("First folder", "Second folder")


def test_one_id_in_two_files_of_a_folder_is_refused(base: Catalogue, tmp_path: Path) -> None:
    site(tmp_path, "a.yaml", one("c"))
    site(tmp_path, "b.yaml", one("d"), one("c"))
    with pytest.raises(ConfigError) as caught:
        add_site_checks(base, [tmp_path], SIGNALS)
    assert (caught.value.file, caught.value.field) == (f"{tmp_path}/b.yaml", "id")
    assert caught.value.line > 3
    assert caught.value.problem == f"'c' is in {tmp_path}/a.yaml:3, too"


def test_files_that_have_nothing_in_common_may_come_in_any_order(base: Catalogue, tmp_path: Path) -> None:
    folders = [
        site(tmp_path / name, f"{name}.yaml", one(name), disable=gone)
        for name, gone in (("c", "a"), ("d", "b"))
    ]
    assert add_site_checks(base, folders, SIGNALS) == add_site_checks(base, folders[::-1], SIGNALS)


def test_a_site_check_may_be_a_symptom_of_a_built_in_one(base: Catalogue, tmp_path: Path) -> None:
    folder = site(tmp_path / "d", "s.yaml", one("c", symptom_of="[a]"))
    assert of(add_site_checks(base, [folder], SIGNALS))["c"].symptom_of == ("a",)


def test_check_stays_when_its_cause_is_disabled(base: Catalogue, tmp_path: Path) -> None:
    folder = site(tmp_path / "d", "s.yaml", disable="a")
    assert ids(add_site_checks(base, [folder], SIGNALS)) == ["b"]


@pytest.mark.parametrize("names", [(), ("README.md",), ("..data", ".keep")])
def test_a_folder_without_check_files_adds_nothing(
    base: Catalogue, tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        (tmp_path / name).write_text("x")
    assert add_site_checks(base, [tmp_path], SIGNALS) == base


def test_a_check_with_a_signal_that_its_target_never_has_is_refused(tmp_path: Path) -> None:
    catalogue = load_builtin(all_signals)
    registry = all_signals(catalogue.patterns)
    when = "{all: [{signal: gpu.temperature, above: 90}, {signal: port.link_downed, above: 5}]}"
    folder = site(tmp_path, "s.yaml", one("a", "gpu", when=when, message="hot"))
    with pytest.raises(ConfigError) as caught:
        add_site_checks(catalogue, [folder], registry)
    assert str(caught.value) == (
        f"{tmp_path}/s.yaml:5: target: port.link_downed is never read of gpu, so that 'a' never fires: "
        "use another signal, or write nvswitch or port"
    )
    when = when.replace("all:", "any:")
    site(tmp_path, "s.yaml", one("a", when=when, message="hot", target="[gpu, port]"))
    assert "a" in ids(add_site_checks(catalogue, [folder], registry))


def test_the_built_in_checks_are_valid_checks_of_a_site(tmp_path: Path) -> None:
    catalogue = load_builtin(all_signals)
    for path in CHECKS.glob("*.yaml"):
        shutil.copy(path, tmp_path)
    checks = add_site_checks(catalogue, [tmp_path], all_signals(catalogue.patterns)).checks
    assert [check.id for check in checks] == [check.id for check in catalogue.checks]


def test_a_folder_that_does_not_exist_is_refused(base: Catalogue, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        add_site_checks(base, [tmp_path / "missing"], SIGNALS)
    assert str(caught.value) == (
        f"{tmp_path}/missing: cannot be read: No such file or directory: name a folder of YAML files"
    )


def test_a_folder_with_nothing_but_a_subfolder_is_refused(base: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ConfigError) as caught:
        add_site_checks(base, [tmp_path], SIGNALS)
    assert str(caught.value) == (
        f"{tmp_path}: has no .yaml file, only the folder folder.yaml, which is not read: "
        "put the files directly into the folder, with names that end in .yaml"
    )


def test_a_file_that_would_be_passed_over_is_refused(base: Catalogue, tmp_path: Path) -> None:
    site(tmp_path, "s.yaml", one("c"))
    site(tmp_path, "t.yml", one("d"))
    with pytest.raises(ConfigError) as caught:
        add_site_checks(base, [tmp_path], SIGNALS)
    assert str(caught.value) == (
        f"{tmp_path}/t.yml: is not read, as it does not end in .yaml: rename it to .yaml"
    )


def test_a_link_to_a_file_that_is_gone_is_refused(base: Catalogue, tmp_path: Path) -> None:
    site(tmp_path, "s.yaml", one("c"))
    (tmp_path / "t.yaml").symlink_to("gone.yaml")
    with pytest.raises(ConfigError) as caught:
        add_site_checks(base, [tmp_path], SIGNALS)
    assert str(caught.value) == (
        f"{tmp_path}/t.yaml: is not a file, or a link to none: put the file there, or remove the name"
    )


def test_what_a_mount_of_kubernetes_holds_besides_is_passed_over(base: Catalogue, tmp_path: Path) -> None:
    site(tmp_path / "..2026", "s.yaml", one("c"))
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "s.yaml").symlink_to("..data/s.yaml")
    assert ids(add_site_checks(base, [tmp_path], SIGNALS)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("checks: [\n", "s.yaml:2: "),
        ("", "s.yaml:1: is empty: write `name: value` lines"),
        ("disable: [c]\n", "s.yaml:1: disable: 'c' is no check: see `nodeguard checks`"),
        ("family: s\nchecks:\n" + one("c", symptom_of="[d]"), "s.yaml:3: symptom_of: 'd' is no check: see "),
        (
            "family: s\nchecks:\n" + one("c", when="{signal: a.x, is: 1}"),
            "s.yaml:8: signal: 'a.x' is no signal",
        ),
    ],
)
def test_a_wrong_site_file_is_refused(base: Catalogue, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        add_site_checks(base, [tmp_path], SIGNALS)
    assert str(caught.value).startswith(f"{tmp_path}/{message}")


def test_a_built_in_check_that_lost_its_cause_is_an_error_and_no_crash(
    tmp_path: Path, base: Catalogue
) -> None:
    halved = msgspec.structs.replace(base, checks=base.checks[1:])
    with pytest.raises(ConfigError, match="the built-in catalogue: symptom_of: 'a' is no check"):
        add_site_checks(halved, [site(tmp_path, "s.yaml", one("c"))], SIGNALS)
