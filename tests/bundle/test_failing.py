from __future__ import annotations

import errno

import pytest

from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.failing import check_result, failure, is_nvml_word, is_system_word, word_of
from nodeguard.model.failure import HungError, StalledError


def test_a_word_becomes_what_the_live_machine_raises() -> None:
    refused = failure("EACCES", "/x")
    assert isinstance(refused, PermissionError)
    assert (refused.errno, refused.filename) == (errno.EACCES, "/x")
    assert isinstance(failure("stall", "/x"), StalledError)
    hung = failure("hang", "statvfs(/x)")
    assert isinstance(hung, HungError)
    assert hung.detail == "statvfs(/x)"


@pytest.mark.parametrize("word", ["EIO", "ENOTCONN", "ESTALE", "stall", "hang"])
def test_an_exception_becomes_the_word_again(word: str) -> None:
    assert is_system_word(word)
    assert word_of(failure(word, "")) == word


def test_an_error_without_errno_is_eio() -> None:
    assert word_of(OSError("odd")) == "EIO"


@pytest.mark.parametrize("word", ["errorcode", "E", "eio", "", 5, None, [], {}, "NVML_ERROR_TIMEOUT"])
def test_other_words_name_no_errno(word: object) -> None:
    assert not is_system_word(word)


def test_nvml_has_names_of_its_own() -> None:
    assert is_nvml_word("NVML_ERROR_GPU_IS_LOST")
    assert is_nvml_word("hang")
    assert not is_nvml_word("EIO")
    assert not is_nvml_word({})


def test_an_error_stands_alone() -> None:
    check_result({"f_frsize": 1}, "f", "x", nvml=False)
    check_result({"error": "EIO"}, "f", "x", nvml=False)
    with pytest.raises(
        BundleError, match=r"^f: x: holds an error and values: keep the error, or the values$"
    ):
        check_result({"error": "EIO", "f_frsize": 1}, "f", "x", nvml=False)
