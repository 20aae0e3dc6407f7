"""Numbers as values of flags, for argparse."""

from __future__ import annotations

import argparse


def number(text: str) -> int:
    """A whole number from 0."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write a number, 0 or more')
    return int(text)


def count(text: str) -> int:
    """A whole number from 1."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write a number, at least 1')
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
