"""Small clusters at random: nearly full of running work, with a group that wants some of the room."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from plain_preemption import Budget, Group, Held, Machine, Running, Situation, Wanted

APPS = ("", "x", "y")


def situation(seed: int) -> Situation:
    """A cluster that is nearly full of less important work, and a group that wants some of it."""
    draw = random.Random(seed)
    machines = tuple(
        Machine(f"n{i}", draw.randint(2, 6), draw.choice("rs"), tuple(draw.choices("aab", k=draw.randint(0, 3))))
        for i in range(draw.choice([1, 2, 2, 3, 3]))
    )
    groups = tuple(Group(f"old{i}", draw.choice([1, 5, 9]), draw.random() < 0.6) for i in range(draw.randint(0, 2)))
    running = tuple(_running(draw, machines, groups))
    members = [wanted(draw) for _ in range(draw.randint(1, 4))]
    if draw.random() < 0.6:
        members = [members[0] for _ in members]
    return Situation(
        machines,
        running,
        groups,
        tuple(_held(draw, machines, running)),
        tuple(Budget(app, draw.randint(0, 1)) for app in APPS[1:] if draw.random() < 0.3),
        tuple(members),
        draw.randint(1, len(members)),
        priority=8,
        by_rack=draw.random() < 0.25,
    )


def wanted(draw: random.Random) -> Wanted:
    """A member that waits."""
    return Wanted(draw.randint(1, 3), draw.choice([0, 1, 1, 2]), draw.choice(["any", "any", "a"]))


def _running(draw: random.Random, machines: Sequence[Machine], groups: Sequence[Group]) -> Iterator[Running]:
    left = {machine.name: machine.cpu for machine in machines}
    for i in range(draw.randint(2, 7)):
        name, cpu = draw.choice(sorted(left)), draw.randint(1, 3)
        if cpu <= left[name]:
            left[name] -= cpu
            group = draw.choice(["", *(g.name for g in groups)])
            priority = draw.choice([0, 1, 1, 3, 5, 9])
            yield Running(f"p{i}", name, cpu, priority, i, group, draw.choice(APPS), draw.random() < 0.05)


def _held(draw: random.Random, machines: Sequence[Machine], running: Sequence[Running]) -> Iterator[Held]:
    """Claims of running pods: of one pod, of several, or of all pods of a group. Devices are used on their machine."""
    for machine in machines:
        here = [one for one in running if one.machine == machine.name]
        for device in range(len(machine.models)):
            if not here or draw.random() < 0.15:
                continue
            users = draw.sample(here, draw.choice([1, 1, 2]) if len(here) > 1 else 1)
            members = [one for one in running if one.group and one.group == users[0].group]
            if members and all(one in here for one in members) and draw.random() < 0.4:
                names = tuple(one.name for one in members)
                yield Held(machine.name, (device,), names, by_group=users[0].group)
            else:
                yield Held(machine.name, (device,), tuple(one.name for one in users))
