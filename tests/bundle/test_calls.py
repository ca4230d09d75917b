from __future__ import annotations

import pytest

from nodeguard.bundle.calls import read_calls
from nodeguard.bundle.failures import BundleError


def test_answers_and_failures_are_objects_by_call() -> None:
    data = b'{"statvfs(/var)": {"f_frsize": 4096}, "adjtimex": {"error": "EPERM"}, "statvfs(/n)": {"error": "hang"}}'
    assert read_calls(data, "calls.json", base=True) == {
        "statvfs(/var)": {"f_frsize": 4096},
        "adjtimex": {"error": "EPERM"},
        "statvfs(/n)": {"error": "hang"},
    }


def test_only_a_frame_may_remove_a_result() -> None:
    assert read_calls(b'{"adjtimex": null}', "calls.json", base=False) == {"adjtimex": None}
    with pytest.raises(
        BundleError, match=r"^calls\.json: adjtimex: is not an object: write the fields of the result, or "
    ):
        read_calls(b'{"adjtimex": null}', "calls.json", base=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected `object`, got `array`"),
        ('{"a": {', "is cut short: copy it again"),
        ('{"a": {}} x', "JSON is malformed"),
        ('{"adjtimex": 5}', "adjtimex: is not an object"),
        (
            '{"adjtimex": {"error": "EWRONG"}}',
            "adjtimex.error: 'EWRONG' is not a known failure: write an errno name such",
        ),
        ('{"adjtimex": {"error": 5}}', "adjtimex.error: 5 is not a known failure"),
        (
            '{"adjtimex": {"error": "EIO", "x": 1}}',
            "adjtimex: has an error and values: keep the error, or the values",
        ),
        *(
            (
                f'{{"http(GET http://169.254.169.254/x)": {answer}}}',
                "http(GET http://169.254.169.254/x): is not an HTTP response: write ",
            )
            for answer in ("{}", '{"status": "200"}', '{"status": true}', '{"status": 200, "body": {}}')
        ),
        ('{"a":' * 100_000, ""),
        ("\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), ""),
        ("9" * 10_000, ""),
    ],
)
def test_invalid_result_is_rejected(text: str, message: str) -> None:
    with pytest.raises(BundleError) as refused:
        read_calls(text.encode(), "x/calls.json", base=True)
    assert str(refused.value).lower().startswith(f"x/calls.json: {message}".lower())
    assert "\n" not in str(refused.value)
