"""Device allocation for everybody: plain Kubernetes dicts in, plain dicts out, no cluster needed.

    allocate(claims, node=…, slices=…, classes=…)        what one node would give the claims
    allocate_many(claims, nodes=…, slices=…, classes=…)  the same for many nodes; equal nodes are decided once

The claims are allocated together, all or nothing, and the answer is the one of Kubernetes 1.36: the first solution in
its order, with the outcomes that its API documentation intends. Nothing that is passed in is changed. Objects of
resource.k8s.io are those of v1; v1beta1 and v1beta2 are converted where `apiVersion` says so. Nothing is defaulted and
nothing is validated beyond what it takes to understand the objects.

Sources: KEP-4381 (structured parameters), 4815 (partitionable devices), 4816 (prioritized list), 5004, 5007 (binding
conditions), 5018 (admin access), 5055 (device taints), 5075 (consumable capacity), 5491 (list attributes).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import itemgetter
from typing import Any, NoReturn
from uuid import uuid4

from haru.arguments import checks_types
from haru.engine import Features
from haru.engine.dra import DEFAULT_BUDGET, AllocationError, DeviceId, DeviceSnapshot, DoesNotFit, GaveUp, NodeView
from haru.engine.dra import AllocatedState as State
from haru.engine.equivalence import ClaimQuery, NodeClassIndex, Refusal
from haru.errors import InputError
from haru.kube.conversion import convert
from haru.kube.decoding import strict_decode
from haru.kube.errors import StatusError
from haru.kube.kinds import by_kind, storage_kind
from haru.kube.meta import Obj

__all__ = [
    "AllocatedState",
    "AllocationError",
    "Features",
    "GaveUp",
    "InputError",
    "InvalidPools",
    "Problem",
    "allocate",
    "allocate_many",
]

_UNLIMITED = 1 << 60
_MISSHAPEN = (AttributeError, LookupError, TypeError, ValueError, RecursionError, StatusError)


class InvalidPools(AllocationError):
    """The claims do not fit on this node while pools that it sees are invalid; other nodes may still serve them."""


@dataclass(frozen=True)
class AllocatedState:
    """What is taken already, as bare facts.

    `devices` are taken whole: `{driver, pool, device}` dicts or `(driver, pool, device)` tuples. `shared` are shares of
    devices that several claims can have: dicts with `shareID` besides, or tuples of four. `capacity` is what those
    shares consume: dicts `{driver, pool, device, capacity: {name: quantity}}`, or a mapping from tuples to such maps.
    """

    devices: Iterable[Mapping[str, str] | tuple[str, str, str]] = ()
    shared: Iterable[Mapping[str, str] | tuple[str, str, str, str]] = ()
    capacity: Iterable[Mapping[str, Any]] | Mapping[tuple[str, str, str], Mapping[str, Any]] = field(
        default_factory=dict
    )


@checks_types
def allocate(
    claims: Sequence[Obj],
    *,
    node: Obj,
    slices: Iterable[Obj],
    classes: Iterable[Obj],
    allocated: AllocatedState | State | Iterable[Obj] = (),
    features: Features | Mapping[str, bool] | None = None,
    timeout: float | None = None,
    new_share_id: Callable[[], str] | None = None,
    device_scoring: bool = False,
) -> list[Obj] | None:
    """What the node gives the claims: one AllocationResult (`status.allocation`) per claim in their order, or None.

    `claims`      ResourceClaims to allocate together; what their status says is not looked at
    `node`        the Node: its name and labels count
    `slices`      every ResourceSlice of the cluster, those of other nodes too
    `classes`     the DeviceClasses
    `allocated`   what is taken: an `AllocatedState` (this module's or the engine's), or ResourceClaims, of which those
                  with `status.allocation` count
    `features`    which optional behaviours are on, by name (the fields of `Features`); the others are as in 1.36
    `timeout`     seconds after which to give up; without it the search is bounded in steps, the same on every machine
    `new_share_id` makes the IDs of shares (random UUIDs)
    `device_scoring` prefers fragments and small devices and keeps whole cards whole; without it the order is that of
                  1.36. What fits does not depend on it

    Raises InputError (the objects make no sense), AllocationError (Kubernetes would abort the scheduling attempt on
    every node: a selector fails, a class is missing, …), its subclass InvalidPools (only this node is out), or GaveUp
    (no answer within the bound: try again with a longer timeout; it says nothing about whether the claims fit).
    """
    problem = Problem(slices, classes, [node], allocated=allocated, features=features)
    answers = problem.ask(claims, timeout=timeout, new_share_id=new_share_id, device_scoring=device_scoring)
    return _raised(answers[0])


@checks_types
def allocate_many(
    claims: Sequence[Obj],
    *,
    nodes: Iterable[Obj],
    slices: Iterable[Obj],
    classes: Iterable[Obj],
    allocated: AllocatedState | State | Iterable[Obj] = (),
    features: Features | Mapping[str, bool] | None = None,
    timeout: float | None = None,
    new_share_id: Callable[[], str] | None = None,
    device_scoring: bool = False,
) -> dict[str, list[Obj] | AllocationError | GaveUp | None]:
    """What each node by itself gives the claims: results, None or an error, by node name, in the order of `nodes`.

    Nodes with equal devices, equally taken, are decided once. Parameters and errors are those of `allocate`; only
    InputError is raised, the others are values of the dict. `timeout` is for all nodes together.
    """
    problem = Problem(slices, classes, nodes, allocated=allocated, features=features)
    answers = problem.ask(claims, timeout=timeout, new_share_id=new_share_id, device_scoring=device_scoring)
    return dict(zip((node.name for node in problem.fleet.nodes), answers, strict=True))


class Problem:
    """Devices, classes, nodes and what is taken, read once, to be asked many times.

    `fleet` and `features` are the engine's form; `ask` gives the answer of every node in order.
    """

    def __init__(
        self,
        slices: Iterable[Obj],
        classes: Iterable[Obj],
        nodes: Iterable[Obj],
        *,
        allocated: AllocatedState | State | Iterable[Obj] = (),
        features: Features | Mapping[str, bool] | None = None,
    ) -> None:
        self.features = _features(features)
        given = {"ResourceSlice": list(slices), "DeviceClass": list(classes), "Node": list(nodes)}
        taken: list[Obj] = [] if isinstance(allocated, AllocatedState | State) else list(allocated)
        try:
            snapshot = DeviceSnapshot.of(_v1(given["ResourceSlice"]), _v1(given["DeviceClass"]))
            if isinstance(allocated, State):
                state = allocated
            else:
                state = _state(allocated) if isinstance(allocated, AllocatedState) else State.from_claims(_v1(taken))
            views = [_node(node) for node in given["Node"]]
            self.fleet = NodeClassIndex(snapshot, state, views, partitionable=self.features.PartitionableDevices)
        except _MISSHAPEN as error:
            _diagnose({**given, "ResourceClaim": taken}, error)
        twice = len(views) - len({view.name for view in views})
        if twice:
            raise InputError(f"nodes: {twice} of {len(views)} names occur twice; give every Node once")
        self._given = given

    def ask(
        self,
        claims: Sequence[Obj],
        *,
        timeout: float | None = None,
        new_share_id: Callable[[], str] | None = None,
        device_scoring: bool = False,
    ) -> list[list[Obj] | AllocationError | GaveUp | None]:
        """The answer of every node, in order: results, None or an error (see `allocate`)."""
        share_id = new_share_id or (lambda: str(uuid4()))
        wanted = list(claims)
        try:
            question = self.question(wanted, timeout=timeout, device_scoring=device_scoring)
            return [_answer(question.results(self.fleet, number, share_id)) for number in range(len(self.fleet.nodes))]
        except _MISSHAPEN as error:
            _diagnose({**self._given, "ResourceClaim": wanted}, error)

    def fits(
        self, claims: Sequence[Obj], *, timeout: float | None = None, device_scoring: bool = False
    ) -> tuple[ClaimQuery, list[int]]:
        """The question, to be asked again later, and the numbers of the nodes that can serve the claims."""
        wanted = list(claims)
        try:
            question = self.question(wanted, timeout=timeout, device_scoring=device_scoring)
            return question, question.fits(self.fleet)
        except _MISSHAPEN as error:
            _diagnose({**self._given, "ResourceClaim": wanted}, error)

    def question(
        self, claims: Sequence[Obj], *, timeout: float | None = None, device_scoring: bool = False
    ) -> ClaimQuery:
        """The claims, ready to be asked of the fleet again and again as it changes."""
        deadline = None if timeout is None else time.monotonic() + timeout
        return ClaimQuery(
            self.fleet,
            _v1(list(claims)),
            self.features,
            step_budget=DEFAULT_BUDGET if deadline is None else _UNLIMITED,
            expired=None if deadline is None else lambda: time.monotonic() > deadline,
            scoring=device_scoring,
        )


def _answer(found: tuple[Obj, ...] | Refusal) -> list[Obj] | AllocationError | GaveUp | None:
    if isinstance(found, DoesNotFit):
        if any(reason.type == "PoolInvalid" for reason in found.reasons):
            return InvalidPools(found.message)
        return None
    if isinstance(found, AllocationError | GaveUp):
        return found
    return [_own(result) for result in found]


def _own(allocation: Obj) -> Obj:
    """The allocation without anything that it shares with the objects that were passed in."""
    devices = allocation["devices"]
    for entry in devices["results"]:
        if "tolerations" in entry:
            entry["tolerations"] = _copy(entry["tolerations"])
    if "config" in devices:
        devices["config"] = _copy(devices["config"])
    return allocation


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) if isinstance(item, _NESTED) else item for key, item in value.items()}
    return [_copy(item) if isinstance(item, _NESTED) else item for item in value] if isinstance(value, list) else value


_NESTED = (dict, list)


def _raised(answer: list[Obj] | AllocationError | GaveUp | None) -> list[Obj] | None:
    if isinstance(answer, AllocationError | GaveUp):
        raise answer
    return answer


def _features(given: Features | Mapping[str, bool] | None) -> Features:
    if given is None or isinstance(given, Features):
        return given or Features()
    known = [f.name for f in fields(Features)]
    for name, value in given.items():
        if name not in known:
            raise InputError(f"features: unknown name {name!r}; there are {', '.join(known)}")
        if not isinstance(value, bool):
            raise InputError(f"features: {name} is {value!r}; give True or False")
    return Features(**given)


def _node(node: Obj) -> NodeView:
    metadata = node.get("metadata") or {}
    return NodeView(str(metadata.get("name") or ""), dict(metadata.get("labels") or {}))


def _state(given: AllocatedState) -> State:
    capacity = given.capacity
    pairs = capacity.items() if isinstance(capacity, Mapping) else ((_identity(c), c["capacity"]) for c in capacity)
    shared = (
        (_identity(s), str(s["shareID"])) if isinstance(s, Mapping) else (_identity(s[:3]), s[3]) for s in given.shared
    )
    devices = list(given.devices)
    whole = map(_IDENTITY if set(map(type, devices)) == {dict} else _identity, devices)
    return State.of(whole, shared, {_identity(device): used for device, used in pairs})


_IDENTITY = itemgetter("driver", "pool", "device")


def _identity(device: Any) -> DeviceId:
    """The three names of a device; whatever else a file has in its place is told."""
    if isinstance(device, DeviceId):
        return device
    if isinstance(device, tuple | list) and len(device) == 3:
        return DeviceId(*device)
    if isinstance(device, Mapping):
        return DeviceId(*_IDENTITY(device))
    raise InputError(f"allocated: {device!r} is no device: it is named by driver, pool and device")


def _v1(objects: list[Obj]) -> list[Obj]:
    """The objects in resource.k8s.io/v1; those that do not say their version are in it."""
    old = ("resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2")
    if not [obj for obj in objects if isinstance(obj, dict) and obj.get("apiVersion") in old]:
        return objects
    return [_converted(obj) if obj.get("apiVersion") in old else obj for obj in objects]


def _converted(obj: Obj) -> Obj:
    kind = by_kind(str(obj["apiVersion"]), str(obj.get("kind")))
    if kind is None:
        raise InputError(f"no kind {obj.get('kind')!r} in {obj['apiVersion']}")
    return convert(strict_decode(obj, kind)[0], storage_kind(kind))


def _diagnose(given: Mapping[str, Sequence[Any]], error: Exception) -> NoReturn:
    """Say which object is at fault where reading them failed; if none is, the fault is ours and goes on as it is."""
    if isinstance(error, InputError):
        raise error
    for kind_name, objects in given.items():
        version = "v1" if kind_name == "Node" else "resource.k8s.io/v1"
        for number, obj in enumerate(objects):
            own = obj.get("apiVersion") if isinstance(obj, dict) else None
            kind = by_kind(own if isinstance(own, str) else version, kind_name) or by_kind(version, kind_name)
            assert kind is not None
            try:
                strict_decode(obj, kind)
            except StatusError as problem:
                raise InputError(f"{kind_name} #{number}{_named(obj)}: {problem.message}") from error
    if isinstance(error, KeyError):
        raise InputError(f"allocated: {error} is missing; a device is named by driver, pool and device") from error
    if isinstance(error, StatusError | ValueError | RecursionError):
        raise InputError(str(error)) from error
    raise error


def _named(obj: Any) -> str:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f" ({name})" if isinstance(name, str) and name else ""
