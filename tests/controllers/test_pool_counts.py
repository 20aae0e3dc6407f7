"""How full pools are: the arithmetic of a ResourcePoolStatusRequest's answer, by example and by property."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.controllers.pool_counts import PoolCounts, count_pools
from haru.controllers.resource_pool_status import answer, expired
from haru.controllers.slices import kept_part
from haru.drivers.simulated.profiles import load_profile
from haru.drivers.simulated.slices import resource_slices
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.kube.names import format_time
from haru.kube.validation import validate_status_update

Obj = dict[str, Any]
DRIVER = "gpu.example.com"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def slice_(name: str, pool: str = "p", devices: Any = 0, generation: int = 1, count: int = 1, **more: Any) -> Obj:
    """A slice; `devices` is a number of plain ones, or the devices themselves."""
    listed = [{"name": f"{name}-{i}"} for i in range(devices)] if isinstance(devices, int) else list(devices)
    of_pool = {"name": pool, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": of_pool, "devices": listed, **more}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def claim(name: str, *devices: str, pool: str = "p", driver: str = DRIVER, **more: Any) -> Obj:
    results = [{"request": "r", "driver": driver, "pool": pool, "device": device, **more} for device in devices]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    return {"metadata": {"name": name, "namespace": "ns"}, "status": status}


def rule(effect: str, **selector: str) -> Obj:
    spec = {"deviceSelector": selector, "taint": {"key": "k", "effect": effect}}
    return {"metadata": {"name": "r"}, "spec": spec}


def counted(slices: list[Obj], claims: Any = (), rules: Any = (), **spec: Any) -> PoolCounts:
    return count_pools({"driver": DRIVER, **spec}, [kept_part(s) for s in slices], claims, rules)


def numbers(pool: Obj) -> tuple[int, int, int, int]:
    names = ("totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices")
    return tuple(pool[name] for name in names)  # type: ignore[return-value]


def one(*args: Any, **spec: Any) -> Obj:
    """The only pool."""
    [pool] = counted(*args, **spec).pools
    return pool


def test_complete_pool_counts_total_allocated_and_available_devices() -> None:
    pool = one([slice_("a", devices=3, count=2), slice_("b", devices=1, count=2)], [claim("c", "a-0")])
    assert pool == {
        "driver": DRIVER,
        "poolName": "p",
        "nodeName": "n1",
        "generation": 1,
        "resourceSliceCount": 2,
        "totalDevices": 4,
        "allocatedDevices": 1,
        "availableDevices": 3,
        "unavailableDevices": 0,
    }


def test_empty_pool_counts_no_devices() -> None:
    assert numbers(one([slice_("a")])) == (0, 0, 0, 0)


def test_filters_without_match_count_no_pool() -> None:
    assert counted([slice_("a", devices=1)], driver="other.example.com") == PoolCounts(0, (), 0)
    assert counted([slice_("a", devices=1)], poolName="q") == PoolCounts(0, (), 0)


def test_pools_are_filtered_by_driver_and_name() -> None:
    foreign = slice_("x", "b", devices=5)
    foreign["spec"]["driver"] = "other.example.com"
    slices = [slice_("a", "a", devices=1), slice_("b", "b", devices=2), foreign]
    assert one(slices, poolName="b")["totalDevices"] == 2
    # A device of the other driver's pool of the same name is not this pool's.
    assert numbers(one(slices, [claim("c", "x-0", pool="b", driver="other.example.com")], poolName="b")) == (2, 0, 2, 0)


def test_only_newest_generation_of_pool_is_counted() -> None:
    old = [slice_("a", devices=8, generation=1, count=2), slice_("b", devices=8, generation=1, count=2)]
    pool = one([*old, slice_("c", devices=1, generation=2)])
    assert (pool["generation"], pool["resourceSliceCount"], pool["totalDevices"]) == (2, 1, 1)


@pytest.mark.parametrize("slices", [1, 3])
def test_incomplete_pool_has_validation_error_and_no_counts(slices: int) -> None:
    found = counted([slice_(f"s{i}", devices=2, generation=7, count=2) for i in range(slices)])
    text = f"incomplete: {slices} of 2 slices of generation 7 are there"
    expected = {"driver": DRIVER, "poolName": "p", "nodeName": "n1", "generation": 7, "validationError": text}
    assert found == PoolCounts(1, (expected,), 1)


def test_invalid_pool_has_validation_error_and_no_counts() -> None:
    twice = [slice_("a", devices=[{"name": "d"}], count=2), slice_("b", devices=[{"name": "d"}], count=2)]
    found = counted(twice)
    assert found.incomplete == 0
    assert found.pools[0]["validationError"] == "invalid: device d is published twice"
    assert "totalDevices" not in found.pools[0]
    unknown = [{"name": "d", "consumesCounters": [{"counterSet": "c", "counters": {"x": {"value": "1"}}}]}]
    assert one([slice_("a", devices=unknown)])["validationError"].startswith("invalid: device d consumes from unknown")


@pytest.mark.parametrize(
    ("nodes", "node"),
    [(["n1", "n1"], {"nodeName": "n1"}), (["n1", "n2"], {}), (["n1", None], {}), ([None, None], {})],
)
def test_pool_has_node_name_when_all_slices_share_it(nodes: list[str | None], node: Obj) -> None:
    slices = []
    for number, name in enumerate(nodes):
        made = slice_(f"s{number}", count=2)
        if name is None:
            del made["spec"]["nodeName"]
            made["spec"]["allNodes"] = True
        else:
            made["spec"]["nodeName"] = name
        slices.append(made)
    assert {key: value for key, value in one(slices).items() if key == "nodeName"} == node


def test_allocated_devices_are_counted_across_claims() -> None:
    slices = [slice_("a", devices=4)]
    several = [claim("one", "a-0", "a-1"), claim("waiting"), claim("two", "a-2")]
    assert numbers(one(slices, several)) == (4, 3, 1, 0)
    assert numbers(one(slices, [claim("admin", "a-0", "a-1", "a-2", "a-3", adminAccess=True)])) == (4, 0, 4, 0)
    shares = [claim(f"share-{i}", "a-0", shareID=f"0000000{i}", consumedCapacity={"memory": "1Gi"}) for i in range(3)]
    assert numbers(one(slices, shares)) == (4, 1, 3, 0)
    # Devices that are no longer published are still held: nothing becomes negative.
    assert numbers(one(slices, [claim("gone", *(f"old-{i}" for i in range(6)))])) == (4, 6, 0, 0)


@pytest.mark.parametrize(("effect", "unavailable"), [("NoSchedule", 1), ("NoExecute", 1), ("None", 0)])
def test_tainted_devices_are_unavailable_unless_allocated(effect: str, unavailable: int) -> None:
    devices = [{"name": "a", "taints": [{"key": "k", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}]}]
    slices = [slice_("s", devices=[*devices, {"name": "b"}])]
    assert numbers(one(slices)) == (2, 0, 2 - unavailable, unavailable)
    assert numbers(one(slices, [claim("c", "a")])) == (2, 1, 1, 0)
    by_rule = [rule(effect, driver=DRIVER, device="s-1")]
    assert numbers(one([slice_("s", devices=2)], (), by_rule)) == (2, 0, 2 - unavailable, unavailable)
    assert numbers(one([slice_("s", devices=2)], (), [rule(effect, pool="other")])) == (2, 0, 2, 0)


def partitioned() -> list[Obj]:
    """The slices of a node with one H100 that can be divided."""
    profile = load_profile("dgx-h100-mig")
    return [
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **s}
        for s in resource_slices(profile, "n1", "uid", {}, 1)
    ]


def test_partitions_without_free_counters_are_unavailable() -> None:
    slices = partitioned()
    driver = slices[0]["spec"]["driver"]
    per_card = len(slices[1]["spec"]["devices"])
    total = per_card * 8

    def ask(*devices: str) -> tuple[int, int, int, int]:
        held = [claim("c", *devices, pool="n1", driver=driver)] if devices else []
        return numbers(counted(slices, held, driver=driver).pools[0])

    assert ask() == (total, 0, total, 0)
    # A whole card leaves none of its partitions; the other seven cards stay as they were.
    assert ask("gpu-0") == (total, 1, total - per_card, per_card - 1)
    small = next(d["name"] for d in slices[1]["spec"]["devices"] if "-mig-1g10gb-" in d["name"])
    assert small.startswith("gpu-0-")
    _, allocated, available, unavailable = ask(small)
    assert allocated == 1 and unavailable >= 2  # the card, the partition of seven slices, ...
    assert total - per_card < available < total - 1
    # Where partitions are no feature counters bind nobody.
    held = [claim("c", "gpu-0", pool="n1", driver=driver)]
    plain = count_pools({"driver": driver}, map(kept_part, slices), held, partitionable=False)
    assert numbers(plain.pools[0]) == (total, 1, total - 1, 0)


def test_kept_parts_of_equal_slices_are_shared_and_input_is_unchanged() -> None:
    first, second = partitioned(), partitioned()
    untouched = repr(first)
    kept = [(kept_part(a), kept_part(b)) for a, b in zip(first, second, strict=True)]
    assert all(a["spec"]["devices"] is b["spec"]["devices"] for a, b in kept)
    assert kept[0][0]["spec"]["sharedCounters"] is kept[0][1]["spec"]["sharedCounters"]
    assert repr(first) == untouched


# -- properties -------------------------------------------------------------------------------------------------------

POOLS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(1, 3), st.integers(0, 8)),
    max_size=8,
)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Obj], list[Obj], list[Obj]]:
    """Slices (old, new, missing and surplus ones), claims of known and unknown devices, and rules, in any order."""
    slices, claims, rules = [], [], []
    for pool, (devices, there, announced, held) in draw(POOLS).items():
        for number in range(there):
            name = f"{pool}-s{number}"
            slices.append(slice_(name, pool, devices, generation=2, count=announced))
        if draw(st.booleans()):
            slices.append(slice_(f"{pool}-old", pool, 3, generation=1))
        names = draw(st.lists(st.sampled_from([f"{pool}-s0-{i}" for i in range(8)]), max_size=held))
        claims += [claim(f"{pool}-{i}", name, pool=pool) for i, name in enumerate(names)]
        if draw(st.booleans()):
            made = rule(draw(st.sampled_from(["NoSchedule", "NoExecute", "None"])), pool=pool)
            rules.append({**made, "metadata": {"name": f"of-{pool}"}})
    shuffled: tuple[list[Obj], list[Obj], list[Obj]] = (slices, claims, rules)
    for part in shuffled:
        random.Random(draw(st.integers(0, 99))).shuffle(part)
    return shuffled


@settings(max_examples=50)
@given(clusters(), st.integers(1, 9))
def test_counts_are_sorted_consistent_and_limited(parts: Any, limit: int) -> None:
    slices, claims, rules = parts
    names = sorted({s["spec"]["pool"]["name"] for s in slices})
    found = counted(slices, claims, rules, limit=limit)
    assert found.pool_count == len(names)
    assert [pool["poolName"] for pool in found.pools] == names[:limit]
    for pool in found.pools:
        assert pool["generation"] == 2
        if "validationError" in pool:
            assert not {"totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"} & pool.keys()
            continue
        total, allocated, available, unavailable = numbers(pool)
        assert available == max(0, total - allocated - unavailable)
        assert min(total, allocated, available, unavailable) >= 0
        assert unavailable <= total
        current = [s for s in slices if s["spec"]["pool"]["name"] == pool["poolName"]]
        assert total == sum(len(s["spec"]["devices"]) for s in current if s["spec"]["pool"]["generation"] == 2)
        results = [
            r for c in claims for r in c["status"].get("allocation", {"devices": {"results": []}})["devices"]["results"]
        ]
        assert allocated == len({r["device"] for r in results if r["pool"] == pool["poolName"]})
    assert found.incomplete == sum(p.get("validationError", "").startswith("incomplete") for p in found.pools)
    assert found == counted(slices[::-1], claims[::-1], rules[::-1], limit=limit)


@settings(max_examples=30)
@given(clusters())
def test_counted_status_passes_api_validation(parts: Any) -> None:
    kind = known_kind("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest")
    request = {"metadata": {"name": "r"}, "spec": {"driver": DRIVER}}
    status = answer(counted(*parts), format_time(NOW))
    assert validate_status_update({**request, "status": status}, request, kind, FeatureGates()) == []


# -- when requests go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("created", "answered", "goes"),
    [
        (23 * 60, None, False),
        (24 * 60 + 1, None, True),
        (30 * 60, 59, False),
        (61, 61, True),
        (61, 59, False),
    ],
)
@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_request_expires_after_its_retention_time(
    created: int, answered: int | None, goes: bool, condition: str
) -> None:
    """Minutes since it was created and since it was answered."""

    def ago(minutes: int) -> str:
        return format_time(NOW - timedelta(minutes=minutes))

    request: Obj = {"metadata": {"name": "r", "creationTimestamp": ago(created)}}
    if answered is not None:
        request["status"] = {"conditions": [{"type": condition, "lastTransitionTime": ago(answered)}]}
    assert expired(request, NOW) is goes


def test_status_without_condition_expires_an_hour_after_creation() -> None:
    request = {"metadata": {"creationTimestamp": format_time(NOW - timedelta(minutes=61))}, "status": {"poolCount": 0}}
    assert expired(request, NOW)
