from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.manifest import (
    FrameManifest,
    Manifest,
    mapping,
    quoted,
    read_errors,
    read_frame_manifest,
    read_manifest,
    write_errors,
    write_frame_manifest,
    write_manifest,
)
from tests.bundle.bundles import MANIFEST, NOON

FILE = "fixtures/x/bundle.yaml"


def test_a_manifest_says_which_machine_and_when() -> None:
    manifest = read_manifest(MANIFEST.encode(), FILE)
    assert manifest == Manifest("gpu-17", "5c8f1d2e-0a1b-2c3d-4e5f-60718293a4b5", NOON, 864000.0)


def test_platform_instance_type_and_sources_are_optional() -> None:
    more = "platform: dgx-h100\ninstance_type: p5.48xlarge\nsources: {nvml: recorded, kmsg: not-recorded}\n"
    manifest = read_manifest((MANIFEST + more).encode(), FILE)
    assert (manifest.platform, manifest.instance_type) == ("dgx-h100", "p5.48xlarge")
    assert manifest.sources == {"nvml": "recorded", "kmsg": "not-recorded"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-01T12:00:00Z", NOON),
        ("2026-11-01t14:00:00.25+02:00", NOON + 0.25),
        ("'2026-11-01 12:00:00z'", NOON),
        ("2026-11-01T12:00:00.123456789Z", NOON + 0.123456),
    ],
)
def test_times_are_rfc_3339(text: str, seconds: float) -> None:
    data = MANIFEST.replace("2026-11-01T12:00:00Z", text).encode()
    assert read_manifest(data, FILE).recorded_at == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "2026-11-01T12:00:00Z",
            "yesterday",
            "line 4: recorded_at: 'yesterday' is not an RFC 3339 timestamp: write it like 2026-",
        ),
        (
            "2026-11-01T12:00:00Z",
            "2026-11-01T12:00:00",
            "line 4: recorded_at: '2026-11-01T12:00:00' is not an RFC 3339 timestamp",
        ),
        (
            "2026-11-01T12:00:00Z",
            "2026-06-31T12:00:00Z",
            "line 4: recorded_at: '2026-06-31T12:00:00Z' is not an RFC 3339 timestamp",
        ),
        (
            "2026-11-01T12:00:00Z",
            "1793534400",
            "line 4: recorded_at: 1793534400 does not fit: write it like 2026-11-01T12:00:00Z",
        ),
        ("864000", "-1", "line 5: uptime_s: -1 does not fit: write a number >= 0.0"),
        ("864000", ".inf", "line 5: uptime_s: '.inf' does not fit: write a number"),
        ("864000", "true", "line 5: uptime_s: True does not fit: write a number"),
        ("864000", "9" * 400, "line 5: uptime_s: '9999"),
        ("gpu-17", "17", "line 2: hostname: 17 does not fit: write it like 'gpu-17'"),
        ("gpu-17", '"a\\nb"', r"line 2: hostname: 'a\nb' is not a text of one line: put the name in quotes"),
        ("hostname: gpu-17\n", "", "line 1: hostname: is missing: add it"),
        ("uptime_s: 864000\n", "", "line 1: uptime_s: is missing: add it"),
        (
            "format: 1",
            "format: 2",
            "line 1: format: 2 is unknown: this version reads 1: use a newer nodeguard",
        ),
        ("format: 1\n", "format: 2\nshape: new\n", "line 1: format: 2 is unknown: "),
        ("format: 1", "format: true", "line 1: format: True is unknown"),
        ("format: 1", "format:", "line 1: format: is empty: give it a value, or leave it out"),
        (
            "format: 1",
            "format: 1\nhost: x",
            "line 2: host: is not known here: use one of hostname, boot_id, ",
        ),
        ("format: 1", "format: 1\nsources: [nvml]", "line 2: sources: a list does not fit: write a mapping"),
        (
            "format: 1",
            "format: 1\nsources: {nvml: yes}",
            "line 2: nvml: 'yes' is not valid: use one of not-recorded, recorded",
        ),
    ],
)
def test_every_defect_names_file_and_field(before: str, after: str, message: str) -> None:
    with pytest.raises(BundleError) as refused:
        read_manifest(MANIFEST.replace(before, after).encode(), FILE)
    assert str(refused.value).startswith(f"{FILE}: {message}")
    assert refused.value.file == FILE


