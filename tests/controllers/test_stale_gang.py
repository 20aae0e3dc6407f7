"""Gangs that stay below minCount: the rules as tables, and hours of waiting in virtual time."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from controller_cluster import VirtualCluster, in_virtual_time, pod_body

from haru.controllers.objects import POD_GROUPS, PODS
from haru.controllers.stale_gang_rules import (
    AFTER,
    CONDITION,
    POLICY,
    Members,
    StalePolicy,
    default_policy,
    look_at,
    policy_of,
)
from haru.kube import kinds
from haru.kube.meta import get_condition
from haru.kube.names import format_time

EVENTS = kinds.lookup("", "v1", "events")
NAME = "stale-gang-controller"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEN_MINUTES = StalePolicy(600.0)


def at(seconds):
    return format_time(NOW + timedelta(seconds=seconds))


# -- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "expected", "problems"),
    [
        ({}, TEN_MINUTES, []),
        ({AFTER: "1h30m"}, StalePolicy(5400.0), []),
        ({AFTER: "0s", POLICY: "Evict"}, StalePolicy(None, evict=True), []),
        ({POLICY: "Report"}, TEN_MINUTES, []),
        (
            {AFTER: "ten"},
            TEN_MINUTES,
            [
                'metadata.annotations[haru.dev/stale-gang-after]: Invalid value: "ten": '
                "write a duration such as 10m or 1h30m, or 0s for never"
            ],
        ),
        (
            {AFTER: "-1s", POLICY: "evict"},
            TEN_MINUTES,
            [
                'metadata.annotations[haru.dev/stale-gang-after]: Invalid value: "-1s": '
                "write a duration such as 10m or 1h30m, or 0s for never",
                'metadata.annotations[haru.dev/stale-gang-policy]: Invalid value: "evict": write Report or Evict',
            ],
        ),
    ],
)
def test_group_annotations_override_default_stale_policy(annotations, expected, problems):
    assert policy_of({"metadata": {"annotations": annotations}}, TEN_MINUTES) == (expected, problems)


@pytest.mark.parametrize(
    ("after", "policy", "expected"),
    [
        (None, "Report", StalePolicy()),
        ("10m", "Evict", StalePolicy(600.0, evict=True)),
        ("soon", "Report", '--stale-gang-after: Invalid value: "soon": write a duration'),
        ("10m", "Kill", '--stale-gang-policy: Invalid value: "Kill": write Report or Evict'),
    ],
)
def test_stale_gang_flags_give_default_policy(after, policy, expected):
    if isinstance(expected, StalePolicy):
        assert default_policy(after, policy) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            default_policy(after, policy)


def members(running, succeeded=0, needed=4):
    pods = [{"metadata": {"name": f"p{i}"}, "spec": {"nodeName": "n"}} for i in range(running)]
    return Members(needed, tuple(pods), succeeded)


def stale(status, seconds, reason="BelowMinCount"):
    return {"type": CONDITION, "status": status, "reason": reason, "lastTransitionTime": at(seconds)}


SCHEDULED = {"type": "PodGroupScheduled", "status": "True"}


@pytest.mark.parametrize(
    ("conditions", "there", "policy", "expected"),
    [
        ([SCHEDULED], members(4), TEN_MINUTES, None),
        ([SCHEDULED], members(0), TEN_MINUTES, None),
        ([SCHEDULED], members(3, succeeded=1), TEN_MINUTES, None),
        ([SCHEDULED], members(3), StalePolicy(), None),
        ([], members(3), TEN_MINUTES, None),
        ([SCHEDULED], members(3), TEN_MINUTES, ("Unknown", "BelowMinCount", -10, 590)),
        ([SCHEDULED, stale("Unknown", -100)], members(3), TEN_MINUTES, ("Unknown", "BelowMinCount", -100, 500)),
        ([SCHEDULED, stale("Unknown", -600)], members(2, succeeded=1), TEN_MINUTES, ("True", "BelowMinCount", 0, None)),
        ([SCHEDULED, stale("True", -900)], members(2), TEN_MINUTES, ("True", "BelowMinCount", -900, None)),
        ([SCHEDULED, stale("Unknown", -100)], members(4), TEN_MINUTES, ("False", "Complete", 0, None)),
        ([SCHEDULED, stale("True", -900)], members(0), TEN_MINUTES, ("False", "NothingHeld", 0, None)),
        ([SCHEDULED, stale("True", -900)], members(2), StalePolicy(), ("False", "NotWatched", 0, None)),
        ([SCHEDULED, stale("False", -900)], members(3), TEN_MINUTES, ("Unknown", "BelowMinCount", -10, 590)),
    ],
)
def test_condition_of_stale_gang_follows_members_and_time(conditions, there, policy, expected):
    group = {"metadata": {}, "status": {"conditions": conditions}}
    finding = look_at(group, there, policy, NOW - timedelta(seconds=10), NOW)
    if expected is None:
        assert finding.condition is None
    else:
        status, reason, since, again = expected
        found = finding.condition
        assert (found["status"], found["reason"], found["lastTransitionTime"]) == (status, reason, at(since))
        assert finding.again == again
        assert finding.is_stale is (status == "True")


def test_message_counts_present_and_succeeded_members():
    assert (
        members(2, succeeded=1).describe() == "3 of 4 members that the gang needs are there (1 of them have succeeded)"
    )


# -- in virtual time --------------------------------------------------------------------------------------------------


class GangCluster(VirtualCluster):
    """A cluster with one gang."""

    async def gang(self, count=3, **annotations):
        spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
        await self.create(POD_GROUPS, {"metadata": {"name": "g", "annotations": annotations}, "spec": spec})
        scheduled = {**SCHEDULED, "reason": "Scheduled", "message": "", "lastTransitionTime": at(0)}
        await self.set_status(POD_GROUPS, "g", {"conditions": [scheduled]})
        for number in range(count):
            await self.member(f"p{number}")

    async def member(self, name):
        await self.create(PODS, pod_body(name, nodeName="n1", schedulingGroup={"podGroupName": "g"}))
        await self.set_status(PODS, name, {"phase": "Running"})

    async def lose(self, name):
        await self.client.delete(PODS, name, "ns", grace_period_seconds=0)

    async def condition(self):
        found = get_condition(await self.get(POD_GROUPS, "g"), CONDITION)
        return (found["status"], found["reason"]) if found is not None else None

    async def told(self, reason):
        return [e["message"] for e in await self.items(EVENTS) if e["reason"] == reason]

    async def leaving(self):
        return {p["metadata"]["name"] for p in await self.items(PODS) if p["metadata"].get("deletionTimestamp")}


def play(scenario):
    in_virtual_time(scenario, GangCluster)


def test_gang_below_min_count_is_reported_and_not_evicted():
    async def scenario(cluster):
        await cluster.gang()
        await cluster.start(NAME, **{"stale-gang": TEN_MINUTES})
        await asyncio.sleep(3600)
        assert await cluster.condition() is None
        await cluster.lose("p1")
        await asyncio.sleep(590)
        assert await cluster.condition() == ("Unknown", "BelowMinCount")
        assert await cluster.told("GangStale") == []
        await asyncio.sleep(15)
        assert await cluster.condition() == ("True", "BelowMinCount")
        message = "The gang stays below minCount: 2 of 3 members that the gang needs are there"
        assert await cluster.told("GangStale") == [message]
        await asyncio.sleep(1800)
        assert await cluster.told("GangStale") == [message]
        assert await cluster.leaving() == set()
        await cluster.member("p3")
        await asyncio.sleep(1)
        assert await cluster.condition() == ("False", "Complete")
        scheduled = get_condition(await cluster.get(POD_GROUPS, "g"), "PodGroupScheduled")
        assert scheduled["status"] == "True"

    play(scenario)


def test_remaining_members_are_evicted_only_with_evict_policy():
    async def scenario(cluster):
        await cluster.gang(**{AFTER: "2m", POLICY: "Evict"})
        await cluster.create(PODS, pod_body("waits", schedulingGroup={"podGroupName": "g"}))
        await cluster.create(PODS, pod_body("other", nodeName="n1"))
        await cluster.start(NAME)
        await cluster.lose("p1")
        await asyncio.sleep(110)
        assert await cluster.leaving() == set()
        await asyncio.sleep(15)
        assert await cluster.leaving() == {"p0", "p2"}  # not the one that holds nothing
        condition = get_condition(await cluster.get(PODS, "p0"), "DisruptionTarget")
        assert (condition["status"], condition["reason"]) == ("True", "DeletionByStaleGangController")
        for name in ("p0", "p2"):
            await cluster.lose(name)
        await asyncio.sleep(1)
        assert await cluster.condition() == ("False", "NothingHeld")

    play(scenario)


@pytest.mark.parametrize("annotations", [{}, {AFTER: "0s", POLICY: "Evict"}, {POLICY: "Evict"}])
def test_policy_without_time_does_nothing(annotations):
    async def scenario(cluster):
        await cluster.gang(**annotations)
        await cluster.start(NAME)
        await cluster.lose("p1")
        await asyncio.sleep(3 * 3600)
        assert await cluster.condition() is None
        assert await cluster.leaving() == set()

    play(scenario)


def test_short_lapse_below_min_count_sets_no_condition():
    async def scenario(cluster):
        await cluster.gang()
        await cluster.start(NAME, **{"stale-gang": TEN_MINUTES})
        for number in range(5):
            await cluster.lose(f"p{number}")
            await asyncio.sleep(4)
            await cluster.member(f"p{number + 3}")
            await asyncio.sleep(600)
        assert await cluster.condition() is None

    play(scenario)


@pytest.mark.parametrize("hours", [1, -1])
def test_clock_that_jumps_makes_no_gang_stale_earlier_or_later(hours):
    async def scenario(cluster):
        await cluster.gang()
        await cluster.start(NAME, **{"stale-gang": TEN_MINUTES})
        await cluster.lose("p1")
        await asyncio.sleep(300)
        cluster.ahead = timedelta(hours=hours)
        await cluster.lose("p2")
        await asyncio.sleep(295)
        assert await cluster.condition() == ("Unknown", "BelowMinCount")
        await asyncio.sleep(30)
        assert await cluster.condition() == ("True", "BelowMinCount")

    play(scenario)


def test_stale_time_continues_across_controller_restart():
    async def scenario(cluster):
        await cluster.gang()
        await cluster.start(NAME, **{"stale-gang": TEN_MINUTES})
        await cluster.lose("p1")
        await asyncio.sleep(300)
        await cluster.kill()
        await asyncio.sleep(250)
        await cluster.start(NAME, **{"stale-gang": TEN_MINUTES})
        await asyncio.sleep(30)
        assert await cluster.condition() == ("Unknown", "BelowMinCount")
        await asyncio.sleep(30)
        assert await cluster.condition() == ("True", "BelowMinCount")

    play(scenario)


def test_succeeded_members_count_towards_min_count():
    async def scenario(cluster):
        await cluster.gang()
        await cluster.start(NAME, **{"stale-gang": StalePolicy(60.0, evict=True)})
        await cluster.set_status(PODS, "p1", {"phase": "Succeeded"})
        await asyncio.sleep(600)
        assert (await cluster.condition(), await cluster.leaving()) == (None, set())
        await cluster.lose("p2")
        await asyncio.sleep(70)
        assert await cluster.leaving() == {"p0"}

    play(scenario)


def test_invalid_annotation_is_reported_and_default_applies():
    async def scenario(cluster):
        await cluster.gang(**{AFTER: "ten minutes"})
        await cluster.start(NAME, **{"stale-gang": TEN_MINUTES})
        await cluster.lose("p1")
        await asyncio.sleep(610)
        assert await cluster.condition() == ("True", "BelowMinCount")
        (message,) = set(await cluster.told("InvalidStaleGangPolicy"))
        assert message.startswith('metadata.annotations[haru.dev/stale-gang-after]: Invalid value: "ten minutes"')

    play(scenario)


def test_group_with_basic_policy_has_no_min_count():
    group = {"spec": {"schedulingPolicy": {"basic": {}}}}
    assert Members.of(group, []) is None
