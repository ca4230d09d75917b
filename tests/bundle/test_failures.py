from __future__ import annotations

import errno

import pytest

from nodeguard.bundle.failures import (
    BundleError,
    check_result,
    failure_from_name,
    failure_name,
    is_nvml_failure,
    is_system_failure,
)
from nodeguard.model.failure import HungError, StalledError


def test_failure_name_becomes_the_exception_of_the_live_machine() -> None:
    refused = failure_from_name("EACCES", "/x")
    assert isinstance(refused, PermissionError)
    assert (refused.errno, refused.filename) == (errno.EACCES, "/x")
    assert isinstance(failure_from_name("stall", "/x"), StalledError)
    hung = failure_from_name("hang", "statvfs(/x)")
    assert isinstance(hung, HungError)
    assert hung.detail == "statvfs(/x)"


@pytest.mark.parametrize("name", ["EIO", "ENOTCONN", "ESTALE", "stall", "hang"])
def test_exception_has_the_name_of_its_failure(name: str) -> None:
    assert is_system_failure(name)
    assert failure_name(failure_from_name(name, "")) == name


def test_an_error_without_errno_is_eio() -> None:
    assert failure_name(OSError("odd")) == "EIO"


@pytest.mark.parametrize("name", ["errorcode", "E", "eio", "", 5, None, [], {}, "NVML_ERROR_TIMEOUT"])
def test_other_values_are_no_failures(name: object) -> None:
    assert not is_system_failure(name)


def test_nvml_failures_have_their_own_names() -> None:
    assert is_nvml_failure("NVML_ERROR_GPU_IS_LOST")
    assert is_nvml_failure("hang")
    assert not is_nvml_failure("EIO")
    assert not is_nvml_failure({})


def test_error_excludes_other_fields() -> None:
    check_result({"f_frsize": 1}, "f", "x", nvml=False)
    check_result({"error": "EIO"}, "f", "x", nvml=False)
    with pytest.raises(BundleError, match=r"^f: x: has an error and values: keep the error, or the values$"):
        check_result({"error": "EIO", "f_frsize": 1}, "f", "x", nvml=False)
