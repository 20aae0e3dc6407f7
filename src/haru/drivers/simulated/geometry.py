"""Multi-Instance GPU: which partitions a card has, where they may lie, and what each takes of the card.

A partition takes a run of memory slices at one of a few starts, and engines. Its driver describes this by counters: one
unit for each memory slice, the engines and the memory; a set of partitions can exist together exactly if their sums
stay within the card's. Source: NVIDIA's MIG documentation; the NVIDIA DRA driver's publication of dynamic MIG.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

CAPACITIES: Final = (
    "multiprocessors",
    "copyEngines",
    "decoders",
    "encoders",
    "jpegEngines",
    "ofaEngines",
    "memory",
)
"""The dimensions that the driver publishes; memory in MiB here."""

_CAMEL: Final = re.compile("(?<=[a-z])(?=[A-Z])")


def counter_name(capacity: str) -> str:
    """`copyEngines` -> `copy-engines`."""
    return _CAMEL.sub("-", capacity).lower()


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A kind of partition of one card model."""

    profile: str
    instance_profile: int
    """The GPU instance profile's id, part of device names."""
    size: int
    starts: tuple[int, ...]
    amounts: Mapping[str, int]
    """Capacity name -> amount, memory in MiB."""

    @property
    def has_media(self) -> bool:
        """Whether it is a `+me` profile, of which a card holds one."""
        return self.profile.endswith("+me")


class Placement(NamedTuple):
    """A partition at a place."""

    partition: Partition
    start: int

    @property
    def slices(self) -> range:
        """The memory slices it takes."""
        return range(self.start, self.start + self.partition.size)

    def device_name(self, minor: int) -> str:
        """The name its driver gives the device."""
        profile = re.sub("[^a-z0-9]", "-", self.partition.profile.lower().replace(".", ""))
        return f"gpu-{minor}-mig-{profile}-{self.partition.instance_profile}-{self.start}"


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """How one card model may be divided."""

    memory_slices: int
    partitions: tuple[Partition, ...]
    balanced: tuple[Placement, ...]
    """The layout that mig-parted calls all-balanced."""
    counts_media: bool = False
    """Whether a counter of its own keeps `+me` partitions to one, because the engines do not."""

    def placements(self) -> Iterator[Placement]:
        """Every partition at every place."""
        for partition in self.partitions:
            for start in partition.starts:
                yield Placement(partition, start)

    def maxima(self) -> dict[str, int]:
        """Capacity name -> the most that any partition has: what the driver takes for the whole card."""
        return {name: max(p.amounts[name] for p in self.partitions) for name in CAPACITIES}

    def counters(self) -> dict[str, int]:
        """Counter name -> what the card has of it."""
        result = {counter_name(name): amount for name, amount in self.maxima().items()}
        result.update({f"memory-slice-{i}": 1 for i in range(self.memory_slices)})
        if self.counts_media:
            result["media-extension"] = 1
        return result

    def consumption(self, placement: Placement) -> dict[str, int]:
        """Counter name -> what a placed partition takes of it."""
        result = {counter_name(name): amount for name, amount in placement.partition.amounts.items()}
        result.update({f"memory-slice-{i}": 1 for i in placement.slices})
        if self.counts_media and placement.partition.has_media:
            result["media-extension"] = 1
        return result
