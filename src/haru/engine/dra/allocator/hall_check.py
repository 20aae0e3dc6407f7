"""Requests that compete for devices: whether all can have as many as they need at once (Hall's condition).

Devices are handed out by augmenting paths: a request takes a free device, or one whose holder finds another. Devices
that draw on one counter also share the number of devices that the counter can serve at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class HallCheck:
    """One question: `demands` are (number of devices, positions that would do); `cluster` gives the shared limits."""

    def __init__(self, cluster_of: Mapping[int, int], limits: Mapping[int, int]) -> None:
        self._cluster_of = cluster_of
        self._limits = limits
        self._holder: dict[int, int] = {}
        self._members: dict[int, set[int]] = {}
        self._wanted: list[Sequence[int]] = []

    def satisfiable(self, demands: Sequence[tuple[int, Sequence[int]]]) -> bool:
        """Whether every demand can be met at once."""
        self._wanted = [positions for _, positions in demands]
        return all(
            self._serve(number, set(), set()) for number, (needed, _) in enumerate(demands) for _ in range(needed)
        )

    def _serve(self, demand: int, seen: set[int], full: set[int]) -> bool:
        """Give one more device to a demand, moving others to other devices if need be."""
        for position in self._wanted[demand]:
            if position in seen or self._holder.get(position) == demand:
                continue
            seen.add(position)
            holder = self._holder.get(position)
            if holder is not None:
                if self._serve(holder, seen, full):
                    self._holder[position] = demand
                    return True
            elif self._make_room(position, seen, full):
                self._take(position, demand)
                return True
        return False

    def _make_room(self, position: int, seen: set[int], full: set[int]) -> bool:
        """Whether the limit that the device is under allows one more, or some holder under it can go elsewhere."""
        cluster = self._cluster_of.get(position)
        if cluster is None:
            return True
        members = self._members.setdefault(cluster, set())
        if len(members) < self._limits[cluster]:
            return True
        if cluster in full:
            return False
        full.add(cluster)
        for other in sorted(members):
            holder = self._holder[other]
            if other not in seen:
                seen.add(other)
                if self._serve(holder, seen, full) and self._holder.get(other) == holder:
                    self._drop(other)
                    return True
        return False

    def _take(self, position: int, demand: int) -> None:
        self._holder[position] = demand
        cluster = self._cluster_of.get(position)
        if cluster is not None:
            self._members.setdefault(cluster, set()).add(position)

    def _drop(self, position: int) -> None:
        del self._holder[position]
        self._members[self._cluster_of[position]].discard(position)
