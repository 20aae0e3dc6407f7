"""The numbers that control groups take for amounts of CPU. Pure.

Source: the kubelet's conversion of milli-CPUs to shares, weights and quotas, as behaviour.
"""

from __future__ import annotations

from typing import Final

MIN_SHARES: Final = 2
MAX_SHARES: Final = 262_144
PERIOD_MICROSECONDS: Final = 100_000
_MIN_QUOTA_MICROSECONDS: Final = 1_000


def shares_of(milli: int) -> int:
    """`cpu.shares` for so many thousandths of a CPU."""
    return min(max(milli * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def weight_of(shares: int) -> int:
    """`cpu.weight` of the unified hierarchy for shares."""
    return 1 + (shares - MIN_SHARES) * 9_999 // (MAX_SHARES - MIN_SHARES)


def quota_of(milli: int) -> int:
    """`cpu.cfs_quota_us` for so many thousandths of a CPU; 0 for no limit."""
    return max(milli * PERIOD_MICROSECONDS // 1000, _MIN_QUOTA_MICROSECONDS) if milli else 0
