"""The edge cases of device allocation, one row each: devices, what is taken, claims, and who gets what."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from device_objects import (
    DRIVER,
    NODE,
    SHARE_ID,
    Obj,
    chosen,
    claim,
    class_,
    device,
    exact,
    first_of,
    request,
    slice_,
    solve,
    taken,
)

from haru.engine.dra import Allocated, AllocatedState, AllocationError, DeviceId, DoesNotFit, Features, GaveUp, NodeView

GPUS = [slice_("s", [device(f"gpu-{i}") for i in range(4)])]
ROOTS = [slice_("s", [device("a", {"root": "r1"}), device("b", {"root": "r2"}), device("c", {"root": "r2"})])]
CARD = [
    slice_(
        "devices",
        [
            device("whole", consumes={"card": {"mem": 4}}),
            device("half-0", consumes={"card": {"mem": 2}}),
            device("half-1", consumes={"card": {"mem": 2}}),
        ],
        count=2,
    ),
    slice_("counters", count=2, counters={"card": {"mem": 4}}),
]
SHARED = [slice_("s", [device("big", capacity={"mem": "10Gi"}, allowMultipleAllocations=True)])]
TAINTED = [slice_("s", [device("a", taints=[{"key": "bad", "effect": "NoExecute"}]), device("b")])]


def many(count: int) -> list[Obj]:
    return [slice_("s", [device(f"gpu-{i:02}") for i in range(count)])]


def wants(mem: str) -> Obj:
    return {"capacity": {"requests": {"mem": mem}}}


ROWS: list[tuple[str, list[Obj], AllocatedState, list[Obj], list[list[str]] | None]] = [
    ("no claims", GPUS, taken(), [], []),
    ("a claim without requests", GPUS, taken(), [claim("c")], [[]]),
    ("first fit", GPUS, taken("gpu-0"), [claim("c", request("r", 2))], [["gpu-1", "gpu-2"]]),
    ("two claims", GPUS, taken(), [claim("c", request("r")), claim("d", request("r"))], [["gpu-0"], ["gpu-1"]]),
    ("all", GPUS, taken(), [claim("c", request("r", None))], [["gpu-0", "gpu-1", "gpu-2", "gpu-3"]]),
    ("all with nothing there", [slice_("s")], taken(), [claim("c", request("r", None))], None),
    ("all with one taken", GPUS, taken("gpu-2"), [claim("c", request("r", None))], None),
    ("match", ROOTS, taken(), [claim("c", request("r", 2), match="root")], [["b", "c"]]),
    ("match, a device lacks it", GPUS, taken(), [claim("c", request("r"), match="root")], None),
    ("distinct", ROOTS, taken(), [claim("c", request("r", 2), distinct="root")], [["a", "b"]]),
    ("distinct, three of two", ROOTS, taken(), [claim("c", request("r", 3), distinct="root")], None),
    (
        "distinct across requests",
        ROOTS,
        taken("a"),
        [claim("c", request("r"), request("q"), distinct="root")],
        None,
    ),
    ("two requests, one device", many(1), taken(), [claim("c", request("r"), request("q"))], None),
    ("admin takes what is taken", many(1), taken("gpu-00"), [claim("c", request("r", adminAccess=True))], [["gpu-00"]]),
    ("admin, twice for one claim", many(1), taken(), [claim("c", request("r", 2, adminAccess=True))], None),
    (
        "admin for two claims",
        many(1),
        taken(),
        [claim("c", request("r", adminAccess=True)), claim("d", request("r", adminAccess=True))],
        [["gpu-00"], ["gpu-00"]],
    ),
    ("a whole card excludes its parts", CARD, taken("whole"), [claim("c", request("r"))], None),
    ("parts exclude the whole", CARD, taken("half-0"), [claim("c", request("r"))], [["half-1"]]),
    ("parts share the card", CARD, taken(), [claim("c", request("r", 2))], [["half-0", "half-1"]]),
    ("shares of one device", SHARED, taken(), [claim("c", request("r", 1, **wants("4Gi")))] * 2, [["big"], ["big"]]),
    ("shares that exceed it", SHARED, taken(), [claim("c", request("r", 1, **wants("6Gi")))] * 2, None),
    ("a share without a wish takes all", SHARED, taken(), [claim("c", request("r")), claim("d", request("r"))], None),
    ("an unknown capacity", SHARED, taken(), [claim("c", request("r", capacity={"requests": {"x": "1"}}))], None),
    (
        "capacity of an ordinary device",
        [slice_("s", [device("a", capacity={"mem": "1Gi"}), device("b", capacity={"mem": "4Gi"})])],
        taken(),
        [claim("c", request("r", 1, **wants("2Gi")))],
        [["b"]],
    ),
    ("NoExecute repels", TAINTED, taken(), [claim("c", request("r"))], [["b"]]),
    (
        "a toleration lets it through",
        TAINTED,
        taken(),
        [claim("c", request("r", tolerations=[{"operator": "Exists"}]))],
        [["a"]],
    ),
    ("all with a tainted one", TAINTED, taken(), [claim("c", request("r", None))], None),
    (
        "the limit of 32 picks the second alternative",
        many(40),
        taken(),
        [claim("c", request("r", 5), first_of("f", exact(30), exact(1)))],
        [[f"gpu-{i:02}" for i in range(6)]],
    ),
    (
        "alternatives in order",
        ROOTS,
        taken("b"),
        [claim("c", first_of("f", exact(3), exact(2), exact(1)))],
        [["a", "c"]],
    ),
    (
        "alternatives give way for what follows",
        many(3),
        taken(),
        [claim("c", first_of("f", exact(3), exact(1)), request("r", 2))],
        [["gpu-00", "gpu-01", "gpu-02"]],
    ),
    (
        "two drivers, one pool name",
        [slice_("s", [device("a")], pool="p"), slice_("t", [device("a")], pool="p", driver="other.example.com")],
        taken("a", pool="p"),
        [claim("c", request("r"))],
        [["a"]],
    ),
    ("slices in order of name", [slice_("t", [device("b")], count=2), slice_("s", [device("a")], count=2)], taken(),
     [claim("c", request("r"))], [["a"]]),
    ("newer generation", [slice_("s", [device("old")]), slice_("t", [device("new")], generation=2)], taken(),
     [claim("c", request("r"))], [["new"]]),
    ("half published", [slice_("s", [device("old")]), slice_("t", [device("new")], generation=2, count=2)], taken(),
     [claim("c", request("r"))], None),
    ("outdated here, newer elsewhere",
     [slice_("s", [device("old")], count=2), slice_("t", [device("new")], generation=2, node="node-2")], taken(),
     [claim("c", request("r"))], None),
    ("another node's", [slice_("s", [device("a")], node="node-2")], taken(), [claim("c", request("r"))], None),
    ("binding conditions come last",
     [slice_("s", [device("a", bindingConditions=["x"], bindingFailureConditions=["y"])], pool="a"),
      slice_("t", [device("b")], pool="b")], taken(), [claim("c", request("r", 2))], [["b", "a"]]),
    ("part of a pool on another node consumes",
     [slice_("d1", [device("x", consumes={"card": {"mem": 1}})], count=3, node="node-2"),
      slice_("d2", [device("y", consumes={"card": {"mem": 1}})], count=3),
      slice_("n", count=3, counters={"card": {"mem": 1}}, node=None, allNodes=True)],
     taken("x"), [claim("c", request("r"))], None),
]  # fmt: skip


@pytest.mark.parametrize(("slices", "state", "claims", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_allocation_has_expected_devices(
    slices: list[Obj], state: AllocatedState, claims: list[Obj], expected: list[list[str]] | None
) -> None:
    assert chosen(solve(slices, claims, state=state)) == expected


FAULTY = f"device.attributes['{DRIVER}'].model == 'x'"
PARTLY = [slice_("s", [device("a", {"model": "x"}), device("b")])]

ERRORS: list[tuple[str, list[Obj], list[Obj], str]] = [
    ("all of 33", many(33), [claim("c", request("r", None))], "exceeds the claim limit of 32"),
    ("500 of one", GPUS, [claim("c", request("r", 500))], "number of requested devices 500 exceeds the claim limit"),
    ("unguarded attribute", PARTLY, [claim("c", request("r", 2, FAULTY))], "claim default/c: selector #0: CEL runtime"),
    ("missing class", GPUS, [claim("c", request("r", cls="gone"))], "could not retrieve device class gone"),
    ("no class", GPUS, [claim("c", request("r", cls=""))], "missing device class name"),
    ("all, constraint broken", ROOTS, [claim("c", request("r", None), match="root")], "cannot add device"),
    ("constraint of no kind", GPUS, [claim("c", request("r"), constraints=[{}])], "claim default/c, constraint #0"),
    ("neither exactly nor any", GPUS, [claim("c", {"name": "r"})], "neither exactly nor firstAvailable"),
    (
        "all while a pool is updated",
        [*GPUS, slice_("t", [device("x")], pool="other", count=2)],
        [claim("c", request("r", None))],
        f"resource pool {DRIVER}/other is currently being updated",
    ),
    (
        "all while a pool is invalid",
        [*GPUS, slice_("t", [device("x"), device("x")], pool="other")],
        [claim("c", request("r", None))],
        f"resource pool {DRIVER}/other is currently invalid",
    ),
    (
        "a node selector that makes no sense",
        [
            slice_(
                "s",
                [device("a")],
                node=None,
                nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Near"}]}]},
            )
        ],
        [claim("c", request("r"))],
        "gather pool information: invalid node selector",
    ),
]


@pytest.mark.parametrize(("slices", "claims", "message"), [r[1:] for r in ERRORS], ids=[r[0] for r in ERRORS])
def test_invalid_input_aborts_allocation_with_message(slices: list[Obj], claims: list[Obj], message: str) -> None:
    with pytest.raises(AllocationError) as caught:
        solve(slices, claims)
    assert message in str(caught.value)


def test_selector_error_counts_only_when_device_is_reached() -> None:
    assert chosen(solve(PARTLY, [claim("c", request("r", 1, FAULTY))])) == [["a"]]
    assert chosen(solve(PARTLY, [claim("c", request("r", 1, FAULTY))], state=taken("b"))) == [["a"]]
    with pytest.raises(AllocationError, match="no such key: model"):
        solve(PARTLY, [claim("c", request("r", 1, FAULTY))], state=taken("a"))


def test_request_before_faulty_selector_may_still_not_fit() -> None:
    """Counts may refuse what comes before it, but never hide the error once it is reached."""
    wanted = [claim("c", *(request(f"r{i}") for i in range(3)), request("x", 1, FAULTY))]
    assert chosen(solve(PARTLY, wanted)) is None
    with pytest.raises(AllocationError, match="no such key: model"):
        solve([*PARTLY, slice_("t", [device("c"), device("d")], pool="z")], wanted)


@pytest.mark.parametrize(
    ("gate", "claims", "message"),
    [
        ("PrioritizedList", [claim("c", first_of("f", exact()))], "the DRAPrioritizedList feature is disabled"),
        ("AdminAccess", [claim("c", request("r", adminAccess=False))], "admin access is requested, but the feature is"),
        ("ConsumableCapacity", [claim("c", request("r", **wants("1")))], "request r: has capacity requests, but the"),
        ("ConsumableCapacity", [claim("c", request("r", capacity={}))], "request r: has capacity requests, but the"),
        ("ConsumableCapacity", [claim("c", first_of("f", exact(**wants("1"))))], "subrequest sub-0: has capacity"),
    ],
)
def test_disabled_gate_refuses_its_feature(gate: str, claims: list[Obj], message: str) -> None:
    with pytest.raises(AllocationError, match=message):
        solve(GPUS, claims, features=Features(**{gate: False}))


def test_disabled_gate_hides_its_devices() -> None:
    bound = [slice_("s", [device("a", bindingConditions=["x"], bindingFailureConditions=["y"])])]
    wanted = [claim("c", request("r"))]
    assert chosen(solve(bound, wanted, features=Features(DeviceBindingAndStatus=False))) is None
    assert chosen(solve(CARD, wanted, features=Features(PartitionableDevices=False))) is None
    assert chosen(solve(TAINTED, wanted, features=Features(DeviceTaints=False))) == [["a"]]


def test_invalid_pool_is_named_only_if_nothing_else_fits() -> None:
    broken = slice_("t", [device("x"), device("x")], pool="other")
    assert chosen(solve([*GPUS, broken], [claim("c", request("r"))])) == [["gpu-0"]]
    answer = solve([broken], [claim("c", request("r"))])
    assert isinstance(answer, DoesNotFit)
    assert answer.message == "invalid resource pools were encountered"


def test_counter_slices_of_other_nodes_matter_only_in_broken_pools() -> None:
    """What the reference shows everywhere: counter slices, whatever node they are tied to."""
    twice = [slice_(f"n{i}", count=2, pool="far", node="node-2", counters={"card": {"mem": 1}}) for i in range(2)]
    answer = solve([slice_("s", [device("a")]), *twice], [claim("c", request("r", 2))])
    assert isinstance(answer, DoesNotFit)
    assert answer.reasons[0].data["pools"] == (f"{DRIVER}/far",)
    with pytest.raises(AllocationError, match="far is currently being updated"):
        solve([slice_("s", [device("a")]), twice[0]], [claim("c", request("r", None))])


def selector_of(slices: list[Obj], **labels: str) -> Any:
    answer = solve(slices, [claim("c", request("r", 2))], node=NodeView("node-1", labels))
    assert isinstance(answer, Allocated)
    return answer.results[0].get("nodeSelector")


def zone(*values: str) -> Obj:
    expression = {"key": "zone", "operator": "In", "values": list(values)}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def test_result_has_node_selector_of_its_devices() -> None:
    here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}
    two = [device("a"), device("b")]
    assert selector_of([slice_("s", two)]) == here
    assert selector_of([slice_("s", two, node=None, allNodes=True)]) is None
    assert selector_of([slice_("s", two, node=None, nodeSelector=zone("a"))], zone="a") == zone("a")
    either = [
        slice_("s", two[:1], node=None, nodeSelector=zone("a", "b")),
        slice_("t", two[1:], node=None, nodeSelector=zone("b", "a"), pool="q"),
    ]
    assert selector_of(either, zone="a") == zone("a", "b")
    bound = [device("a", bindsToNode=True), device("b")]
    assert selector_of([slice_("s", bound, node=None, allNodes=True)]) == here
    each = [device("a", nodeName="node-2"), device("b", nodeSelector=zone("a")), device("c", allNodes=True)]
    assert selector_of([slice_("s", each, node=None, perDeviceNodeSelection=True)], zone="a") == zone("a")
    with pytest.raises(AllocationError, match="create NodeSelector for claim c"):
        terms = {"nodeSelectorTerms": zone("a")["nodeSelectorTerms"] * 2}
        selector_of([slice_("s", two, node=None, nodeSelector=terms)], zone="a")


def opaque(number: int) -> Obj:
    return {"opaque": {"driver": DRIVER, "parameters": {"n": number}}}


def test_configuration_is_listed_in_order_of_class_and_claim() -> None:
    classes = [class_("one", config=[opaque(1), opaque(2)]), class_("two", config=[opaque(3)])]
    wanted = claim(
        "c",
        request("a", cls="two"),
        request("b", cls="one"),
        first_of("f", exact(9, cls="one"), exact(1, cls="two")),
        config=[
            {"requests": ["f/sub-0"], **opaque(4)},
            {"requests": ["f/sub-1"], **opaque(5)},
            {"requests": ["a", "b"], **opaque(6)},
            opaque(7),
            {"requests": ["f"], **opaque(8)},
        ],
    )
    answer = solve(GPUS, [wanted], classes=classes)
    assert isinstance(answer, Allocated)
    entries = answer.results[0]["devices"]["config"]
    assert [(e["source"], e.get("requests"), e["opaque"]["parameters"]["n"]) for e in entries] == [
        ("FromClass", ["a", "f/sub-1"], 3),
        ("FromClass", ["b"], 1),
        ("FromClass", ["b"], 2),
        ("FromClaim", ["f/sub-1"], 5),
        ("FromClaim", ["a", "b"], 6),
        ("FromClaim", None, 7),
        ("FromClaim", ["f"], 8),
    ]


POLICY = {
    "value": "10Gi",
    "requestPolicy": {"default": "2Gi", "validRange": {"min": "2Gi", "max": "8Gi", "step": "2Gi"}},
}
VALUES = {"value": "8", "requestPolicy": {"default": "1", "validValues": ["1", "2", "4"]}}


@pytest.mark.parametrize(
    ("capacity", "asked", "consumed"),
    [
        (POLICY, None, "2Gi"),
        (POLICY, "1", "2Gi"),
        (POLICY, "3Gi", "4Gi"),
        (POLICY, "8Gi", "8Gi"),
        (POLICY, "9Gi", None),
        (VALUES, "3", "4"),
        (VALUES, "5", None),
        ({"value": "8"}, None, "8"),
        ({"value": "8"}, "3", "3"),
        ({"value": "8", "requestPolicy": {"default": "2"}}, None, "2"),
        ({"value": "8"}, "1500m", "1500m"),
    ],
)
def test_consumed_capacity_follows_request_policy(capacity: Obj, asked: str | None, consumed: str | None) -> None:
    slices = [slice_("s", [device("a", capacity={"c": capacity}, allowMultipleAllocations=True)])]
    more = {"capacity": {"requests": {"c": asked}}} if asked else {}
    answer = solve(slices, [claim("c", request("r", **more))])
    if consumed is None:
        assert isinstance(answer, DoesNotFit)
        return
    assert isinstance(answer, Allocated)
    (result,) = answer.results[0]["devices"]["results"]
    assert (result["shareID"], result["consumedCapacity"]) == (SHARE_ID, {"c": consumed})


def test_existing_shares_reduce_capacity() -> None:
    state = AllocatedState.of((), [(DeviceId(DRIVER, "pool", "big"), "x")], {(DRIVER, "pool", "big"): {"mem": "7Gi"}})  # type: ignore[dict-item]
    assert chosen(solve(SHARED, [claim("c", request("r", 1, **wants("3Gi")))], state=state)) == [["big"]]
    assert chosen(solve(SHARED, [claim("c", request("r", 1, **wants("4Gi")))], state=state)) is None


def test_list_attributes_match_by_intersection() -> None:
    slices = [
        slice_("s", [device("a", {"numa": ["0", "1"]}), device("b", {"numa": ["2"]}), device("c", {"numa": "1"})])
    ]
    wanted = [claim("c", request("r", 2), match="numa")]
    assert chosen(solve(slices, wanted, features=Features(ListTypeAttributes=True))) == [["a", "c"]]
    assert chosen(solve(slices, wanted)) is None


def test_exhausted_budget_raises_gave_up() -> None:
    rows = [device(f"gpu-{i}", {"root": f"r{i % 7}", "model": f"m{i % 5}"}) for i in range(30)]
    wanted = [claim("c", *(request(f"r{i}", 2) for i in range(6)), match="root")]
    with pytest.raises(GaveUp, match="try again with a larger step budget"):
        solve([slice_("s", rows)], wanted, budget=20)
    assert chosen(solve([slice_("s", rows)], wanted)) is None


def test_large_problem_does_not_exceed_recursion_limit() -> None:
    """40 claims of 32 devices each are more than Python nests calls."""
    slices = [slice_(f"s-{i:02}", [device(f"d-{i}-{j}") for j in range(64)], count=20) for i in range(20)]
    answer = solve(slices, [claim(f"c{i}", request("r", 32)) for i in range(40)])
    assert isinstance(answer, Allocated)
    assert sum(len(r["devices"]["results"]) for r in answer.results) == 1280


def test_allocation_does_not_modify_its_input() -> None:
    wanted = [claim("c", first_of("f", exact(2, tolerations=[{"operator": "Exists"}]), exact(1)), config=[opaque(1)])]
    before = copy.deepcopy((wanted, CARD))
    solve(CARD, wanted, node=NODE)
    assert (wanted, CARD) == before
