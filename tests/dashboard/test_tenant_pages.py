"""Whatever a tenant asks for, no answer names what is hidden: no page, title, link, search, YAML, live page, error."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from random import Random
from typing import Any
from urllib.parse import unquote

import pytest
from dashboard_pages import FixedWatch
from engine_objects import DRIVER, resource_slice
from tenant_clusters import DEVICES, NODES, leaks, marks_in, namespace, tenant_cluster
from tenant_pages import people_of

from haru.dashboard.pages import PAGES
from haru.dashboard.signin.viewer import OWNER, Viewer, Visibility
from haru.dashboard.views.device_timeline import Held
from haru.dashboard.views.usage import Span, Use
from haru.dashboard.views.usage_history import UsageHistory
from haru.dashboard.views.workloads import Workload
from haru.engine import SchedulerCache
from haru.explain.happenings import Happening

Obj = dict[str, Any]
NAMESPACES = 3


def watch_of(objects: Sequence[Obj]) -> FixedWatch:
    events = [obj for obj in objects if obj["kind"] == "Event"]
    return FixedWatch(SchedulerCache.of(obj for obj in objects if obj["kind"] != "Event").snapshot(), events)


def measured(since: int, until: int) -> list[Span]:
    held = {Use("held", Workload(namespace(n), f"job/own-qz{n}z")): 1.0 + n for n in range(NAMESPACES)}
    return [Span(since, until, until - since, held)]


def held(since: int, until: int) -> list[Held]:
    works = [Workload(namespace(n), f"job/own-qz{n}z") for n in range(NAMESPACES)]
    return [Held("n0", DRIVER, "n0", f"gpu-{n}", f"gpu-{n}", work, since, until) for n, work in enumerate(works)]


def happened(since: int, until: int) -> list[Happening]:
    of_work = [
        Happening("preempted", "n0", namespace(n), f"own-qz{n}z", until - n, until - n) for n in range(NAMESPACES)
    ]
    return [*of_work, Happening("fault", "n0", "", "node n0 is not ready", since, 0)]


async def slices() -> Sequence[Obj]:
    return [resource_slice(name, DEVICES) for name in NODES]


def person(*shown: str) -> Viewer:
    return Viewer(Visibility(namespaces=frozenset(shown)), "jane")


def without_echo(text: str, address: str) -> str:
    """An answer without what the address itself says after its question mark: somebody has typed that."""
    for value in re.split(r"[?&=/+]", unquote(address.partition("?")[2])):
        text = text.replace(value, "") if marks_in(value) else text
    return text


async def leaking(found: dict[str, Any], shown: Collection[str]) -> dict[str, set[int]]:
    """The addresses whose answers name what is hidden."""
    told = {address: f"{answer.headers}{answer.text}" for address, answer in found.items()}
    every = {address: leaks(without_echo(unquote(text), address), shown) for address, text in told.items()}
    return {address: numbers for address, numbers in every.items() if numbers}


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_that_a_tenant_gets_names_what_is_hidden(seed: int) -> None:
    watch = watch_of(tenant_cluster(Random(seed), NAMESPACES))
    shown = {namespace(seed % NAMESPACES)}
    begin = [page.path for page in PAGES if "{" not in page.path]
    begin += [
        "/whatif?change=drain&node=n0",
        "/whatif?change=add-nodes&profile=cpu",
        "/search?q=kind:",
        "/search?q=app=",
    ]
    begin += [f"/device/{DRIVER}/n0/gpu-0", "/node/n0", f"/search?q={namespace((seed + 1) % NAMESPACES)}"]
    history = UsageHistory(measured, held, happened)
    async with people_of(watch, OWNER, person(*shown), history=history, slices=slices) as (owner, tenant):
        of_all = await owner.addresses(*begin, most=150)
        assert len(marks_in(" ".join(of_all))) == NAMESPACES, "no page of the owner leads to anything of the tenants"
        own = await tenant.addresses(*begin, most=150)
        assert not await leaking(own, shown)
        texts = (without_echo(unquote(answer.text), address) for address, answer in own.items())
        assert marks_in(" ".join(texts)) == {seed % NAMESPACES}
        # Neither does what somebody else was sent, or has guessed.
        foreign = {address: await tenant.get(address) for address in of_all if leaks(unquote(address), shown)}
        assert foreign and not await leaking(foreign, shown)
        paths = [address for address in foreign if leaks(unquote(address).partition("?")[0], shown)]
        assert {foreign[address].status_code for address in paths} == {404}


async def test_tenants_share_pages_only_with_whom_sees_the_same() -> None:
    watch = watch_of(tenant_cluster(Random(1), NAMESPACES))
    one, other = person(namespace(0)), person(namespace(1))
    async with people_of(watch, one, other, OWNER) as (first, second, owner):
        texts = [(await each.get("/queue")).text for each in (first, second, owner)]
        assert [marks_in(text) for text in texts] == [{0}, {1}, {0, 1, 2}]
        assert "another namespace" in texts[0] and "another namespace" not in texts[2]


async def test_pages_of_redacted_objects_do_not_exist() -> None:
    objects = tenant_cluster(Random(1), NAMESPACES)
    async with people_of(watch_of(objects), person(namespace(0))) as (tenant,):
        for path in ("/workload/another%20namespace/pod/hidden-0000", "/workload/another%20namespace/another/x"):
            assert (await tenant.get(path)).status_code == 404
