"""The answer as a value; texts and JSON are made from it at the very end.

Runs        it has its place and runs, or has run to its end
Starting    it has its place, or one is free for it, and only time is missing
FitsLater   it waits for something that comes by itself: work that ends, a claim that a controller makes
FitsIf      it waits for somebody to change something
NeverFits   what exists cannot serve it, even if nothing else ran and nothing were tainted or cordoned
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from haru.engine.decision import Obj, Reason
from haru.engine.devices import RequestFunnel

Verdict = Literal["Runs", "Starting", "FitsLater", "FitsIf", "NeverFits"]


@dataclass(frozen=True, slots=True)
class Funnel:
    """What one request asks for, and how far it gets on the node that comes closest to serving it."""

    node: str
    request: RequestFunnel


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that refuse for the same reasons."""

    count: int
    examples: tuple[str, ...]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that would help. `cost` orders remedies: how much it takes away from, or asks of, others.

    `changes` are objects to create or delete and patches to apply: `{"action": …, "object": …}` or, for patches,
    `{"action": "patch", "target": …, "patch": …}`. `confirmed` says that with them the answer is yes.
    """

    kind: str
    summary: str
    changes: tuple[Obj, ...]
    cost: int
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an object is as it is, and what would help. `age_seconds` is how long it has waited, if that was asked."""

    kind: str
    namespace: str
    name: str
    verdict: Verdict
    summary: str
    reasons: tuple[Reason, ...] = ()
    nodes: tuple[NodeGroup, ...] = ()
    requests: tuple[Funnel, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    age_seconds: int | None = None
