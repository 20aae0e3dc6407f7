"""Small objects for the allocator's tests, and the form of the test vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from haru.engine.dra import (
    AllocatedState,
    Allocation,
    AllocationError,
    DeviceId,
    DeviceSnapshot,
    DoesNotFit,
    Features,
    NodeView,
    allocate,
)
from haru.kube.quantity import parse_quantity

Obj = dict[str, Any]

DRIVER = "gpu.example.com"
NODE = NodeView("node-1", {"zone": "a"})
SHARE_ID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


def value(of: object) -> Obj:
    if isinstance(of, bool):
        return {"bool": of}
    if isinstance(of, int):
        return {"int": of}
    return {"string": of} if isinstance(of, str) else {"strings": list(of)}  # type: ignore[call-overload]


def device(name: str, attributes: Obj | None = None, **more: Any) -> Obj:
    found: Obj = {"name": name, **more}
    if attributes:
        found["attributes"] = {key: value(of) for key, of in attributes.items()}
    if "capacity" in more:
        found["capacity"] = {k: v if isinstance(v, dict) else {"value": v} for k, v in more["capacity"].items()}
    if "consumes" in more:
        found["consumesCounters"] = [
            {"counterSet": name, "counters": {k: {"value": str(v)} for k, v in counters.items()}}
            for name, counters in found.pop("consumes").items()
        ]
    return found


def slice_(
    name: str,
    devices: Sequence[Obj] = (),
    *,
    pool: str = "pool",
    driver: str = DRIVER,
    node: str | None = "node-1",
    generation: int = 1,
    count: int = 1,
    counters: Obj | None = None,
    **more: Any,
) -> Obj:
    spec: Obj = {
        "driver": driver,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        **({"nodeName": node} if node else {}),
        **more,
    }
    if devices:
        spec["devices"] = list(devices)
    if counters:
        spec["sharedCounters"] = [
            {"name": name, "counters": {k: {"value": str(v)} for k, v in values.items()}}
            for name, values in counters.items()
        ]
    return {"metadata": {"name": name}, "spec": spec}


def class_(name: str = "any", *expressions: str, config: Sequence[Obj] = ()) -> Obj:
    spec: Obj = {"selectors": [{"cel": {"expression": e}} for e in expressions]}
    if config:
        spec["config"] = list(config)
    return {"metadata": {"name": name}, "spec": spec}


def exact(count: int | None = 1, *expressions: str, cls: str = "any", **more: Any) -> Obj:
    found: Obj = {"deviceClassName": cls, **more}
    found |= {"allocationMode": "All"} if count is None else {"allocationMode": "ExactCount", "count": count}
    if expressions:
        found["selectors"] = [{"cel": {"expression": e}} for e in expressions]
    return found


def request(name: str, count: int | None = 1, *expressions: str, **more: Any) -> Obj:
    return {"name": name, "exactly": exact(count, *expressions, **more)}


def first_of(name: str, *alternatives: Obj) -> Obj:
    return {"name": name, "firstAvailable": [{"name": f"sub-{i}", **a} for i, a in enumerate(alternatives)]}


def claim(name: str, *requests: Obj, match: str = "", distinct: str = "", **more: Any) -> Obj:
    devices: Obj = {"requests": list(requests), **more}
    constraints = list(devices.get("constraints", ()))
    if match:
        constraints.append({"matchAttribute": f"{DRIVER}/{match}"})
    if distinct:
        constraints.append({"distinctAttribute": f"{DRIVER}/{distinct}"})
    if constraints:
        devices["constraints"] = constraints
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}


def taken(*names: str, pool: str = "pool", driver: str = DRIVER) -> AllocatedState:
    return AllocatedState.of([DeviceId(driver, pool, name) for name in names])


def solve(
    slices: Sequence[Obj],
    claims: Sequence[Obj],
    *,
    classes: Sequence[Obj] = (class_(),),
    state: AllocatedState | None = None,
    node: NodeView = NODE,
    features: Features | None = None,
    budget: int = 100_000,
    scoring: bool = False,
) -> Allocation:
    return allocate(
        DeviceSnapshot.of(slices, classes),
        state or AllocatedState(),
        node,
        claims,
        features or Features(),
        new_share_id=lambda: SHARE_ID,
        step_budget=budget,
        scoring=scoring,
    )


def chosen(answer: Allocation) -> list[list[str]] | None:
    """The devices of each claim, or None; `request:device` where the request is not the only one."""
    if isinstance(answer, DoesNotFit):
        return None
    return [[r["device"] for r in result["devices"]["results"]] for result in answer.results]


def normal(thing: object, key: str = "") -> object:
    """The form in which results are compared: quantities by value, nothing where nothing is said."""
    if isinstance(thing, dict):
        if key == "consumedCapacity":
            return {name: parse_quantity(text) for name, text in thing.items()}
        return {k: normal(v, k) for k, v in thing.items() if v not in (None, [], {})}
    return [normal(item) for item in thing] if isinstance(thing, list) else thing


def vector_state(case: Obj) -> AllocatedState:
    def identity(entry: Obj) -> DeviceId:
        return DeviceId(entry["driver"], entry["pool"], entry["device"])

    return AllocatedState.of(
        [identity(entry) for entry in case["allocated"]],
        [(identity(entry), entry["shareID"]) for entry in case.get("allocatedShared") or ()],
        {identity(entry): entry["capacity"] for entry in case.get("allocatedCapacity") or ()},
    )


def vector_fault(case: Obj, budget: int = 200_000) -> str:
    """What is wrong with the allocator's answer to a case of the vectors, or nothing."""
    expected = case.get("intended") or case["expect"]
    metadata = case["node"]["metadata"]
    try:
        answer = solve(
            case["slices"],
            case["claims"],
            classes=case["classes"],
            state=vector_state(case),
            node=NodeView(metadata["name"], metadata.get("labels") or {}),
            features=Features(**case["features"]),
            budget=budget,
        )
    except AllocationError as error:
        return "" if expected["error"] and expected["error"] in str(error) else f"error {error}"
    if isinstance(answer, DoesNotFit):
        if expected["error"]:
            return "" if expected["error"] == answer.message else answer.message
        return "" if expected["results"] is None else "does not fit"
    if expected["error"] or expected["results"] is None:
        return f"fits: {chosen(answer)}"
    got = normal(list(answer.results))
    wanted = [expected["results"], *(expected.get("alternatives") or ())]
    return "" if any(got == normal(results) for results in wanted) else f"differs: {chosen(answer)}"
