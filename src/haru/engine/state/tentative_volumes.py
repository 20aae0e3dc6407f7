"""Which volumes the claims of tentatively placed pods would be bound to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class VolumeChoice(NamedTuple):
    """The volume for a claim (empty: it is to be provisioned), and the nodes of the pods that use the claim."""

    volume: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class TentativeVolumes:
    """The choices by the claims' paths; `taken` has the claims by the names of their volumes. Nothing in it changes."""

    choices: Mapping[str, VolumeChoice] = field(default_factory=dict)
    taken: Mapping[str, str] = field(default_factory=dict)


NO_VOLUMES = TentativeVolumes()
