"""What Services hold is known from their changes as a look at all of them would find it."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_network
from itertools import islice
from random import Random
from typing import Any

import orjson
import pytest
from api_caller import Caller

from haru.apiserver.registry.service_allocations import NODE_PORTS, Addresses, Numbers, ServiceAllocations
from haru.kube.service_networks import gives_out
from haru.storage import Delete, Put, StoreError
from haru.storage.memory import MemoryStore

Obj = dict[str, Any]
SERVICES = "/api/v1/namespaces/default/services"
FIRST = int.from_bytes(bytes((10, 96, 0, 0)))


def service(name: str, **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


@pytest.mark.parametrize("seed", range(5))
def test_free_numbers_are_those_that_nobody_holds(seed: int) -> None:
    random, numbers, last = Random(seed), range(10, 30), range(2, 5)
    kept, held = Numbers(numbers, last), list[tuple[int, str]]()
    for _ in range(500):
        if held and random.random() < 0.48:
            number, key = held.pop(random.randrange(len(held)))
            kept.release(number, key)
        else:
            number, key = random.randrange(0, 35), random.choice("abc")
            if (number, key) not in held:
                held.append((number, key))
                kept.hold(number, key)
        taken = {number for number, _ in held}
        assert list(kept.free()) == [number for number in (*numbers, *last) if number not in taken]
        assert all(kept.is_held(n, "a") == any(h == n and k != "a" for h, k in held) for n in range(35))


@pytest.mark.parametrize("seed", range(3))
async def test_allocations_follow_created_changed_and_deleted_services(seed: int) -> None:
    """Another server that looks at the end finds the same, and so does one whose place in the history is gone."""
    random, store = Random(seed), MemoryStore()
    followed, seen = ServiceAllocations(store), dict[str, Obj]()
    for number in range(300):
        key = f"services/{random.choice('ab')}/{random.randrange(8)}"
        if key in seen and random.random() < 0.4:
            await store.transact(Delete(key))
            del seen[key]
        else:
            ports = [{"nodePort": random.randrange(30_000, 30_020)} for _ in range(random.randrange(3))]
            address = random.choice(("None", "", "fd00::1", f"10.96.1.{random.randrange(20)}"))
            seen[key] = {"clusterIPs": [address] if address else [], "ports": ports}
            value = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": seen[key]}
            await store.transact(Put(key, orjson.dumps(value)))
        if number == 150:
            await store.compact(store.revision)
        if random.random() < 0.5:
            await followed.take_in()
    for allocations in (followed, ServiceAllocations(store)):
        await allocations.take_in()
        ports = {port["nodePort"] for spec in seen.values() for port in spec["ports"]}
        assert list(islice(allocations.ports.free(), 20)) == [p for p in NODE_PORTS if p not in ports][:20]
        addresses = {address for spec in seen.values() for address in spec["clusterIPs"]}
        wanted = [FIRST + 256 + last for last in range(1, 30) if f"10.96.1.{last}" not in addresses]
        assert list(islice(allocations.addresses.free(), len(wanted))) == wanted


@pytest.mark.parametrize("seed", range(5))
def test_free_addresses_are_those_of_ready_networks_that_nobody_holds(seed: int) -> None:
    """Networks come, go and overlap while addresses are held and given back."""
    random, kept, held, cidrs = Random(seed), Addresses(), set[tuple[int, str]](), dict[str, Obj]()
    choices = ["10.1.0.0/28", "10.1.0.0/27", "10.1.0.16/29", "10.2.0.0/30", "10.2.0.0/32", "fd00::/120"]
    for _ in range(300):
        name, number = (
            random.choice("abc"),
            int(IPv4Address(random.choice(("10.1.0.0", "10.2.0.0")))) + random.randrange(33),
        )
        if random.random() < 0.3:
            conditions = [{"type": "Ready", "status": random.choice(("True", "False", "Unknown"))}]
            made = {"metadata": {}, "spec": {"cidrs": random.sample(choices, 2)}, "status": {"conditions": conditions}}
            if random.random() < 0.3:
                cidrs.pop(name, None)
            else:
                cidrs[name] = made
            kept.change_cidr(name, cidrs.get(name))
        elif (number, name) in held:
            held.remove((number, name))
            kept.release(number, name)
        else:
            held.add((number, name))
            kept.hold(number, name)
        if not cidrs:
            continue
        networks = {ip_network(text) for each in cidrs.values() if gives_out(each) for text in each["spec"]["cidrs"]}
        hosts = {int(host) for network in networks if network.version == 4 for host in list(network)[1:-1]}
        taken = {number for number, _ in held}
        assert set(kept.free()) == hosts - taken
        assert all(kept.is_given_out(number) == (number in hosts) for number in taken)
        assert all(kept.is_held(number, "a") == any((number, key) in held for key in "bc") for number in taken)


async def test_number_of_a_deleted_service_is_given_again_and_that_of_a_dry_run_was_never_taken(api: Caller) -> None:
    first = await api.create(SERVICES, service("first", type="NodePort"))
    tried = await api("POST", f"{SERVICES}?dryRun=All", service("tried", type="NodePort"))
    second = await api.create(SERVICES, service("second", type="NodePort"))
    assert tried.json["spec"]["clusterIP"] == second["spec"]["clusterIP"] != first["spec"]["clusterIP"]
    await api("DELETE", f"{SERVICES}/first")
    third = await api.create(SERVICES, service("third", type="NodePort"))
    assert (third["spec"]["clusterIP"], third["spec"]["ports"]) == (first["spec"]["clusterIP"], first["spec"]["ports"])


async def test_number_of_a_write_that_failed_is_free(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    store = api.app.objects.store

    async def fail(*_: Put | Delete) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "transact", fail)
        failed = await api("POST", SERVICES, service("lost", clusterIP="10.96.0.7"))
        assert failed.status >= 500
    assert (await api.create(SERVICES, service("again", clusterIP="10.96.0.7")))["spec"]["clusterIP"] == "10.96.0.7"


async def test_full_range_of_ports_is_told(api: Caller) -> None:
    ports = [{"name": f"p{number}", "port": number, "nodePort": number} for number in NODE_PORTS]
    for index in range(0, len(ports), 900):
        await api.create(SERVICES, service(f"many{index}", type="NodePort", ports=ports[index : index + 900]))
    answer = await api("POST", SERVICES, service("late", type="NodePort"))
    assert answer.status == 500 and "failed to allocate a nodePort: range is full" in answer.json["message"]
    assert (await api("POST", SERVICES, service("none"))).status == 201
