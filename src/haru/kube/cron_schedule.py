"""When a cron expression is due (pure): five fields, names, steps, `@hourly` and its like, `@every 1h30m`, time zones.

A day counts if the day of the month or that of the week says so, unless one of them is `*` or `?`: then the other alone
decides. Times that a clock change leaves out are passed over.
Source: the parser that Kubernetes' CronJobs use (robfig/cron v3, standard form), as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from haru.kube.durations import seconds_of

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_YEARS = 5


class ScheduleError(ValueError):
    """The expression, or its time zone, makes no sense; the text says why."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A parsed expression. `every` is set for a fixed pause, counted from when the last one was due."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    zone: ZoneInfo
    every: timedelta | None = None

    def after(self, moment: datetime) -> datetime | None:
        """The first time after a moment, in UTC; None if there is none within five years."""
        if self.every is not None:
            return (moment + self.every).replace(microsecond=0)
        local = moment.astimezone(self.zone)
        for day in self._days_from(local):
            today = day.date() == local.date()
            for hour in sorted(self.hours):
                if today and hour < local.hour:
                    continue
                for minute in sorted(self.minutes):
                    found = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self.zone).astimezone(UTC)
                    back = found.astimezone(self.zone)
                    if found > moment and (back.hour, back.minute) == (hour, minute):
                        return found
        return None

    def _days_from(self, local: datetime) -> Iterator[datetime]:
        day = datetime(local.year, local.month, local.day, tzinfo=self.zone)
        last = day.year + _YEARS
        while day.year <= last:
            if day.month in self.months and self._is_day(day):
                yield day
            day += timedelta(days=1)

    def _is_day(self, day: datetime) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (of_month and of_week) if self.both_days else (of_month or of_week)


def parse_schedule(text: str, zone: str = "") -> Schedule:
    """The schedule of an expression in a time zone (UTC without one). Raises ScheduleError."""
    place = _zone(zone)
    stripped = text.strip()
    if stripped.startswith(("TZ=", "CRON_TZ=")):
        prefix, _, stripped = stripped.partition(" ")
        place, stripped = _zone(prefix.partition("=")[2]), stripped.strip()
    if stripped.startswith("@every "):
        nothing: frozenset[int] = frozenset()
        pause = timedelta(seconds=max(1, round(_duration(stripped.removeprefix("@every ").strip()))))
        return Schedule(nothing, nothing, nothing, nothing, nothing, True, place, pause)
    if stripped.startswith("@"):
        if stripped not in _NAMED:
            raise ScheduleError(f"unrecognized descriptor: {stripped}")
        stripped = _NAMED[stripped]
    parts = stripped.split()
    if len(parts) != len(_FIELDS):
        raise ScheduleError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
    minutes, hours, days, months, weekdays = (_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True))
    both = any(part.startswith(("*", "?")) for part in (parts[2], parts[4]))
    return Schedule(minutes, hours, days, months, weekdays, both, place)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(f"unknown time zone {name}") from None


def _field(text: str, what: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        extent, slash, step = part.partition("/")
        if extent.partition("-")[0] in ("*", "?"):
            first, last = low, high
        else:
            start, dash, end = extent.partition("-")
            first = _number(start, what, names)
            last = _number(end, what, names) if dash else (high if slash else first)
        stride = _number(step, what, {}) if slash else 1
        if stride == 0:
            raise ScheduleError(f"step of range should be a positive number: {part}")
        if first < low or last > high:
            raise ScheduleError(f"{what} {part!r} is not between {low} and {high}")
        if first > last:
            raise ScheduleError(f"beginning of range ({first}) beyond end of range ({last}): {part}")
        found |= set(range(first, last + 1, stride))
    return frozenset(found)


def _number(text: str, what: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not text.isascii() or not text.isdigit():
        raise ScheduleError(f"failed to parse int from {what} {text!r}")
    return int(text)


def _duration(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError:
        raise ScheduleError(f"failed to parse duration {text!r}") from None
