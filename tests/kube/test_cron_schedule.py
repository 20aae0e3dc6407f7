"""When cron expressions are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.kube.cron_schedule import ScheduleError, parse_schedule


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "moment", "due"),
    [
        ("*/15 * * * *", "2026-03-04T05:06:07", "2026-03-04T05:15:00"),
        ("0 * * * *", "2026-03-04T23:30:00", "2026-03-05T00:00:00"),
        ("30 4 * * 1-5", "2026-03-06T05:00:00", "2026-03-09T04:30:00"),
        ("0 0 29 2 *", "2026-03-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 12 1,15 * sun", "2026-03-02T00:00:00", "2026-03-08T12:00:00"),
        ("0 12 13 * *", "2026-03-02T00:00:00", "2026-03-13T12:00:00"),
        ("5/20 10 * JAN ?", "2026-01-01T10:05:00", "2026-01-01T10:25:00"),
        ("@daily", "2026-03-04T05:06:07", "2026-03-05T00:00:00"),
        ("@weekly", "2026-03-04T05:06:07", "2026-03-08T00:00:00"),
        ("@every 1h30m", "2026-03-04T05:00:00", "2026-03-04T06:30:00"),
        ("TZ=Asia/Tokyo 0 9 * * *", "2026-03-04T05:00:00", "2026-03-05T00:00:00"),
    ],
)
def test_next_time_of_cron_schedule(expression: str, moment: str, due: str) -> None:
    assert parse_schedule(expression).after(at(moment)) == at(due)


def test_schedule_in_time_zone_across_clock_changes() -> None:
    berlin = parse_schedule("30 2 * * *", "Europe/Berlin")
    assert berlin.after(at("2026-01-01T00:00:00")) == at("2026-01-01T01:30:00")
    assert berlin.after(at("2026-07-01T00:00:00")) == at("2026-07-01T00:30:00")
    # 02:30 does not exist on the 29th of March.
    assert berlin.after(at("2026-03-28T12:00:00")) == at("2026-03-30T00:30:00")


def test_impossible_date_has_no_next_time() -> None:
    assert parse_schedule("0 0 31 2 *").after(at("2026-01-01T00:00:00")) is None


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("* * * *", "expected exactly 5 fields, found 4"),
        ("61 * * * *", "is not between 0 and 59"),
        ("* * * * 7", "is not between 0 and 6"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1)"),
        ("*/0 * * * *", "step of range should be a positive number"),
        ("a * * * *", "failed to parse int from minute 'a'"),
        ("@often", "unrecognized descriptor: @often"),
        ("@every soon", "failed to parse duration 'soon'"),
        ("TZ=Nowhere/At 0 0 * * *", "unknown time zone Nowhere/At"),
    ],
)
def test_invalid_cron_schedule_is_refused(expression: str, why: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_schedule(expression)
    assert why in str(caught.value)


@given(
    st.sampled_from(["*/7 * * * *", "3,33 */5 * * *", "0 6 * * 2", "15 1 1-10/3 * *"]),
    st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)),
)
def test_no_matching_minute_is_skipped(expression: str, naive: datetime) -> None:
    """Between a moment and the next time no minute matches."""
    schedule, moment = parse_schedule(expression), naive.replace(tzinfo=UTC)
    due = schedule.after(moment)
    assert due is not None and due > moment
    minute = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while minute < min(due, moment + timedelta(hours=6)):
        day = (minute.day in schedule.days) and (minute.isoweekday() % 7 in schedule.weekdays)
        assert not (day and minute.hour in schedule.hours and minute.minute in schedule.minutes)
        minute += timedelta(minutes=1)
