"""What a decision depends on besides the snapshot: with the same options and snapshot it is the same decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from haru.engine.devices import Features


def _no_share_id() -> str:
    raise ValueError("a device that several claims may share was chosen, but Options.new_share_id is not set")


@dataclass(frozen=True, slots=True)
class Options:
    """How to decide.

    `seed` breaks ties. `step_budget` bounds the device search of one node and, separately, the search for the places
    of a gang: beyond it the answer is "gave up", an error, never "does not fit". `new_share_id` makes identifiers of
    shares, and is asked only for devices that several claims may share. The switches are the gates GangScheduling and
    DRAWorkloadResourceClaims.
    """

    seed: int = 0
    step_budget: int = 1_000_000
    features: Features = field(default_factory=Features)
    new_share_id: Callable[[], str] = _no_share_id
    gang_scheduling: bool = True
    workload_claims: bool = True