def test_empty_frame_manifest_is_valid() -> None:
    assert read_frame_manifest(b"{}\n", "frame.yaml") == FrameManifest()


def test_a_frame_removes_and_sets_time() -> None:
    text = b"removed: [sys/class/net/eth0/, /proc/driver]\nboot_id: b\nrecorded_at: 2026-11-01T12:00:00Z\nuptime_s: 3.5\n"
    assert read_frame_manifest(text, "frame.yaml") == FrameManifest(
        ("/sys/class/net/eth0", "/proc/driver"), "b", NOON, 3.5
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: is empty"),
        (
            "hostname: x",
            "line 1: hostname: is not known here: use one of removed, boot_id, recorded_at, uptime_s",
        ),
        ("removed: sys", "line 1: removed: 'sys' does not fit: write a list"),
        ("boot_id:", "line 1: boot_id: is empty: give it a value, or leave it out"),
        ("uptime_s:", "line 1: uptime_s: is empty: give it a value, or leave it out"),
        (
            "removed: [sys, /]",
            "removed[1]: '/' is not a path of the machine: write it like sys/class/net/eth0",
        ),
        ("removed: [sys/../..]", "removed[0]: 'sys/../..' is not a path of the machine"),
        ("removed: [1]", "line 1: removed[0]: 1 does not fit: write text"),
    ],
)
def test_unknown_content_of_a_frame_manifest_is_rejected(text: str, message: str) -> None:
    with pytest.raises(BundleError) as refused:
        read_frame_manifest(text.encode(), "f/frame.yaml")
    assert str(refused.value).startswith(f"f/frame.yaml: {message}")


lines = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=40)
times = st.integers(0, 4_000_000_000_000).map(lambda milliseconds: milliseconds / 1000)
presences = st.dictionaries(lines, st.sampled_from(["recorded", "not-recorded"]))


@settings(deadline=None)
@given(st.builds(Manifest, lines, lines, times, times, lines, lines, presences))
def test_a_manifest_is_read_back(manifest: Manifest) -> None:
    again = read_manifest(write_manifest(manifest).encode(), FILE)
    assert again.recorded_at == pytest.approx(manifest.recorded_at, abs=1e-6)
    assert again == Manifest(
        manifest.hostname,
        manifest.boot_id,
        again.recorded_at,
        manifest.uptime_s,
        manifest.platform,
        manifest.instance_type,
        manifest.sources,
    )


paths = st.lists(st.sampled_from(["sys", "proc", "a:b", "x y", "#"]), min_size=1).map(
    lambda names: "/" + "/".join(names)
)


@settings(deadline=None)
@given(st.lists(paths), st.none() | lines, st.none() | times)
def test_a_frame_manifest_is_read_back(removed: list[str], boot_id: str | None, uptime: float | None) -> None:
    frame = FrameManifest(tuple(removed), boot_id, None, uptime)
    assert read_frame_manifest(write_frame_manifest(frame).encode(), "frame.yaml") == frame


def test_scalars_follow_the_core_schema_of_yaml() -> None:
    text = "a: 1\nb: -2.5\nc: true\nd: ~\ne: 'x'\nf: \"1\"\ng: yes\nh: 2026-11-01T12:00:00Z\ni: 1_0\nj: 0x10\nk: 1e3"
    assert mapping(text.encode(), "f.yaml") == {
        "a": 1,
        "b": -2.5,
        "c": True,
        "d": None,
        "e": "x",
        "f": "1",
        "g": "yes",
        "h": "2026-11-01T12:00:00Z",
        "i": "1_0",
        "j": 16,
        "k": 1000.0,
    }


