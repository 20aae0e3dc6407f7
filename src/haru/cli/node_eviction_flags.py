"""Define the flags of `haru node` about pressure and unused images, named as the kubelet's."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from haru.cli.duration_flags import duration
from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.node.agent import EvictionOptions, ImageGcOptions

_DEFAULT_HARD = (
    "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%"
)


def add_eviction_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of evictions and of the collection of images."""
    group = parser.add_argument_group("pressure on the node")
    group.add_argument(
        "--eviction-hard",
        metavar="SIGNAL<AMOUNT,…",
        default=_DEFAULT_HARD,
        help=f'evict pods at once while less than this is free (default {_DEFAULT_HARD.replace("%", "%%")}; "": never)',
    )
    group.add_argument(
        "--eviction-soft",
        metavar="SIGNAL<AMOUNT,…",
        default="",
        help="evict pods while less than this has been free for the signal's grace period",
    )
    group.add_argument(
        "--eviction-soft-grace-period",
        metavar="SIGNAL=DURATION,…",
        default="",
        help="grace periods of the signals in --eviction-soft",
    )
    group.add_argument(
        "--eviction-minimum-reclaim",
        metavar="SIGNAL=AMOUNT,…",
        default="",
        help="go on until so much more than the threshold is free",
    )
    group.add_argument(
        "--eviction-pressure-transition-period",
        type=duration,
        metavar="DURATION",
        default="5m",
        help="how long a condition of pressure stays after it was last observed (default 5m)",
    )
    group.add_argument(
        "--eviction-max-pod-grace-period",
        metavar="SECONDS",
        type=int,
        default=0,
        help="longest grace period of a pod at a soft threshold; negative: the pod's own (default 0)",
    )
    group.add_argument(
        "--image-gc-high-threshold",
        metavar="PERCENT",
        type=int,
        default=85,
        help="remove unused images once their disk is so full (default 85; 100: never)",
    )
    group.add_argument(
        "--image-gc-low-threshold",
        metavar="PERCENT",
        type=int,
        default=80,
        help="until it is no fuller than this (default 80)",
    )
    group.add_argument(
        "--minimum-image-ttl-duration",
        type=duration,
        metavar="DURATION",
        default="2m",
        help="how long an unused image is kept at least (default 2m)",
    )
    group.add_argument(
        "--image-maximum-gc-age",
        type=duration,
        metavar="DURATION",
        default="0s",
        help="how long an unused image is kept at most, as imageMaximumGCAge (default 0s: for ever)",
    )


def eviction_options(flags: argparse.Namespace) -> EvictionOptions:
    """The flags, checked. Raises UsageError."""
    from haru.node.agent import EvictionOptions
    from haru.node.eviction import parse_thresholds

    grace = _pairs(flags, "eviction_soft_grace_period", "=")
    try:
        thresholds = parse_thresholds(
            _pairs(flags, "eviction_hard", "<"),
            _pairs(flags, "eviction_soft", "<"),
            {signal: _grace(text) for signal, text in grace.items()},
            _pairs(flags, "eviction_minimum_reclaim", "="),
        )
    except ValueError as error:
        raise UsageError(f"--eviction-hard, --eviction-soft: Invalid value: {error}") from error
    return EvictionOptions(thresholds, flags.eviction_pressure_transition_period, flags.eviction_max_pod_grace_period)


def image_gc_options(flags: argparse.Namespace) -> ImageGcOptions:
    """The flags, checked. Raises UsageError."""
    from haru.node.agent import ImageGcOptions

    high, low = flags.image_gc_high_threshold, flags.image_gc_low_threshold
    if not 0 <= low <= high <= 100:
        raise UsageError(
            f"--image-gc-high-threshold: Invalid value: {high}: write 0 to 100, "
            f"and no less than --image-gc-low-threshold, which is {low}"
        )
    return ImageGcOptions(high, low, flags.minimum_image_ttl_duration, flags.image_maximum_gc_age)


def _grace(text: str) -> float:
    try:
        return duration(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--eviction-soft-grace-period: {error}") from None


def _pairs(flags: argparse.Namespace, name: str, between: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (part.strip() for part in getattr(flags, name).split(","))):
        signal, sign, value = part.partition(between)
        if not signal or not sign or not value:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f'{flag}: Invalid value: "{part}": write SIGNAL{between}VALUE')
        found[signal.strip()] = value.strip()
    return found
