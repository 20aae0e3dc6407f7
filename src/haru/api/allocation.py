"""Allocate ResourceClaims together on every node as a trial, or say why they cannot be allocated."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from haru.api.allocation_data import AllocationData, GivenClaim, RefusedOn
from haru.api.allocation_text import to_text
from haru.api.files import plain, stored_objects
from haru.api.html import allocation_html
from haru.engine import Features, Snapshot
from haru.engine.dra import DEFAULT_BUDGET, AllocationError, DoesNotFit, GaveUp, NodeFunnel, NodeView, explain_requests
from haru.engine.equivalence import Answer, ClaimQuery, NodeClassIndex
from haru.errors import InputError
from haru.kube.meta import Obj

_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Allocation(AllocationData):
    """Which devices claims get, and where; `AllocationData` explains the fields."""

    def __str__(self) -> str:
        return to_text(self)

    def _repr_html_(self) -> str:
        return allocation_html(self)


@dataclass(frozen=True, slots=True)
class AllocationQuery:
    """Claims to allocate together, on every node or on one.

    `timeout` (seconds) is when to give up; without it the search is bounded in steps, the same on every machine.
    """

    claims: Sequence[Obj]
    node: str | None = None
    timeout: float | None = None
    device_scoring: bool = False


def allocation_of(snapshot: Snapshot, query: AllocationQuery, features: Features) -> Allocation:
    """Allocate the claims on each node as a trial. Raises InputError if there is no node."""
    claims, timeout = query.claims, query.timeout
    nodes = _nodes(snapshot, query.node)
    fleet = NodeClassIndex(snapshot.devices, snapshot.allocated, nodes, partitionable=features.PartitionableDevices)
    deadline = time.monotonic() + timeout if timeout else None
    question = ClaimQuery(
        fleet,
        list(claims),
        features,
        step_budget=DEFAULT_BUDGET if deadline is None else _UNLIMITED,
        expired=None if deadline is None else lambda: time.monotonic() > deadline,
        scoring=query.device_scoring,
    )
    fitting = question.fits(fleet)
    given: tuple[GivenClaim, ...] = ()
    if fitting:
        results = question.results(fleet, fitting[0], lambda: str(uuid4()))
        assert isinstance(results, tuple)
        given = tuple(_given(claim, result) for claim, result in zip(claims, results, strict=True))
    names = tuple(nodes[number].name for number in fitting)
    return Allocation(len(nodes), names, given, tuple(_refusals(question, fleet, fitting, features)))


def asked_claims(given: Obj | Sequence[Obj], namespace: str) -> list[Obj]:
    """Return claims given as dicts as a server would store them; version and kind need not be said.

    Raises InputError that names the object and what is wrong with it.
    """
    typed = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    objects = map(plain, [given] if isinstance(given, Mapping) else given)
    claims = stored_objects([{**typed, **obj} if isinstance(obj, dict) else obj for obj in objects], namespace)
    found = [claim for _, claim in claims]
    for number, claim in enumerate(found):
        if claim["kind"] != "ResourceClaim":
            raise InputError(f"object #{number} ({claim['kind']} {claim['metadata']['name']}): give ResourceClaims")
    return found


def waiting_claims(objects: Sequence[Obj]) -> list[Obj]:
    """Return the claims to allocate, in the order of the objects: unallocated ones, and one for each template."""
    claims = []
    for obj in objects:
        if obj["kind"] == "ResourceClaim" and not (obj.get("status") or {}).get("allocation"):
            claims.append(obj)
        elif obj["kind"] == "ResourceClaimTemplate":
            claims.append({"metadata": obj["metadata"], "spec": (obj.get("spec") or {}).get("spec") or {}})
    if not claims:
        raise InputError("there is no ResourceClaim without allocation and no ResourceClaimTemplate")
    return claims


def _given(claim: Obj, result: Obj) -> GivenClaim:
    metadata = claim["metadata"]
    return GivenClaim(metadata.get("namespace") or "default", metadata["name"], result)


def _nodes(snapshot: Snapshot, only: str | None) -> list[NodeView]:
    """Return the existing nodes and those that slices name; only one if it is given."""
    views = {name: NodeView(name, snapshot.nodes[name].labels) for name in snapshot.node_names}
    for name in snapshot.devices.by_node:
        views.setdefault(name, NodeView(name, {}))
    if only is not None:
        if only not in views:
            raise InputError(f'there is no Node "{only}", and no ResourceSlice of it')
        return [views[only]]
    if not views:
        raise InputError("no node is named: add a Node, or ResourceSlices with nodeName")
    return [views[name] for name in sorted(views)]


def _refusals(
    question: ClaimQuery, fleet: NodeClassIndex, fitting: Sequence[int], features: Features
) -> list[RefusedOn]:
    """Return why the other nodes cannot serve the claims, one entry for all equal nodes."""
    refused = []
    fits = set(fitting)
    for peers in fleet.classes.values():
        numbers = sorted(peers.nodes)
        if numbers[0] in fits:
            continue
        found = question.answer(fleet, peers)
        refused.append(_refused(question, fleet, numbers, found, features))
    return sorted(refused, key=lambda entry: entry.nodes[0])


def _refused(
    question: ClaimQuery, fleet: NodeClassIndex, numbers: Sequence[int], found: Answer, features: Features
) -> RefusedOn:
    names, first = tuple(fleet.nodes[number].name for number in numbers), fleet.nodes[numbers[0]]
    if isinstance(found, GaveUp):
        return RefusedOn(names, error=str(found))
    error = str(found) if isinstance(found, AllocationError) else ""
    try:
        funnel = explain_requests(fleet.snapshot, fleet.allocated, first, question.claims, features)
    except AllocationError as problem:
        return RefusedOn(names, error=str(problem))
    refusals = list(funnel.refusals) or (list(found.reasons) if isinstance(found, DoesNotFit) else [])
    reasons: tuple[Obj, ...] = tuple({"type": refusal.type, "message": refusal.message} for refusal in refusals)
    return RefusedOn(names, reasons, tuple(_funnels(funnel)), error)


def _funnels(funnel: NodeFunnel) -> list[Obj]:
    return [
        {
            "claim": request.claim,
            "request": request.request,
            "deviceClass": request.device_class,
            "needed": request.needed,
            "funnel": [{"condition": stage.name, "left": stage.left} for stage in request.stages],
        }
        for request in funnel.requests
    ]
