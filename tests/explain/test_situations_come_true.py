"""The remedies of situations are carried out by their commands on a cluster in virtual time: then the work runs.

That is of work without a place; containers and drivers are not there: tests/testing/test_remedies_after_pending.py.
What has no command, or one that is not enough by itself, is listed with the reason; what can be played may not be.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest
from played_cluster import PlayedCluster
from situations import Situation
from test_situations import EVERY

import virtual_time
from haru.explain import Remedy

MACHINES = "machines are to be provided: a command would make Node objects without any"
AUTHOR = "what the new object asks for or selects is for its author to say"
DRIVER = "the driver publishes the taint, and takes it off when the device is well"
OTHER_GATES = "the scheduler that is played has the gates of gangs on"
WELL = "the played node is well: a controller takes the one taint off, and the command is then that for the other"
NEXT = "the work waits for something else as well, and the remedy says that it is not confirmed"
NOT_PLAYED = {
    MACHINES: (
        "verdict: a gang runs and extras wait",
        "verdict: a job that can never start",
        "scenario: no device at all",
        "scenario: not of the class",
        "scenario: taken by a pod",
        "scenario: taken by a claim that nobody uses",
        "scenario: slices are missing",
        "scenario: a cordon and a holder",
        "a class of which no device is there",
        "an affinity to a label that no node has",
    ),
    AUTHOR: (
        "verdict: the claim does not exist",
        "verdict: the template does not exist",
        "verdict: the class does not exist",
        "scenario: no claim",
        "scenario: no template",
        "scenario: no class",
        "first remedy: a class of another vendor",
        "first remedy: a template that is nowhere",
        "first remedy: a template with another number",
        "a template that is nowhere, of one member",
    ),
    DRIVER: (
        "verdict: tainted device",
        "verdict: tainted node and device",
        "scenario: tainted by its driver",
        "scenario: tainted node and tainted device",
    ),
    NEXT: (
        "verdict: members that would not fit either",
        "scenario: gated, without room",
        "first remedy: a class with a typing error, for too much",
        "first remedy: a scheduler that nobody is, and too many devices",
        "a missing volume claim without a default class",
    ),
    "what is wrong with the node is to be mended there": (
        "first remedy: a node that cannot be reached",
        "first remedy: a node that is not ready, with a taint that is tolerated",
    ),
    WELL: ("first remedy: a node that is not ready, and kept for others",),
    OTHER_GATES: (
        "verdict: its scheduler does no gangs",
        "verdict: its scheduler does no gangs, and members are missing",
    ),
    "Kueue is to admit it then": ("Kueue's Workload is deactivated",),
    "the driver of this node is none that follows the annotation": ("lines: a tainted device of a simulated node",),
}
OTHERWISE = {
    ("first remedy: a node that cannot be reached", "AddNodes"): "the played node can be reached, and takes the work",
    ("first remedy: a node that is not ready, with a taint that is tolerated", "AddNodes"): "it is ready, and takes it",
    ("scenario: a part of the card is taken", "LowerCount"): "another pod takes what it would be content with",
}
"""Remedies after the first one that are not offered once the cluster has come to rest."""

SITUATIONS = {one.name: one for module, one in EVERY if module != "situations_after"}
LISTED = {name: reason for reason, names in NOT_PLAYED.items() for name in names}
SHORT = [name for name in SITUATIONS if name not in LISTED][::10]
"""What `make test` plays of them."""


@functools.cache
def remedies_of(name: str) -> Sequence[Remedy]:
    """Explained when a test asks: every worker imports this module, and explaining all takes seconds."""
    return SITUATIONS[name].explanation().remedies


async def play(one: Situation, remedy: Remedy) -> None:
    """Run the command of the remedy of this kind, as it reads on the cluster."""
    world = PlayedCluster(one)
    try:
        await world.begin()
        before = await world.answer()
        offered = next((found for found in before.remedies if found.kind == remedy.kind), None)
        assert offered is not None and offered.command, f"{one.name}: there is no {remedy.kind} in\n{before}"
        await world.carry_out(offered)
        after = await world.answer()
        assert after.verdict == "Runs", f"{one.name}: {offered} made of\n{before}\nthis:\n{after}"
    finally:
        await world.stop()


def is_for_a_person(remedy: Remedy) -> bool:
    return not (remedy.confirmed and remedy.command)


def test_listed_situations_are_those_of_which_the_first_remedy_is_for_a_person() -> None:
    """But for those that say so in words: a taint that its driver has to take off, a driver that is not played."""
    partly = {name for name, reason in LISTED.items() if reason == DRIVER} | {
        "lines: a tainted device of a simulated node"
    }
    assert len(LISTED) == sum(map(len, NOT_PLAYED.values()))
    first = {name: remedies[0] for name in SITUATIONS if (remedies := remedies_of(name))}
    assert LISTED.keys() - partly == {name for name, one in first.items() if is_for_a_person(one)} - partly
    assert partly <= first.keys()


@pytest.mark.parametrize("name", SHORT)
def test_command_of_first_remedy_makes_the_work_run(name: str) -> None:
    for remedy in remedies_of(name)[:1]:
        virtual_time.run(play(SITUATIONS[name], remedy))


@pytest.mark.nightly
@pytest.mark.parametrize("name", SITUATIONS)
def test_command_of_every_remedy_makes_the_work_run(name: str) -> None:
    for number, remedy in enumerate(remedies_of(name)):
        tried = number == 0 and (name in LISTED or name in SHORT)
        if not (tried or is_for_a_person(remedy) or (name, remedy.kind) in OTHERWISE):
            virtual_time.run(play(SITUATIONS[name], remedy))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "the first") for name, reason in LISTED.items() if reason not in (OTHER_GATES, WELL)), *OTHERWISE],
    ids=str,
)
def test_listed_remedy_does_not_make_the_work_run(name: str, kind: str) -> None:
    remedy = next(found for found in remedies_of(name) if kind in ("the first", found.kind))
    with pytest.raises((AssertionError, LookupError)):
        virtual_time.run(play(SITUATIONS[name], remedy))


@pytest.mark.nightly
@pytest.mark.parametrize("name", NOT_PLAYED[WELL])
def test_node_that_is_well_again_has_a_command_for_what_is_left(name: str) -> None:
    virtual_time.run(play(SITUATIONS[name], remedies_of(name)[0]))
