"""The order of device scoring by its definition, on the objects as they are published: no caches, no engine."""

from __future__ import annotations

from typing import Any

from brute_force import World, able_to_serve

Obj = dict[str, Any]
WHOLE = 1_000_000


def order(world: World) -> list[int]:
    """The devices, those to be tried first first: candidates of requests that count by rank, then the others."""
    wanted = [index for index in range(len(world.devices)) if any(able_to_serve(world, index, a) for a in asks(world))]
    wanted = [index for index in wanted if fits(world, index, left_of(world))]
    cost = {index: (lost(world, index), min(card(world, index))) for index in wanted}

    def rank(index: int) -> Any:
        size = size_of(world, index)
        alike = [cost[i] for i in wanted if i in card(world, index) and size_of(world, i) == size]
        return size, untouched(world, index), min(alike), cost[index][0], index

    return sorted(wanted, key=rank) + [index for index in range(len(world.devices)) if index not in wanted]


def asks(world: World) -> list[Obj]:
    requests = [request for claim in world.claims for request in claim["spec"]["devices"]["requests"]]
    found = [ask for request in requests for ask in request.get("firstAvailable", [request.get("exactly")])]
    return [ask for ask in found if ask["allocationMode"] == "ExactCount"]


def capacities(world: World, index: int) -> dict[str, int]:
    return {name: int(value["value"]) for name, value in world.devices[index].get("capacity", {}).items()}


def size_of(world: World, index: int) -> int:
    every = [capacities(world, i) for i in range(len(world.devices))]
    own, parts = capacities(world, index), []
    used = world.used.get(index, 0)
    for name, value in own.items():
        left = value - used if name == "slots" else value
        parts.append(left * WHOLE // max(capacity.get(name, 0) for capacity in every))
    if not own and world.charges(index):
        taken = dict(world.charges(index))
        parts = [taken.get(key, 0) * WHOLE // world.counters[key] for key in counters_of_card(world, index)]
    size = sum(parts) // len(parts) if parts else 0
    return size + WHOLE if world.shareable(index) and index not in world.used else size


def card(world: World, index: int) -> set[int]:
    """The device and those with which it shares counters, over any number of others."""
    found = {index}
    while True:
        counters = {key for i in found for key, _ in world.charges(i)}
        more = {i for i in range(len(world.devices)) if counters & {key for key, _ in world.charges(i)}}
        if more <= found:
            return found
        found |= more


def counters_of_card(world: World, index: int) -> set[tuple[str, str, str]]:
    return {key for i in card(world, index) for key, _ in world.charges(i)}


def untouched(world: World, index: int) -> bool:
    return not any(i in world.taken or i in world.used for i in card(world, index))


def left_of(world: World, *chosen: int) -> dict[tuple[str, str, str], int]:
    left = dict(world.counters)
    for index in (*world.taken, *chosen):
        for key, amount in world.charges(index):
            left[key] -= amount
    return left


def lost(world: World, index: int) -> list[int]:
    """The sizes of the other devices of the card that could be had before and not after, the largest first."""

    others = [i for i in card(world, index) - world.taken - {index} if fits(world, i, left_of(world))]
    return sorted((size_of(world, i) for i in others if not fits(world, i, left_of(world, index))), reverse=True)


def fits(world: World, index: int, left: dict[tuple[str, str, str], int]) -> bool:
    return all(left[key] >= amount for key, amount in world.charges(index))
