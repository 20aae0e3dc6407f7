"""Which faults a run injects and when, from its seed. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal

FaultKind = Literal["leader", "apiserver", "etcd", "partition", "expired", "throttle", "latency"]
FAULTS: Final[dict[FaultKind, str]] = {
    "leader": "the leading scheduler is killed while it binds a gang",
    "apiserver": "the API server is killed and started again",
    "etcd": "etcd is stopped for a while",
    "partition": "nothing comes from the API server to the schedulers, no connection is closed",
    "expired": "the schedulers' watches end, and their revisions have expired (410)",
    "throttle": "half of the schedulers' requests are answered 429 with Retry-After",
    "latency": "each request of the schedulers takes 50 ms longer",
}
_SECONDS: Final[dict[FaultKind, tuple[float, float]]] = {
    "leader": (0.5, 2.0),
    "apiserver": (0.2, 3.0),
    "etcd": (2.0, 5.0),
    "partition": (3.0, 8.0),
    "expired": (0.0, 0.0),
    "throttle": (2.0, 5.0),
    "latency": (5.0, 10.0),
}
_SALT: Final = 0x5EED


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that begins `at` seconds after the start and lasts so long."""

    kind: FaultKind
    at: float
    seconds: float


class FaultError(ValueError):
    """A name of no fault."""


def parse_faults(text: str) -> tuple[FaultKind, ...]:
    """Read `leader,etcd,…` or `all`; raises FaultError."""
    names = {part.strip() for part in text.split(",") if part.strip()}
    if "all" in names:
        return tuple(FAULTS)
    if not names or names - FAULTS.keys():
        raise FaultError(f'--faults: Invalid value: "{text}": name some of {", ".join(FAULTS)}, or all')
    return tuple(kind for kind in FAULTS if kind in names)


def plan_faults(seed: int, kinds: tuple[FaultKind, ...], seconds: float, every: float = 6.0) -> tuple[Fault, ...]:
    """Spread faults over a run, about one in `every` seconds; each kind comes before one comes again."""
    rng = random.Random(seed ^ _SALT)
    count = max(int(seconds / every), 1) if kinds else 0
    order: list[FaultKind] = []
    while len(order) < count:
        order += rng.sample(kinds, len(kinds))
    width = seconds / max(count, 1)
    return tuple(
        Fault(kind, round((number + rng.uniform(0.1, 0.9)) * width, 3), round(rng.uniform(*_SECONDS[kind]), 3))
        for number, kind in enumerate(order[:count])
    )
