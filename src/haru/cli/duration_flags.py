"""Durations as values of flags, in Go's notation, for argparse."""

from __future__ import annotations

import argparse

_MOST = 2**63 - 1
"""Nanoseconds of the longest duration in Kubernetes, 292 years."""


def duration(text: str) -> float:
    """Seconds, from 0."""
    return nanoseconds(text, 0, "write a duration such as 30s or 1m30s") / 1e9


def period(text: str) -> float:
    """Seconds, above 0."""
    return nanoseconds(text, 1, "write a duration above 0, such as 30s or 1m30s") / 1e9


def whole_seconds(text: str) -> int:
    """Seconds, from 0, without a fraction."""
    remedy = "write a duration in whole seconds, such as 24h"
    seconds, fraction = divmod(nanoseconds(text, 0, remedy), 10**9)
    if fraction:
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": {remedy}')
    return seconds


def nanoseconds(text: str, least: int, remedy: str) -> int:
    """Nanoseconds of a duration, as many as `least` or more; the remedy says what to write."""
    from haru.kube.durations import nanoseconds_of

    try:
        found = nanoseconds_of(text)
    except ValueError:
        found = -1
    if not least <= found <= _MOST:
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": {remedy}')
    return found
