"""Tests for nodeguard.model.job."""

from __future__ import annotations

import pytest

from nodeguard.model.job import MAX_INCIDENT_JOBS, add_jobs, is_job_name, jobs_text, limit_jobs


@pytest.mark.parametrize("name", ["a", "4711", "training/llama-3.1", "team_a/Job.2", "a" * 240])
def test_names_of_jobs(name: str) -> None:
    assert is_job_name(name)


@pytest.mark.parametrize(
    "name", ["", "/", "a/", "/a", "a/b/c", "-a", "a-", "a b", "a\n", "a\x1b[31m", "ä", "a" * 241, "a,b"]
)
def test_texts_that_name_no_job(name: str) -> None:
    assert not is_job_name(name)


def test_an_incident_names_some_jobs_once_and_counts_the_rest() -> None:
    names = [f"a/{number}" for number in range(MAX_INCIDENT_JOBS + 4)]
    assert limit_jobs(["a/1", "a/0", "a/1"]) == (("a/1", "a/0"), 0)
    assert limit_jobs(names) == (tuple(names[:MAX_INCIDENT_JOBS]), 4)


def test_jobs_that_an_incident_named_stay() -> None:
    assert add_jobs((("a/1",), 0), (("a/2", "a/1"), 3)) == (("a/1", "a/2"), 3)
    assert add_jobs((("a/1",), 5), ((), 0)) == (("a/1",), 5)


@pytest.mark.parametrize(
    ("names", "omitted", "text"),
    [
        ((), 0, ""),
        (("a",), 0, "a"),
        (("a", "b", "c", "d"), 0, "a, b, c, d"),
        (("a", "b", "c", "d", "e"), 0, "a, b, c, d and 1 more"),
        (("a", "b", "c", "d", "e"), 7, "a, b, c, d and 8 more"),
    ],
)
def test_jobs_as_text(names: tuple[str, ...], omitted: int, text: str) -> None:
    assert jobs_text(names, omitted) == text