def test_mappings_and_lists_nest() -> None:
    assert mapping(b"a:\n  b: [1, {c: d}]\n", "f.yaml") == {"a": {"b": [1, {"c": "d"}]}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: &x 1\nb: *x\n", "line 1: a: has an anchor, alias or tag: write the value out"),
        (b"a: 1\na: 2\n", "line 2: a: appears twice: keep one of them"),
        (b"a: !!python/object:os.system x", "line 1: a: has an anchor, alias or tag: "),
        (b"a: [", "line 2: is not valid YAML: did not find expected node content: correct the YAML"),
        (b"a: \x01", "is not valid YAML: unacceptable character #x0001"),
        (b"a: \xff", "line 1: is no UTF-8: save the file as UTF-8"),
        (b"", "line 1: is empty: write `name: value` lines"),
        (b"- 1", "is no mapping: "),
        (b"{}\n---\n{}\n", "line 2: has a second document: keep one document in a file"),
        (b"? [1]\n: 2\n", "line 1: has a key that is no name: write a word"),
    ],
)
def test_an_invalid_file_is_refused_with_its_line(data: bytes, message: str) -> None:
    with pytest.raises(BundleError) as refused:
        mapping(data, "f.yaml")
    assert str(refused.value).startswith(f"f.yaml: {message}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("data", [b"[" * 1_000_000, b"{a: " * 250_000, b"- " * 500_000])
def test_a_million_levels_are_refused(data: bytes) -> None:
    with pytest.raises(BundleError, match=r"line 1: (a: )?is nested deeper than 20 levels"):
        mapping(data, "f.yaml")


def test_an_alias_bomb_is_refused_at_its_first_anchor() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(BundleError, match="line 1: a: has an anchor, alias or tag"):
        mapping(bomb.encode(), "f.yaml")


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_quoted_text_is_parsed_back(key: str, value: str) -> None:
    text = f"{quoted(key[:900])}: {quoted(value)}\n"
    assert mapping(text.encode(), "f.yaml") == {key[:900]: value}


def test_paths_may_begin_with_a_slash_or_not() -> None:
    assert read_errors(b"sys/a: EINVAL\n/sys/b/: stall\nproc/c: hang\n", "errors.yaml", base=True) == {
        "/sys/a": "EINVAL",
        "/sys/b": "stall",
        "/proc/c": "hang",
    }


def test_only_a_frame_may_remove_an_entry() -> None:
    assert read_errors(b"sys/a: null\n", "errors.yaml", base=False) == {"/sys/a": None}
    with pytest.raises(
        BundleError, match=r"^errors\.yaml: sys/a: None is not a known failure: write an errno name"
    ):
        read_errors(b"sys/a:\n", "errors.yaml", base=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sys/a: EWRONG", "sys/a: 'EWRONG' is not a known failure: write an errno name, stall or hang"),
        ("sys/a: 5", "sys/a: 5 is not a known failure"),
        ("sys/a: {x: y}", "sys/a: {'x': 'y'} is not a known failure"),
        ("sys/../x: EIO", "sys/../x: 'sys/../x' is not a path of the machine"),
        ("sys/a: EIO\n/sys/a: EIO", "/sys/a: is there twice: keep one"),
        ("[]", "is no mapping"),
    ],
)
def test_unknown_failure_name_is_rejected(text: str, message: str) -> None:
    with pytest.raises(BundleError) as refused:
        read_errors(text.encode(), "x/errors.yaml", base=True)
    assert str(refused.value).startswith(f"x/errors.yaml: {message}")


error_paths = st.lists(
    st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1), min_size=1
)
plain = error_paths.map(lambda names: "/" + "/".join(names)).filter(
    lambda path: not {".", ".."} & set(path.split("/"))
)


@settings(deadline=None)
@given(st.dictionaries(plain, st.sampled_from(["EIO", "stall", "hang", None])))
def test_errors_are_read_back(errors: dict[str, str | None]) -> None:
    text = write_errors(errors) or "{}"
    assert read_errors(text.encode(), "errors.yaml", base=False) == errors
