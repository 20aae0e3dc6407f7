"""Bounds of the resident answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is answered at once. Questions are answered one after the other; durations are seconds."""

    waiting: int = 32
    """Different questions that wait or are being answered; further ones get 429."""
    waiting_per_user: int = 8
    seconds: float = 30.0
    """For one answer, with the time that it waits."""
    namespaces: int = 16
    """Other namespaces for which it is reviewed whether the user may see their names."""
    review_seconds: float = 10.0
    """How long a review holds."""
    kept: int = 256
    """Questions whose last answers are kept: as they are while the cluster has not changed, their remedies longer."""
    kept_seconds: float = 5.0
    remedies_seconds: float = 30.0
    """How long remedies hold while everything else that is told of the object stays the same."""
    refresh_seconds: float = 10.0
    """After which they are looked for anew, behind the back of who asks."""
