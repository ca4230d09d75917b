from __future__ import annotations

from collections.abc import Iterable

import pytest

from nodeguard.derive.death_series import Death, Series, chance_rate, independent_programs, significant_deaths

HOUR, DAY = 3600.0, 86_400.0


def death(number: int, *, user: str = "", job: str = "", again: bool = False, removed: bool = False) -> Death:
    """Return a death of a user and job of its own, ten minutes after the one before."""
    at = DAY + number * 600.0
    return Death(
        number, at, 300.0, user or f"u{number}", job or f"j{number}", f"p{job or number}", again, removed,
        clean=7 * (at - DAY),
    )  # fmt: skip


def series(deaths: Iterable[Death], *, clean: float = 14 * DAY, earlier: int = 0) -> Series:
    """Return a series that ends now. clean: seconds of work of the seven other GPUs, all in its time."""
    row = tuple(deaths)
    return Series(row, earlier, 30 * DAY, row[-1].at, 8, clean, {})


def test_programs_of_several_users_are_significant_beside_a_day_of_clean_work() -> None:
    assert len(significant_deaths(series(map(death, range(3)), clean=7 * DAY))) == 3
    assert not significant_deaths(series(map(death, range(2)), clean=7 * DAY))


def test_two_programs_are_enough_after_a_week_of_clean_work() -> None:
    assert len(significant_deaths(series(map(death, range(2)), clean=49 * DAY))) == 2


def test_other_gpus_are_a_control_only_while_they_run_work() -> None:
    deaths = [death(number) for number in range(4)]
    worked_before = Series(deaths, 0, 0.0, deaths[-1].at, 8, deaths[0].clean + HOUR / 4, {})
    assert not significant_deaths(worked_before)
    assert not significant_deaths(series(deaths, clean=0.0))


def test_gpu_on_which_programs_often_die_needs_more_deaths() -> None:
    assert not significant_deaths(series(map(death, range(3)), earlier=30))
    assert len(significant_deaths(series(map(death, range(5)), earlier=30))) >= 4
    assert not significant_deaths(series(map(death, range(2)), clean=49 * DAY, earlier=3))


def test_slow_series_is_explained_by_chance() -> None:
    late = death(40)
    assert not significant_deaths(series([death(0), death(1), late], clean=49 * DAY))


def test_job_counts_once_however_often_it_is_started_again() -> None:
    assert (
        independent_programs([death(0, job="j"), *(death(n, job="j", again=True) for n in range(9))], {}) == 1
    )


def test_program_that_ran_longer_on_three_other_gpus_counts_each_time() -> None:
    deaths = [death(0, job="j"), *(death(n, job="j", again=True) for n in range(1, 4))]
    assert independent_programs(deaths, {"pj": [600.0] * 3}) == 4
    assert independent_programs(deaths, {"pj": [600.0, 600.0, 400.0]}) == 1
    assert independent_programs(deaths, {"another": [600.0] * 7}) == 1


@pytest.mark.parametrize(("jobs", "programs"), [(1, 1), (7, 1), (8, 2), (15, 3)])
def test_jobs_of_one_user_may_be_retries_of_one_program(jobs: int, programs: int) -> None:
    assert independent_programs([death(number, user="u") for number in range(jobs)], {}) == programs


def test_deaths_with_only_xid_45_count_at_most_as_often_as_others() -> None:
    removed = [death(number, removed=True) for number in range(5)]
    assert independent_programs(removed, {}) == 0
    assert independent_programs([*removed, death(9), death(10)], {}) == 4


def test_chance_falls_with_programs_and_with_clean_work_and_rises_with_time() -> None:
    usual = chance_rate(3, 1 / 24, 14.0, 8)
    assert chance_rate(4, 1 / 24, 14.0, 8) < usual
    assert chance_rate(3, 1 / 24, 28.0, 8) < usual
    assert chance_rate(3, 1 / 12, 14.0, 8) > usual
