"""Preemption by trying everything, on a model of its own: who has to go, by the definition and nothing else.

A small cluster is nodes with cpu, a rack and named devices, and running pods in units. The spared set is found by
looking at every subset of the candidates; whether members fit by looking at every way to spread them over the nodes
and every way to hand out devices.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from engine_objects import (
    DRIVER,
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    pod,
    pod_group,
    resource_slice,
)


@dataclass(frozen=True)
class Machine:
    name: str
    cpu: int
    rack: str
    models: tuple[str, ...]
    """The model of each of its devices."""


@dataclass(frozen=True)
class Held:
    """A claim in use: its devices by number on one machine, and the running pods that it is reserved for."""

    machine: str
    devices: tuple[int, ...]
    users: tuple[str, ...]
    by_group: str = ""

    def is_free(self, gone: frozenset[str], evicted: frozenset[str]) -> bool:
        users = set(self.users)
        return bool(users) and users <= gone and not (self.by_group and users.isdisjoint(evicted))


@dataclass(frozen=True)
class Running:
    name: str
    machine: str
    cpu: int
    priority: int
    started: int
    group: str = ""
    app: str = ""
    deleting: bool = False


@dataclass(frozen=True)
class Group:
    name: str
    priority: int
    whole: bool


@dataclass(frozen=True)
class Wanted:
    """A member that wants a place: cpu, so many devices, of one model or of any."""

    cpu: int
    devices: int
    model: str


@dataclass(frozen=True)
class Budget:
    app: str
    allowed: int


@dataclass(frozen=True)
class Situation:
    machines: tuple[Machine, ...]
    running: tuple[Running, ...]
    groups: tuple[Group, ...]
    held: tuple[Held, ...]
    budgets: tuple[Budget, ...]
    members: tuple[Wanted, ...]
    minimum: int
    priority: int
    by_rack: bool = False
    ending: bool = False
    """Who goes ends by itself: nobody is evicted."""

    @property
    def going(self) -> frozenset[str]:
        """Who is being deleted anyway: nobody has to be evicted for what that frees."""
        return frozenset(one.name for one in self.running if one.deleting)

    @property
    def waits_for_less_important(self) -> bool:
        """Whether somebody less important is being deleted."""
        groups = {group.name: group.priority for group in self.groups}
        return any(one.deleting and groups.get(one.group, one.priority) < self.priority for one in self.running)

    # -- the definition ----------------------------------------------------------------------------------------------

    @cached_property
    def units(self) -> list[tuple[tuple[Running, ...], int, bool]]:
        """The candidates: pods, priority, whether they are a whole group."""
        found: dict[str, tuple[tuple[Running, ...], int, bool]] = {}
        by_name = {group.name: group for group in self.groups}
        for one in self.running:
            group = by_name.get(one.group)
            priority = group.priority if group else one.priority
            if priority >= self.priority or one.deleting:
                continue
            if group and group.whole:
                pods = tuple(o for o in self.running if o.group == group.name and not o.deleting)
                found[f"group {group.name}"] = (pods, priority, True)
            else:
                found[one.name] = ((one,), priority, False)
        return list(found.values())

    def order(self) -> list[tuple[Running, ...]]:
        """The candidates in the order of sparing."""
        return self._ordered([pods for pods, _, _ in self.units])[0]

    def _ordered(self, units: list[tuple[Running, ...]]) -> tuple[list[tuple[Running, ...]], list[tuple[Running, ...]]]:
        """Units in the order of sparing, and those of them that violate a budget."""
        known = {pods: (priority, whole) for pods, priority, whole in self.units}

        def importance(pods: tuple[Running, ...]) -> tuple[int, bool, int, int]:
            priority, whole = known[pods]
            return -priority, not whole, -len(pods) if whole else 0, min(one.started for one in pods)

        left = {budget: budget.allowed for budget in self.budgets}
        violating: list[tuple[Running, ...]] = []
        others: list[tuple[Running, ...]] = []
        for pods in sorted(units, key=importance):
            violates = False
            for one in pods:
                for budget in self.budgets:
                    if budget.app == one.app:
                        left[budget] -= 1
                        violates |= left[budget] < 0
            (violating if violates else others).append(pods)
        return violating + others, violating

    def outcome(self) -> tuple[int, frozenset[str]]:
        """How many members are nominated, and who is evicted: the lexicographically greatest spared set."""
        order, going = self.order(), self.going
        everybody = frozenset(one.name for pods in order for one in pods)
        count = self.most(everybody | going)
        if count < self.minimum or not (order or self.waits_for_less_important):
            return 0, frozenset()
        for spared in itertools.product((True, False), repeat=len(order)):
            gone = frozenset(one.name for pods, stays in zip(order, spared, strict=True) if not stays for one in pods)
            if self.most(gone | going) >= count:
                return count, gone
        raise AssertionError("with everybody gone they fit")

    def single_outcomes(self) -> list[tuple[str, frozenset[str]]]:
        """For the first member alone: the machines that may be chosen, and who is evicted for it; by 1.36's rules."""
        wanted = self.members[0]
        waiting = [m.name for number, m in enumerate(self.machines) if self.takes(number, wanted, self.going)]
        if waiting:
            return [(name, frozenset()) for name in waiting if self.waits_for_less_important]
        found: list[tuple[tuple[int, int, int, int], int, str, frozenset[str]]] = []
        for number, machine in enumerate(self.machines):
            here = [pods for pods, _, _ in self.units if any(one.machine == machine.name for one in pods)]
            if not here:
                continue
            order, guarded = self._ordered(here)
            everybody = frozenset(one.name for pods in order for one in pods)
            if not self.takes(number, wanted, everybody | self.going):
                continue
            for spared in itertools.product((True, False), repeat=len(order)):
                units = [pods for pods, stays in zip(order, spared, strict=True) if not stays]
                gone = frozenset(one.name for pods in units for one in pods)
                if self.takes(number, wanted, gone | self.going):
                    found.append((*self._cost(units, guarded), machine.name, gone))
                    break
        if not found:
            return []
        least = min(cost for cost, _, _, _ in found)
        latest = max(started for cost, started, _, _ in found if cost == least)
        return [(name, gone) for cost, started, name, gone in found if (cost, started) == (least, latest)]

    def takes(self, number: int, wanted: Wanted, gone: frozenset[str]) -> bool:
        """Whether a machine takes one member without these pods."""
        return _take(self.machines[number], *self.free_on(self.machines[number], gone), [wanted])

    def _cost(
        self, units: list[tuple[Running, ...]], guarded: list[tuple[Running, ...]]
    ) -> tuple[tuple[int, int, int, int], int]:
        priorities = {pods: priority for pods, priority, _ in self.units}
        of_pods = [priorities[pods] for pods in units for _ in pods]
        top = max(of_pods)
        started = min(one.started for pods in units for one in pods if priorities[pods] == top)
        return (sum(p in guarded for p in units), top, sum(p + 2**31 for p in of_pods), len(of_pods)), started

    def most(self, gone: frozenset[str]) -> int:
        """The largest number of members that fit at once without these pods."""
        return _most(self, gone)

    # -- trying everything -------------------------------------------------------------------------------------------

    def free_on(self, machine: Machine, gone: frozenset[str]) -> tuple[int, frozenset[int]]:
        """The cpu and the devices that are free on a machine.

        What is reserved for a group stays with it where its members end, or are deleted by somebody.
        """
        evicted = frozenset() if self.ending else gone - self.going
        stays = [one for one in self.running if one.name not in gone and one.machine == machine.name]
        taken = {
            device
            for held in self.held
            if held.machine == machine.name and not held.is_free(gone, evicted)
            for device in held.devices
        }
        return machine.cpu - sum(one.cpu for one in stays), frozenset(range(len(machine.models))) - taken

    # -- as objects --------------------------------------------------------------------------------------------------

    def objects(self) -> Iterator[Obj]:
        """The situation as Kubernetes objects; the preemptor's group is `g`."""
        yield device_class("any")
        for model in ("a", "b"):
            yield device_class(model, [f'device.attributes["{DRIVER}"].model == "{model}"'])
        for machine in self.machines:
            yield node(machine.name, cpu=str(machine.cpu), labels={"rack": machine.rack})
            named = [
                {"name": f"d{i}", "attributes": {"model": {"string": model}}} for i, model in enumerate(machine.models)
            ]
            yield resource_slice(machine.name, named)
        for group in self.groups:
            mode = {"disruptionMode": "PodGroup"} if group.whole else {}
            yield pod_group(group.name, 1, priority=group.priority, **mode)
        pods = {one.name: self._pod(one) for one in self.running}
        for number, held in enumerate(self.held):
            yield self._claim(f"held-{number}", held, pods)
        yield from pods.values()
        for number, budget in enumerate(self.budgets):
            yield {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": f"budget-{number}", "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": budget.app}}},
                "status": {"disruptionsAllowed": budget.allowed},
            }
        topology = {"schedulingConstraints": {"topology": [{"key": "rack"}]}} if self.by_rack else {}
        yield pod_group("g", self.minimum, priority=self.priority, **topology)
        yield from member_objects("g", "m", self.members, self.priority)

    def _pod(self, one: Running) -> Obj:
        names = [f"held-{i}" for i, held in enumerate(self.held) if one.name in held.users]
        made = pod(one.name, cpu=str(one.cpu), group=one.group, node=one.machine, claims=names, priority=one.priority)
        made["metadata"]["labels"] = {"app": one.app} if one.app else {}
        made["status"]["startTime"] = f"2026-01-01T00:00:{one.started:02}Z"
        if one.deleting:
            made["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
        return made

    def _claim(self, name: str, held: Held, pods: dict[str, Obj]) -> Obj:
        made = allocated(claim(name), allocation(held.machine, *(f"d{i}" for i in held.devices)))
        users = [{"resource": "pods", "name": user, "uid": pods[user]["metadata"]["uid"]} for user in held.users]
        if held.by_group:
            entry = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": held.by_group}
            users = [{**entry, "uid": f"uid-group-{held.by_group}"}]
        made["status"]["reservedFor"] = users
        return made


def member_objects(group: str, prefix: str, members: Sequence[Wanted], priority: int) -> Iterator[Obj]:
    """Pods of a group that wait, with their claims."""
    for number, wanted in enumerate(members):
        name = f"{prefix}{number}"
        names = [name] if wanted.devices else []
        yield pod(name, cpu=str(wanted.cpu), group=group, claims=names, priority=priority)
        if wanted.devices:
            exactly = {"deviceClassName": wanted.model, "allocationMode": "ExactCount", "count": wanted.devices}
            yield claim(name, requests=[{"name": "gpu", "exactly": exactly}])


@lru_cache(maxsize=100_000)
def _most(situation: Situation, gone: frozenset[str]) -> int:
    free = [situation.free_on(machine, gone) for machine in situation.machines]
    return most_with(situation.machines, free, situation.members, by_rack=situation.by_rack)


def most_with(
    machines: Sequence[Machine],
    free: Sequence[tuple[int, frozenset[int]]],
    members: Sequence[Wanted],
    *,
    by_rack: bool = False,
) -> int:
    """The largest number of members that fit at once, given the cpu and the devices that are free on each machine."""
    best = 0
    for rack in sorted({machine.rack for machine in machines}) if by_rack else [""]:
        open_to = [i for i, machine in enumerate(machines) if rack in ("", machine.rack)]
        for places in itertools.product([None, *open_to], repeat=len(members)):
            count = sum(place is not None for place in places)
            if count > best and all(
                _take(machines[i], *free[i], [m for m, p in zip(members, places, strict=True) if p == i])
                for i in set(places) - {None}
                if i is not None
            ):
                best = count
    return best


def _take(machine: Machine, cpu: int, devices: frozenset[int], here: list[Wanted]) -> bool:
    """Whether a machine takes these members together."""
    return sum(wanted.cpu for wanted in here) <= cpu and _hand_out(machine.models, devices, here)


def _hand_out(models: tuple[str, ...], devices: frozenset[int], here: list[Wanted]) -> bool:
    if not here:
        return True
    first, rest = here[0], here[1:]
    fitting = sorted(d for d in devices if first.model in ("any", models[d]))
    return any(
        _hand_out(models, devices - set(chosen), rest) for chosen in itertools.combinations(fitting, first.devices)
    )
