"""The interface of haru.dra: its inputs, results, and errors."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from device_objects import DRIVER, claim, class_, device, exact, first_of, request, slice_

from haru import dra

Obj = dict[str, Any]

NODE: Obj = {"metadata": {"name": "node-1"}}
SLICE = slice_("a", [device("gpu-0", {"index": 0}), device("gpu-1", {"index": 1})])
SHARED = slice_("s", [device("big", capacity={"memory": "80Gi"}, allowMultipleAllocations=True)], pool="shared-pool")
DEVICE = {"driver": DRIVER, "pool": "pool", "device": "gpu-0"}
FIRST = f"device.attributes['{DRIVER}'].index == 0"


def ask(*claims: Obj, slices: list[Obj] | None = None, **more: Any) -> list[Obj] | None:
    arguments = {"node": NODE, "slices": slices or [SLICE], "classes": [class_()]} | more
    return dra.allocate(list(claims), **arguments)


def test_allocate_returns_plain_allocation_dicts() -> None:
    assert ask(claim("c", request("r"))) == [
        {
            "devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "pool", "device": "gpu-0"}]},
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
                ]
            },
        }
    ]
    assert ask() == []
    assert ask(claim("c", request("r", 3))) is None


@pytest.mark.parametrize(
    "allocated",
    [
        dra.AllocatedState([DEVICE]),
        dra.AllocatedState([(DRIVER, "pool", "gpu-0")]),
        [{"metadata": {"name": "x"}, "status": {"allocation": {"devices": {"results": [{"request": "r", **DEVICE}]}}}}],
    ],
)
def test_allocated_devices_are_accepted_in_every_form(allocated: Any) -> None:
    (result,) = ask(claim("c", request("r")), allocated=allocated) or []
    assert [r["device"] for r in result["devices"]["results"]] == ["gpu-1"]
    assert ask(claim("c", request("r", 2)), allocated=allocated) is None


@pytest.mark.parametrize("mapping", [False, True])
def test_shared_device_consumes_capacity_up_to_its_limit(mapping: bool) -> None:
    identity = {"driver": DRIVER, "pool": "shared-pool", "device": "big"}
    used = {"memory": "50Gi"}
    state = dra.AllocatedState(
        shared=[{**identity, "shareID": "one"}],
        capacity={tuple(identity.values()): used} if mapping else [{**identity, "capacity": used}],  # type: ignore[misc]
    )
    wanted = claim("c", request("r", capacity={"requests": {"memory": "30Gi"}}))
    (result,) = ask(wanted, slices=[SHARED], allocated=state) or []
    (entry,) = result["devices"]["results"]
    assert entry["consumedCapacity"] == {"memory": "30Gi"}
    assert UUID(entry["shareID"]).version == 4
    more = claim("c", request("r", capacity={"requests": {"memory": "31Gi"}}))
    assert ask(more, slices=[SHARED], allocated=state) is None


def test_features_enable_and_disable_behaviour() -> None:
    alternatives = claim("c", first_of("r", exact(9), exact(1)))
    assert ask(alternatives) is not None
    with pytest.raises(dra.AllocationError, match="DRAPrioritizedList feature is disabled"):
        ask(alternatives, features={"PrioritizedList": False})
    assert ask(alternatives, features=dra.Features(AdminAccess=False)) is not None


def test_objects_of_older_versions_are_converted() -> None:
    old = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {"name": "a"},
        "spec": {**SLICE["spec"], "devices": [{"name": "gpu-0", "basic": {"attributes": {"index": {"int": 0}}}}]},
    }
    older_claim = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", **exact(1, FIRST)}]}},
    }
    assert ask(older_claim, slices=[old]) is not None


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"features": {"Magic": True}}, "features: unknown name 'Magic'; there are AdminAccess,"),
        ({"features": {"DeviceTaints": "yes"}}, "features: DeviceTaints is 'yes'; give True or False"),
        ({"slices": [{"metadata": {"name": "s"}, "spec": {"devices": "x"}}]}, r"ResourceSlice #0 \(s\): .*devices"),
        ({"slices": [7]}, "ResourceSlice #0: .*cannot unmarshal number"),
        ({"slices": [slice_("a", [device("d", capacity={"m": "much"})])]}, "quantities must match"),
        ({"classes": [{"metadata": {"name": "any"}, "spec": {"selectors": 3}}]}, r"DeviceClass #0 \(any\)"),
        ({"node": {"metadata": {"name": "n", "labels": ["x"]}}}, r"Node #0 \(n\)"),
        ({"allocated": dra.AllocatedState([{"driver": "d"}])}, "allocated: 'pool' is missing"),
        ({"allocated": dra.AllocatedState(["abc"])}, "allocated: 'abc' is no device"),  # type: ignore[list-item]
        ({"allocated": dra.AllocatedState([("d", "p")])}, "allocated: .* is no device"),  # type: ignore[list-item]
    ],
)
def test_invalid_input_is_named(more: Obj, text: str) -> None:
    with pytest.raises(dra.InputError, match=text):
        ask(claim("c", request("r")), **more)


def test_malformed_claim_is_named_by_index_and_name() -> None:
    with pytest.raises(dra.InputError, match=r"ResourceClaim #1 \(b\): .*count"):
        ask(claim("a", request("r")), claim("b", {"name": "r", "exactly": exact(1) | {"count": "many"}}))


def test_missing_class_or_cel_runtime_error_aborts_allocation() -> None:
    with pytest.raises(dra.AllocationError, match="could not retrieve device class other"):
        ask(claim("c", request("r", cls="other")))
    with pytest.raises(dra.AllocationError, match="no such key: missing"):
        ask(claim("c", request("r", 1, f"device.attributes['{DRIVER}'].missing == 1")))


def test_invalid_pool_excludes_only_its_node() -> None:
    twice = slice_("b", [device("x"), device("x")], node="node-2", pool="bad")
    wanted = [claim("c", request("r"))]
    with pytest.raises(dra.InvalidPools, match="invalid resource pools were encountered"):
        dra.allocate(wanted, node={"metadata": {"name": "node-2"}}, slices=[twice], classes=[class_()])
    nodes = [NODE, {"metadata": {"name": "node-2"}}, {"metadata": {"name": "node-3"}}]
    answers = dra.allocate_many(wanted, nodes=nodes, slices=[SLICE, twice], classes=[class_()])
    assert list(answers) == ["node-1", "node-2", "node-3"]
    assert isinstance(answers["node-1"], list)
    assert isinstance(answers["node-2"], dra.InvalidPools)
    assert answers["node-3"] is None


def test_duplicate_node_names_are_refused() -> None:
    with pytest.raises(dra.InputError, match="1 of 2 names occur twice"):
        dra.allocate_many([], nodes=[NODE, NODE], slices=[], classes=[])


def test_search_over_timeout_raises_gave_up() -> None:
    """More kinds of devices than can be tried in no time."""
    devices = [device(f"d{i}", {"a": i % 5, "b": i % 7, "c": i % 3}) for i in range(60)]
    wanted = [
        claim(f"c{i}", *(request(f"r{j}", 3) for j in range(5)), match="abc"[i % 3], distinct="bca"[i % 3])
        for i in range(6)
    ]
    with pytest.raises(dra.GaveUp, match="gave up after"):
        ask(*wanted, slices=[slice_("a", devices)], timeout=1e-9)
