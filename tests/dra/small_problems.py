"""Random allocation problems of a few devices: counters, taints, shares, constraints, alternatives, admin access."""

from __future__ import annotations

import random
from typing import Any

from device_objects import DRIVER, claim, class_, device, exact, first_of, slice_

Obj = dict[str, Any]

MODEL_X = f"device.attributes['{DRIVER}'].?model.orValue('') == 'x'"
HAS_ROOT = f"'root' in device.attributes['{DRIVER}']"
BIG = f"device.capacity['{DRIVER}'].?slots.orValue(quantity('9')).compareTo(quantity('2')) >= 0"
SELECTORS = (MODEL_X, HAS_ROOT, BIG)
CARDS = {f"card-{i}": {"mem": 4, "slot": 3} for i in range(2)}


def problem(seed: int, most: int = 7) -> Obj:
    """One problem as keyword arguments of `haru.dra.allocate` (`claims` among them)."""
    rng = random.Random(seed)
    pools = rng.choice((1, 1, 2))
    found: list[list[Obj]] = [[] for _ in range(pools)]
    for number in range(rng.randint(2, most)):
        found[rng.randrange(pools)].append(_device(rng, f"dev-{number}"))
    slices = []
    for number, devices in enumerate(found):
        pool, count = f"pool-{number}", 3 if len(devices) > 3 else 2
        parts = [devices[:3], devices[3:]] if count == 3 else [devices]
        slices += [slice_(f"{pool}-{i}", part, pool=pool, count=count) for i, part in enumerate(parts)]
        slices.append(slice_(f"{pool}-z", pool=pool, count=count, counters=CARDS))
    rng.shuffle(slices)
    names = [(f"pool-{number}", d["name"]) for number, devices in enumerate(found) for d in devices]
    shared = {d["name"] for devices in found for d in devices if "allowMultipleAllocations" in d}
    whole = [pair for pair in names if pair[1] not in shared]
    taken = rng.sample(whole, min(len(whole), rng.choice((0, 0, 0, 1, 2))))
    return {
        "claims": [_claim(rng, f"claim-{i}") for i in range(rng.choice((1, 1, 1, 2)))],
        "node": {"metadata": {"name": "node-1", "labels": {"zone": "a"}}},
        "slices": slices,
        "classes": [class_()],
        "taken": [{"driver": DRIVER, "pool": pool, "device": name} for pool, name in taken],
    }


def _device(rng: random.Random, name: str) -> Obj:
    attributes: Obj = {}
    if rng.random() < 0.7:
        attributes["model"] = rng.choice("xxy")
    if rng.random() < 0.8:
        attributes["root"] = rng.choice(("r0", "r1", "r2"))
    more: Obj = {}
    kind = rng.random()
    if kind < 0.45:
        counters = {"mem": rng.randint(1, 4), **({"slot": rng.randint(1, 2)} if rng.random() < 0.6 else {})}
        more["consumes"] = {rng.choice(sorted(CARDS)): counters}
    elif kind < 0.6:
        more |= {"allowMultipleAllocations": True, "capacity": {"slots": str(rng.randint(1, 4))}}
    if rng.random() < 0.15:
        more["taints"] = [{"key": "broken", "effect": rng.choice(("NoSchedule", "NoExecute", "None"))}]
    return device(name, attributes, **more)


def _claim(rng: random.Random, name: str) -> Obj:
    requests = [_request(rng, f"req-{i}") for i in range(rng.choice((1, 1, 2, 2, 3)))]
    every = any(ask.get("allocationMode") == "All" for r in requests for ask in [r.get("exactly", {})])
    constraints = []
    for _ in range(0 if every else rng.choice((0, 0, 1, 1, 2))):
        attribute = f"{DRIVER}/{rng.choice(('root', 'root', 'model'))}"
        constraint: Obj = {rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): attribute}
        if rng.random() < 0.4:
            constraint["requests"] = [rng.choice(requests)["name"]]
        constraints.append(constraint)
    return claim(name, *requests, constraints=constraints)


def _request(rng: random.Random, name: str) -> Obj:
    if rng.random() < 0.25:
        return first_of(name, *(_ask(rng) for _ in range(rng.randint(2, 3))))
    if rng.random() < 0.05:
        return {"name": name, "exactly": exact(None, *rng.sample(SELECTORS, rng.randint(0, 1)))}
    more: Obj = {"adminAccess": True} if rng.random() < 0.1 else {}
    return {"name": name, "exactly": _ask(rng) | more}


def _ask(rng: random.Random) -> Obj:
    more: Obj = {}
    if rng.random() < 0.3:
        more["tolerations"] = [rng.choice(({"operator": "Exists"}, {"key": "broken", "operator": "Exists"}))]
    if rng.random() < 0.15:
        more["capacity"] = {"requests": {"slots": str(rng.randint(1, 3))}}
    return exact(rng.choice((1, 1, 1, 2, 2, 3)), *rng.sample(SELECTORS, rng.choice((0, 0, 1))), **more)
