"""Timestamps and durations: their text forms, and the parts of a moment. Nanoseconds throughout; UTC by default."""

from __future__ import annotations

from haru.cel.errors import EvaluationError
from haru.cel.libraries.arithmetic import TIMESTAMP_MAX, TIMESTAMP_MIN, checked_duration
from haru.cel.overloads import Overload, member
from haru.cel.types import DURATION, INT, STRING, TIMESTAMP
from haru.cel.values import Duration, Timestamp
from haru.kube.durations import nanoseconds_of

_SECOND = 10**9
_DAY = 86_400


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar extended backwards."""
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def days_from_civil(year: int, month: int, day: int) -> int:
    """The inverse of `civil`."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468


def _days_in_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _number(text: str, start: int, width: int) -> int:
    digits = text[start : start + width]
    if len(digits) != width or not (digits.isascii() and digits.isdigit()):
        raise ValueError
    return int(digits)


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339."""
    try:
        ns = _parse_rfc3339(text)
    except ValueError:
        raise EvaluationError(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse') from None
    if not TIMESTAMP_MIN <= ns <= TIMESTAMP_MAX:
        raise EvaluationError("timestamp overflow")
    return Timestamp(ns)


def _parse_rfc3339(text: str) -> int:
    year, month, day = _number(text, 0, 4), _number(text, 5, 2), _number(text, 8, 2)
    hour, minute, second = _number(text, 11, 2), _number(text, 14, 2), _number(text, 17, 2)
    if text[4] + text[7] + text[10].upper() + text[13] + text[16] != "--T::":
        raise ValueError
    if not (1 <= month <= 12 and 1 <= day <= _days_in_month(year, month) and hour < 24 and minute < 60 and second < 60):
        raise ValueError
    position, fraction = 19, 0
    if text[19:20] == ".":
        end = 20
        while end < len(text) and text[end] in "0123456789":
            end += 1
        if end == 20:
            raise ValueError
        fraction = int(text[20:end][:9].ljust(9, "0"))
        position = end
    seconds = days_from_civil(year, month, day) * _DAY + hour * 3_600 + minute * 60 + second
    return (seconds - _zone(text[position:])) * _SECOND + fraction


def _zone(text: str) -> int:
    if text in ("Z", "z"):
        return 0
    if len(text) != 6 or text[0] not in "+-" or text[3] != ":":
        raise ValueError
    hours, minutes = _number(text, 1, 2), _number(text, 4, 2)
    if hours > 23 or minutes > 59:
        raise ValueError
    offset = hours * 3_600 + minutes * 60
    return -offset if text[0] == "-" else offset


def format_timestamp(value: Timestamp) -> str:
    """RFC 3339 in UTC, with as many decimals as needed."""
    seconds, ns = divmod(value.ns, _SECOND)
    days, rest = divmod(seconds, _DAY)
    year, month, day = civil(days)
    fraction = f".{ns:09d}".rstrip("0") if ns else ""
    return f"{year:04d}-{month:02d}-{day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}{fraction}Z"


def parse_duration(text: str) -> Duration:
    """Go's notation: `1h30m`, `-1.5s`, `100ms`."""
    try:
        return checked_duration(nanoseconds_of(text))
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def format_duration(value: Duration) -> str:
    """Seconds with as many decimals as needed: `5400s`, `0.5s`."""
    seconds, ns = divmod(abs(value.ns), _SECOND)
    fraction = f".{ns:09d}".rstrip("0") if ns else ""
    return f"{'-' if value.ns < 0 else ''}{seconds}{fraction}s"


def _offset(name: str, seconds: int) -> int:
    """How many seconds a time zone is ahead of UTC at a moment."""
    if name in ("UTC", "Z", ""):
        return 0
    sign = -1 if name[0] == "-" else 1
    hours, colon, minutes = name.lstrip("+-").partition(":")
    if colon:
        if not (len(hours) == 2 and len(minutes) == 2 and (hours + minutes).isascii() and (hours + minutes).isdigit()):
            raise EvaluationError(f"invalid timezone: {name}")
        if int(hours) > 23 or int(minutes) > 59:
            raise EvaluationError(f"invalid timezone: {name}")
        return sign * (int(hours) * 3_600 + int(minutes) * 60)
    return _named_offset(name, seconds)


def _named_offset(name: str, seconds: int) -> int:
    # Named zones are rare in expressions, and these modules are slow to import.
    from datetime import UTC, datetime, timedelta
    from zoneinfo import ZoneInfo

    try:
        zone = ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise EvaluationError(f"unknown time zone {name}") from None
    # On the first and the last day the local time may be in a year that Python does not have. No zone changes there.
    seconds = min(max(seconds, TIMESTAMP_MIN // _SECOND + _DAY), TIMESTAMP_MAX // _SECOND - _DAY)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    ahead = moment.astimezone(zone).utcoffset()
    return 0 if ahead is None else int(ahead.total_seconds())


def _part(name: str, days: int, rest: int, ns: int) -> int:
    if name == "getHours":
        return rest // 3_600
    if name == "getMinutes":
        return rest // 60 % 60
    if name == "getSeconds":
        return rest % 60
    if name == "getMilliseconds":
        return ns // 1_000_000
    if name == "getDayOfWeek":
        return (days + 4) % 7
    year, month, day = civil(days)
    if name == "getFullYear":
        return year
    if name == "getMonth":
        return month - 1
    if name == "getDayOfYear":
        return days - days_from_civil(year, 1, 1)
    return day if name == "getDate" else day - 1


def _accessor(name: str, id: str) -> tuple[Overload, Overload]:
    def get(value: Timestamp, zone: str = "UTC") -> int:
        seconds, ns = divmod(value.ns, _SECOND)
        days, rest = divmod(seconds + _offset(zone, seconds), _DAY)
        return _part(name, days, rest, ns)

    return (
        member(f"timestamp_to_{id}", (TIMESTAMP,), INT, get),
        member(f"timestamp_to_{id}_with_tz", (TIMESTAMP, STRING), INT, get),
    )


def _duration_part(id: str, unit: int) -> Overload:
    def get(value: Duration) -> int:
        amount = abs(value.ns) // unit
        return amount if value.ns >= 0 else -amount

    return member(f"duration_to_{id}", (DURATION,), INT, get)


FUNCTIONS: dict[str, tuple[Overload, ...]] = {
    "getFullYear": _accessor("getFullYear", "year"),
    "getMonth": _accessor("getMonth", "month"),
    "getDayOfYear": _accessor("getDayOfYear", "day_of_year"),
    "getDayOfMonth": _accessor("getDayOfMonth", "day_of_month"),
    "getDate": _accessor("getDate", "day_of_month_1_based"),
    "getDayOfWeek": _accessor("getDayOfWeek", "day_of_week"),
    "getHours": (*_accessor("getHours", "hours"), _duration_part("hours", 3_600 * _SECOND)),
    "getMinutes": (*_accessor("getMinutes", "minutes"), _duration_part("minutes", 60 * _SECOND)),
    "getSeconds": (*_accessor("getSeconds", "seconds"), _duration_part("seconds", _SECOND)),
    "getMilliseconds": (*_accessor("getMilliseconds", "milliseconds"), _duration_part("milliseconds", 1_000_000)),
}
