"""Durations in Go's notation."""

from __future__ import annotations

import pytest

from haru.kube.durations import nanoseconds_of, seconds_of


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("1ns", 1),
        ("2us", 2_000),
        ("2µs", 2_000),
        ("2μs", 2_000),
        ("1.5ms", 1_500_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("-1m30s", -90_000_000_000),
        ("1h1m1s1ms", 3_661_001_000_000),
        ("0.0000000009s", 0),
    ],
)
def test_duration_text_gives_nanoseconds(text: str, nanoseconds: int) -> None:
    assert nanoseconds_of(text) == nanoseconds
    assert seconds_of(text) == nanoseconds / 1e9


@pytest.mark.parametrize(
    "text", ["", "-", "1", "s", ".s", "1x", "1s ", " 1s", "1s2", "1d", "--1s", "1" * 31 + "s", "١s"]
)
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time: invalid duration"):
        nanoseconds_of(text)
