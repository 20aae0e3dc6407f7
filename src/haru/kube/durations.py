"""Durations in Go's notation: `1h30m`, `-1.5s`, `100ms`.

Source: Go's time.ParseDuration, as behaviour.
"""

from __future__ import annotations

_SECOND = 10**9
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3_600 * _SECOND,
}
_MOST_DIGITS = 30


def nanoseconds_of(text: str) -> int:
    """Of how many nanoseconds a text speaks, however many. Raises ValueError for one that is no duration."""
    position = 1 if text[:1] in ("+", "-") else 0
    if text[position:] == "0":
        return 0
    if position == len(text):
        raise _invalid(text)
    total = 0
    while position < len(text):
        whole = _digits(text, position)
        end = position + len(whole)
        fraction = ""
        if text[end : end + 1] == ".":
            fraction = _digits(text, end + 1)
            end += 1 + len(fraction)
        start = end
        while end < len(text) and text[end] not in ".0123456789":
            end += 1
        unit = _UNITS.get(text[start:end])
        if unit is None or not (whole or fraction):
            raise _invalid(text)
        total += int(whole or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        position = end
    return -total if text[0] == "-" else total


def seconds_of(text: str) -> float:
    """Parse a duration, in seconds."""
    return nanoseconds_of(text) / _SECOND


def _digits(text: str, start: int) -> str:
    end = start
    while end < len(text) and text[end] in "0123456789":
        end += 1
    if end - start > _MOST_DIGITS:
        raise _invalid(text)
    return text[start:end]


def _invalid(text: str) -> ValueError:
    return ValueError(f'time: invalid duration "{text}"')
