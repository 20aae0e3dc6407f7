"""The words of cards: both sums hold in every cluster, and top, page, metrics and explain show the same numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from engine_objects import (
    allocated,
    allocation,
    claim,
    device_class,
    member_with_claim,
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)
from preemption_situations import situation

from haru.accounting.device_states import UsageKey, amounts, card_states, counts_of
from haru.accounting.history import HOUR
from haru.accounting.ledger import Total
from haru.accounting.report import OLD_API_VERSION, Usage, usage_now, usage_over
from haru.dashboard.views.device_map import device_map
from haru.drivers.simulated.objects import PROFILE_LABEL
from haru.drivers.simulated.profiles import load_profile
from haru.drivers.simulated.slices import resource_slices
from haru.engine import SchedulerCache, Snapshot, decide, reserve_earliest_start
from haru.explain.card_counts import WHOLE, CardCounts, card_counts
from haru.explain.cards import Layouts
from haru.explain.stories import explain_node

Obj = dict[str, Any]
NOW = 1767225610.0
PROFILES = ("dgx-h100", "dgx-a100-80gb-mig", "t4")


def simulated(seed: int) -> Iterator[Obj]:
    """Nodes of profiles, some cordoned, not ready or tainted in part; claims hold some devices at some utilization."""
    draw = random.Random(seed)
    for number in range(draw.randint(1, 4)):
        profile, name = load_profile(draw.choice(PROFILES)), f"n{number}"
        made = node(name)
        made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), PROFILE_LABEL: "x"}
        made["spec"] = {"unschedulable": True} if draw.random() < 0.2 else {}
        ready = "Unknown" if draw.random() < 0.2 else "True"
        made["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        yield made
        slices = list(resource_slices(profile, name, "uid", {}, 1))
        devices = [device for one in slices for device in one["spec"].get("devices") or ()]
        for device in draw.sample(devices, draw.randint(0, 2)):
            device["taints"] = [{"key": "k", "effect": draw.choice(("NoSchedule", "NoExecute", "None"))}]
        yield from slices
        for held in draw.sample(devices, draw.randint(0, min(3, len(devices)))):
            user = pod(f"{name}-{held['name']}", node=name, claims=[f"{name}-{held['name']}"])
            if draw.random() < 0.7:
                percent = draw.choice(("0", "4.9", "5", "80", "no number"))
                user["metadata"]["annotations"] = {"simulated.haru.dev/utilization": percent}
            given = allocated(claim(f"{name}-{held['name']}"), _allocation(name, held), user)
            yield from (user, given) if draw.random() < 0.9 else (given,)


def _allocation(pool: str, device: Obj) -> Obj:
    result = {"request": "r", "driver": "gpu.nvidia.com", "pool": pool, "device": device["name"]}
    return {"devices": {"results": [result]}}


def sums_hold(counts: CardCounts, cards: int) -> None:
    assert min(counts.words().values()) >= 0
    assert counts.total == cards * WHOLE
    assert counts.total == counts.free + counts.reserved + counts.held + counts.unavailable
    assert counts.held == counts.idle + counts.in_use + counts.unmeasured


def same_everywhere(snapshot: Snapshot) -> CardCounts:
    """The counts of `haru explain`, compared with those of the others."""
    states = card_states(snapshot, options())
    counts = card_counts(snapshot, options=options())
    sums_hold(counts, len(states))
    assert counts_of(states) == counts
    usage = usage_now(states)
    assert usage.counts == counts.as_dict()
    told = usage.as_dict()
    assert told["counts"]["held"] == pytest.approx(sum(row["held"] for row in told["owners"]))
    for word in ("idle", "inUse", "unmeasured"):
        assert told["counts"][word] == pytest.approx(sum(row[word] for row in told["owners"]))
    assert over_an_hour(amounts(states)).counts == pytest.approx(counts.as_dict()), (
        "haru top --since has the same words"
    )
    page = device_map(snapshot, Layouts()).totals.counts
    assert page == counts
    nodes = CardCounts()
    for name in {card.node for card in states if card.node}:
        nodes += explain_node(snapshot, name, options=options()).cards or CardCounts()
    if all(card.node for card in states):
        assert nodes == counts
    return counts


@pytest.mark.parametrize("seed", range(20))
def test_sums_hold_and_numbers_agree_on_simulated_nodes(seed: int) -> None:
    same_everywhere(SchedulerCache.of(simulated(seed)).snapshot())


@pytest.mark.parametrize("seed", range(20))
def test_sums_hold_and_numbers_agree_in_preemption_situations(seed: int) -> None:
    same_everywhere(SchedulerCache.of(situation(seed).objects()).snapshot())


def test_words_of_one_node() -> None:
    tainted = [{"key": "k", "effect": "NoSchedule"}]
    cards = resource_slice("a", 6)
    cards["spec"]["devices"][0]["taints"] = tainted
    made = node("a")
    made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), PROFILE_LABEL: "x"}
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    objects: list[Obj] = [made, cards]
    for name, percent in (("gpu-1", "1"), ("gpu-2", "50"), ("gpu-3", "")):
        user = pod(name, node="a", claims=[name])
        user["metadata"]["annotations"] = {"simulated.haru.dev/utilization": percent} if percent else {}
        driver = cards["spec"]["driver"]
        result = {"request": "r", "driver": driver, "pool": cards["spec"]["pool"]["name"], "device": name}
        objects += [user, allocated(claim(name), {"devices": {"results": [result]}}, user)]
    counts = same_everywhere(SchedulerCache.of(objects).snapshot())
    assert counts == CardCounts(free=2000, idle=1000, in_use=1000, unmeasured=1000, unavailable=1000)
    assert str(counts) == "2 free, 0 reserved, 3 held (1 idle, 1 in use, 1 unmeasured), 1 unavailable"


def test_old_version_of_the_json_has_no_words() -> None:
    usage = usage_now(card_states(SchedulerCache.of(simulated(1)).snapshot(), options()))
    told = usage.in_version(OLD_API_VERSION).as_dict()
    assert (told["apiVersion"], "counts" in told) == ("haru.dev/v1alpha1", False)
    assert all("use" not in part for card in told["devices"] for part in card["parts"])
    assert all("inUse" not in row for row in told["owners"])
    assert usage.as_dict()["apiVersion"] == "haru.dev/v1alpha2"


def over_an_hour(amounts: Mapping[UsageKey, int]) -> Usage:
    return usage_over(Total(0, HOUR, HOUR, {key: amount * HOUR for key, amount in amounts.items()}))


def test_sums_hold_over_a_time_that_was_recorded_without_words() -> None:
    states = {"Busy": 4, "Idle": 2, "Unused": 1, "Held": 1.5, "Free": 3, "Fragmented": 2.5, "Tainted": 1}
    counts = over_an_hour({UsageKey(state, "", "", "d"): round(n * WHOLE) for state, n in states.items()}).counts
    assert (counts["total"], counts["unavailable"]) == (sum(states.values()), 1)
    assert counts["total"] == counts["free"] + counts["reserved"] + counts["held"] + counts["unavailable"]
    assert counts["held"] == counts["idle"] + counts["inUse"] + counts["unmeasured"] == 8.5


def test_devices_kept_for_the_head_of_the_queue_are_reserved() -> None:
    """A gang of two waits for one of two cards: the free one is kept for it."""
    holder = pod("h", node="a", claims=["h"], activeDeadlineSeconds=60)
    holder["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    made = node("a")
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    held = allocated(claim("h"), allocation("a", "gpu-0"), holder)
    gang = [*member_with_claim("g-0", "g"), *member_with_claim("g-1", "g")]
    cache = SchedulerCache.of([made, device_class(), resource_slice("a", 2), holder, held, pod_group("g", 2), *gang])
    snapshot = cache.snapshot()
    members = [snapshot.pods[f"default/g-{number}"].obj for number in range(2)]
    found = reserve_earliest_start(snapshot, members, group=snapshot.pod_groups["default/g"], options=options(now=NOW))
    assert found is not None
    cache.reserve(found)
    assert card_counts(cache.snapshot()) == CardCounts(reserved=WHOLE, unmeasured=WHOLE)


def test_pod_with_only_a_nominated_node_name_reserves_no_cards() -> None:
    """The engine keeps cpu and memory for it, and may give the devices to others: they count as free."""
    made = node("a")
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    waiting, *own = member_with_claim("w", "")
    waiting["status"] = {**waiting.get("status", {}), "nominatedNodeName": "a"}
    others = member_with_claim("o", "")
    snapshot = SchedulerCache.of([made, device_class(), resource_slice("a", 1), waiting, *own, *others]).snapshot()
    assert card_counts(snapshot) == CardCounts(free=WHOLE)
    assert decide(snapshot, [others[0]], group=None, options=options()).status == "scheduled"
