"""Numbers as values of flags, for argparse."""

from __future__ import annotations

import argparse
import math


def number(text: str) -> int:
    """A whole number from 0."""
    return whole(text, "write a number, 0 or more")


def count(text: str) -> int:
    """A whole number from 1."""
    return whole(text, "write a number, at least 1", least=1)


def whole(text: str, remedy: str, *, least: int = 0, most: float = math.inf) -> int:
    """A whole number within bounds; the remedy says what to write."""
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": {remedy}')
    return int(text)


def decimal(text: str, remedy: str) -> float:
    """A number from 0, of any size that makes sense; the remedy says what to write."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e9:
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": {remedy}')
    return found
