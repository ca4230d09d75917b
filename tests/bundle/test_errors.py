from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.manifest import read_errors, write_errors


def test_paths_may_begin_with_a_slash_or_not() -> None:
    assert read_errors(b"sys/a: EINVAL\n/sys/b/: stall\nproc/c: hang\n", "errors.yaml", base=True) == {
        "/sys/a": "EINVAL",
        "/sys/b": "stall",
        "/proc/c": "hang",
    }


def test_only_a_frame_takes_an_entry_away() -> None:
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
def test_what_names_no_failure_is_refused(text: str, message: str) -> None:
    with pytest.raises(BundleError) as refused:
        read_errors(text.encode(), "x/errors.yaml", base=True)
    assert str(refused.value).startswith(f"x/errors.yaml: {message}")


paths = st.lists(
    st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1), min_size=1
)
plain = paths.map(lambda names: "/" + "/".join(names)).filter(
    lambda path: not {".", ".."} & set(path.split("/"))
)


@settings(deadline=None)
@given(st.dictionaries(plain, st.sampled_from(["EIO", "stall", "hang", None])))
def test_errors_are_read_back(errors: dict[str, str | None]) -> None:
    text = write_errors(errors) or "{}"
    assert read_errors(text.encode(), "errors.yaml", base=False) == errors
