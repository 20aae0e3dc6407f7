"""Device scoring by example: small before large, fragments before whole cards, least harm to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from device_objects import DRIVER, NODE, SHARE_ID, chosen, claim, class_, device, request, slice_, solve, taken

from haru.drivers.simulated.profiles import load_profile
from haru.drivers.simulated.slices import resource_slices
from haru.engine.dra import (
    AllocatedState,
    Allocation,
    AllocationError,
    DeviceId,
    DeviceSnapshot,
    Features,
    GaveUp,
    NodeView,
)
from haru.engine.equivalence.claim_query import ClaimQuery
from haru.engine.equivalence.node_class_index import NodeClassIndex

Obj = dict[str, Any]

NVIDIA = "gpu.nvidia.com"
MIG_NODE = resource_slices(load_profile("dgx-h100-mig"), "node-1", "uid", {}, 1)
WHOLE = f"device.attributes['{NVIDIA}'].type == 'gpu'"


def profile(name: str) -> str:
    return f"device.attributes['{NVIDIA}'].?profile.orValue('') == '{name}'"


def at_least(memory: str, driver: str = NVIDIA) -> str:
    return f"device.capacity['{driver}'].memory.compareTo(quantity('{memory}')) >= 0"


def on_mig(*requests: Obj, held: Sequence[str] = (), scoring: bool = True) -> list[str]:
    """The devices of one claim on a node of eight H100 cards; `held` are taken already."""
    state = taken(*held, pool="node-1", driver=NVIDIA)
    answer = solve(MIG_NODE, [claim("c", *requests)], classes=[class_()], state=state, scoring=scoring)
    found = chosen(answer)
    assert found is not None
    return found[0]


# --- partitions of cards (KEP-4815)


def test_scoring_off_keeps_slice_order() -> None:
    assert on_mig(request("r", 1, at_least("10000Mi")), scoring=False) == ["gpu-0"]
    assert on_mig(request("r", 1, profile("1g.10gb")), scoring=False) == ["gpu-0-mig-1g10gb-19-0"]


def test_smallest_sufficient_device_is_chosen() -> None:
    assert on_mig(request("r", 1, at_least("9Gi")))[0].startswith("gpu-0-mig-1g10gb-19")
    assert on_mig(request("r", 1, at_least("15Gi")))[0].startswith("gpu-0-mig-1g20gb")
    assert on_mig(request("r", 1, at_least("30Gi")))[0].startswith("gpu-0-mig-3g40gb")
    assert on_mig(request("r", 1, at_least("60Gi"))) == ["gpu-0"]


def test_partitioned_card_is_preferred_to_whole_card() -> None:
    assert on_mig(request("r", 1, profile("2g.20gb")), held=["gpu-5-mig-1g10gb-19-0"])[0].startswith("gpu-5-")
    assert on_mig(request("r", 1, profile("2g.20gb")), held=["gpu-5-mig-7g80gb-0-0"])[0].startswith("gpu-0-")


def test_whole_cards_are_kept_for_whole_card_requests() -> None:
    held = ["gpu-0-mig-1g10gb-19-6", "gpu-1"]
    assert on_mig(request("r", 6, WHOLE), held=held) == [f"gpu-{number}" for number in range(2, 8)]


@pytest.mark.parametrize(
    ("asked", "held", "given"),
    [
        # On an empty card the last slice costs the card and one 3g; every other one a 2g or the 4g besides.
        ("1g.10gb", [], "gpu-0-mig-1g10gb-19-6"),
        # The second partition goes where the 3g is lost already.
        ("1g.10gb", ["gpu-0-mig-1g10gb-19-6"], "gpu-0-mig-1g10gb-19-4"),
        ("2g.20gb", ["gpu-0-mig-1g10gb-19-6"], "gpu-0-mig-2g20gb-14-4"),
        ("3g.40gb", ["gpu-0-mig-1g10gb-19-6"], "gpu-0-mig-3g40gb-9-0"),
        # On an empty card the second half: the first one is the only place of the 4g.
        ("3g.40gb", [], "gpu-0-mig-3g40gb-9-4"),
        # Of two divided cards the one on which nothing larger is lost.
        ("1g.10gb", ["gpu-2-mig-4g40gb-5-0", "gpu-3-mig-1g10gb-19-6"], "gpu-3-mig-1g10gb-19-4"),
    ],
)
def test_partition_placement_that_blocks_least_is_chosen(asked: str, held: list[str], given: str) -> None:
    assert on_mig(request("r", 1, profile(asked)), held=held) == [given]


def test_partitions_fill_one_card_before_the_next() -> None:
    devices = on_mig(request("r", 7, profile("1g.10gb")))
    assert {name.split("-mig")[0] for name in devices} == {"gpu-0"}
    devices = on_mig(request("small", 2, profile("1g.10gb")), request("large", 1, profile("3g.40gb")))
    assert {name.split("-mig")[0] for name in devices} == {"gpu-0"}


def test_cards_are_ordered_by_their_best_device() -> None:
    """Of `a` one place costs nothing and the other one is dear, of `b` both cost something: `a` gives both."""
    parts = [
        device("a-dear", consumes={"a": {"x": 1}}, capacity={"size": "1"}),
        device("a-more", consumes={"a": {"x": 1}}, capacity={"size": "4"}),
        device("a-free", consumes={"a": {"y": 1, "z": 1}}, capacity={"size": "1"}),
        device("a-held", consumes={"a": {"x": 1, "z": 1}}, capacity={"size": "1"}),
        device("b-first", consumes={"b": {"x": 1}}, capacity={"size": "1"}),
        device("b-more", consumes={"b": {"x": 2}}, capacity={"size": "2"}),
        device("b-second", consumes={"b": {"x": 1}}, capacity={"size": "1"}),
        device("b-held", consumes={"b": {"x": 1}}, capacity={"size": "1"}),
    ]
    cards = {"a": {"x": 2, "y": 1, "z": 2}, "b": {"x": 3}}
    slices = [slice_("a", [p | {"attributes": {"n": {"int": i}}} for i, p in enumerate(parts)], count=2)]
    slices.append(slice_("z", counters=cards, count=2))
    small = f"device.capacity['{DRIVER}'].size.compareTo(quantity('1')) == 0"
    answer = solve(slices, [claim("c", request("r", 2, small))], state=taken("a-held", "b-held"), scoring=True)
    assert chosen(answer) == [["a-free", "a-dear"]]


def test_partition_without_capacity_is_sized_by_its_counters() -> None:
    parts = [device(f"part-{amount}", consumes={"card": {"memory": amount}}) for amount in (4, 2, 1)]
    slices = [slice_("a", parts, count=2), slice_("b", counters={"card": {"memory": 4}}, count=2)]
    assert chosen(solve(slices, [claim("c", request("r"))], scoring=True)) == [["part-1"]]


# --- devices by themselves


def plain(*sizes: int, **more: Any) -> list[Obj]:
    return [device(f"gpu-{size}", capacity={"memory": f"{size}Gi"}, **more) for size in sizes]


def test_plain_devices_are_ordered_by_size_then_slice_order() -> None:
    answer = solve([slice_("a", plain(80, 40, 141, 24))], [claim("c", request("r", 3))], scoring=True)
    assert chosen(answer) == [["gpu-24", "gpu-40", "gpu-80"]]
    asked = [claim("c", request("r", 1, at_least("30Gi", DRIVER)))]
    assert chosen(solve([slice_("a", plain(80, 40, 141, 24))], asked, scoring=True)) == [["gpu-40"]]
    equal = [device(f"gpu-{number}", {"index": number}) for number in (3, 1, 2)]
    assert chosen(solve([slice_("a", equal)], [claim("c", request("r", 2))], scoring=True)) == [["gpu-3", "gpu-1"]]


def test_sizes_are_compared_across_pools_of_a_driver() -> None:
    slices = [slice_("a", plain(80), pool="first"), slice_("b", plain(40), pool="second")]
    assert chosen(solve(slices, [claim("c", request("r"))], scoring=True)) == [["gpu-40"]]


def test_pool_with_binding_conditions_is_last() -> None:
    waiting = plain(24, bindingConditions=["ready"], bindingFailureConditions=["broken"])
    slices = [slice_("a", waiting, pool="first"), slice_("b", plain(80), pool="second")]
    assert chosen(solve(slices, [claim("c", request("r"))], scoring=True)) == [["gpu-80"]]


def test_allocation_mode_all_keeps_slice_order() -> None:
    answer = solve([slice_("a", plain(80, 40))], [claim("c", request("r", None))], scoring=True)
    assert chosen(answer) == [["gpu-80", "gpu-40"]]


def test_scoring_respects_constraints() -> None:
    sizes = ((24, "r1"), (24, "r2"), (80, "r3"), (40, "r3"))
    devices = [device(f"gpu-{i}", {"root": root}, capacity={"memory": f"{m}Gi"}) for i, (m, root) in enumerate(sizes)]
    asked = [claim("c", request("r", 2), match="root")]
    assert chosen(solve([slice_("a", devices)], asked, scoring=True)) == [["gpu-3", "gpu-2"]]


# --- shared devices (KEP-5075)


def shared(used: dict[str, int], asked: int, sizes: Sequence[int] = (80, 80, 80)) -> list[list[str]] | None:
    devices = [
        device(f"gpu-{number}", capacity={"memory": f"{size}Gi"}, allowMultipleAllocations=True)
        for number, size in enumerate(sizes)
    ]
    ids = {name: DeviceId(DRIVER, "pool", name) for name in used}
    state = AllocatedState.of(
        shared=[(ids[name], SHARE_ID) for name in used],
        capacity={ids[name]: {"memory": f"{amount}Gi"} for name, amount in used.items()},
    )
    wanted = request("r", 1, capacity={"requests": {"memory": f"{asked}Gi"}})
    return chosen(solve([slice_("a", devices)], [claim("c", wanted)], state=state, scoring=True))


def test_fullest_shared_device_with_capacity_is_chosen() -> None:
    used = {"gpu-1": 20, "gpu-2": 60}
    assert shared(used, 10) == [["gpu-2"]]
    assert shared(used, 30) == [["gpu-1"]]
    assert shared(used, 70) == [["gpu-0"]]
    assert shared({}, 10, sizes=(80, 40, 80)) == [["gpu-1"]]
    assert shared({"gpu-0": 20}, 10, sizes=(80, 40, 80)) == [["gpu-0"]]


# --- the outcome does not depend on it


def test_selector_runtime_error_falls_back_to_slice_order() -> None:
    """In the order of sizes the search would come upon the small device, on which the selector fails."""
    good = device("gpu-80", {"model": "x"}, capacity={"memory": "80Gi"})
    slices = [slice_("a", [good, *plain(24)])]
    asked = [claim("c", request("r", 1, f"device.attributes['{DRIVER}'].model == 'x'"))]
    assert chosen(solve(slices, asked, scoring=True)) == [["gpu-80"]]
    with pytest.raises(AllocationError, match="no such key: model"):
        solve(slices, [claim("c", request("r", 2, f"device.attributes['{DRIVER}'].model == 'x'"))], scoring=True)


def test_exhausted_search_budget_falls_back_to_slice_order() -> None:
    """The pair stands first; by size eight devices without a partner come before it."""
    pair = [device(f"pair-{i}", {"root": "pair"}, capacity={"memory": "80Gi"}) for i in range(2)]
    single = [device(f"single-{i}", {"root": f"r{i}"}, capacity={"memory": "24Gi"}) for i in range(8)]
    asked = [claim("c", request("r", 2), match="root")]
    for scoring in (False, True):
        answer = solve([slice_("a", [*pair, *single])], asked, budget=4, scoring=scoring)
        assert chosen(answer) == [["pair-0", "pair-1"]]
    with pytest.raises(GaveUp):
        solve([slice_("a", [*single, *pair])], asked, budget=4, scoring=True)


def selecting(*zones: str) -> Obj:
    requirement = [{"key": "zone", "operator": "In", "values": [zone]} for zone in zones]
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [r]} for r in requirement]}}


def test_device_without_expressible_node_selector_falls_back_to_slice_order() -> None:
    """The small one is published for two zones in two terms: 1.36 cannot write that down as an allocation."""
    slices = [
        slice_("a", plain(80), pool="first", node=None, **selecting("a")),
        slice_("b", plain(24), pool="second", node=None, **selecting("a", "b")),
    ]
    assert chosen(solve(slices, [claim("c", request("r"))], scoring=True)) == [["gpu-80"]]
    with pytest.raises(AllocationError, match=r"claim c: unsupported ResourceSlice\.NodeSelector with 2 terms"):
        solve(slices[1:], [claim("c", request("r"))], scoring=True)


def test_invalid_node_selector_fails_only_when_reached() -> None:
    unreadable = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]}]}
    everywhere = device("gpu-80", capacity={"memory": "80Gi"}, allNodes=True)
    broken = device("gpu-24", capacity={"memory": "24Gi"}, nodeSelector=unreadable)
    slices = [slice_("a", [everywhere, broken], node=None, perDeviceNodeSelection=True)]
    for scoring in (False, True):
        assert chosen(solve(slices, [claim("c", request("r"))], scoring=scoring)) == [["gpu-80"]]


# --- many nodes


def test_nodes_with_other_device_sizes_are_in_other_classes() -> None:
    """The claim does not look at sizes; what it is given depends on them."""
    slices, nodes = [], []
    for number in range(12):
        sizes = (40, 80) if number % 2 else (80, 40)
        devices = [
            device(f"gpu-{i}", {"uuid": f"{number}-{i}"}, capacity={"memory": f"{size}Gi"})
            for i, size in enumerate(sizes)
        ]
        nodes.append(NodeView(f"node-{number:02}", {}))
        slices.append(slice_(f"s-{number}", devices, pool=nodes[-1].name, node=nodes[-1].name))
    fleet = NodeClassIndex(DeviceSnapshot.of(slices, [class_()]), AllocatedState(), nodes)
    question = ClaimQuery(fleet, [claim("c", request("r"))], Features(), scoring=True)
    found = [question.results(fleet, number, lambda: SHARE_ID) for number in range(12)]
    devices_given = [r[0]["devices"]["results"][0]["device"] for r in found if isinstance(r, tuple)]
    assert devices_given == ["gpu-1", "gpu-0"] * 6


def test_scored_allocation_is_deterministic() -> None:
    def ask() -> Allocation:
        asked = claim("c", request("a", 3, profile("1g.10gb")), request("b", 2, at_least("15Gi")))
        state = taken("gpu-3-mig-2g20gb-14-0", pool="node-1", driver=NVIDIA)
        return solve(MIG_NODE, [asked], state=state, node=NODE, scoring=True)

    assert ask() == ask()
