"""The Service `kubernetes`: where pods find the API server, kept true to where it listens.

Servers that share a store each keep a mark in it, which says when it was renewed; the endpoints are those of young
marks.
Source: kube-apiserver's kubernetes-service controller and endpoint reconciler (leases), as behaviour.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Sequence
from datetime import timedelta

import orjson

from haru.apiserver.auth import SERVICE_ADDRESS
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.registry.loopback import Loopback
from haru.apiserver.serving_address import ServingAddress
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.kube.names import format_time, parse_time
from haru.storage import CompareFailed, Delete, Put, StoreError

Server = tuple[str, int]
"""Address and port."""

NAME = "kubernetes"
MARKS = "masterleases"
LIFE = timedelta(seconds=100)
"""Of a mark, which is renewed twice a minute."""
WITHDRAWAL_SECONDS = 3.0
_LOG = logging.getLogger("haru.apiserver")


def objects(servers: Sequence[Server]) -> list[Obj]:
    """The Service and what says where it leads: Endpoints, and the EndpointSlice that has taken their place.

    Servers are at one port and of one family, as a slice has only those: others than the first one's are in Endpoints.
    """
    address, port = servers[0]
    version = ipaddress.ip_address(address).version
    alike = [a for a, p in servers if p == port and ipaddress.ip_address(a).version == version]
    ports = sorted({p for _, p in servers})
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata({"component": "apiserver", "provider": "kubernetes"}),
            "spec": {
                "type": "ClusterIP",
                "clusterIP": SERVICE_ADDRESS,
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": _metadata({"endpointslice.kubernetes.io/skip-mirror": "true"}),
            "subsets": [
                {"addresses": [{"ip": a} for a, p in servers if p == each], "ports": [_listening(each)]}
                for each in ports
            ],
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": _metadata({"kubernetes.io/service-name": NAME}),
            "addressType": f"IPv{version}",
            "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in alike],
            "ports": [_listening(port)],
        },
    ]


def _listening(port: int) -> Obj:
    return {"name": "https", "port": port, "protocol": "TCP"}


def _metadata(labels: dict[str, str]) -> Obj:
    return {"name": NAME, "namespace": "default", "labels": labels}


async def publish(loopback: Loopback, address: ServingAddress) -> None:
    """Write where the server listens now, if it does; where several share a store, where all of them do."""
    if address.listening is None:
        return
    own, store = address.reachable(), loopback.objects.store
    for obj in objects(await _alive(loopback.objects, own) if store.shared else [own]):
        if not await loopback.ensure(obj):
            await _correct(loopback, obj)


async def withdraw(loopback: Loopback, address: ServingAddress) -> None:
    """Take this server out of the list of those that share a store: it stops."""
    store = loopback.objects.store
    if address.listening is None or not store.shared:
        return
    own, address.listening = address.reachable(), None
    try:
        async with asyncio.timeout(WITHDRAWAL_SECONDS):
            await store.transact(Delete(_mark(own)))
            others = [server for server in await _alive(loopback.objects) if server != own]
            for obj in objects(others) if others else ():
                await _correct(loopback, obj)
    except (CompareFailed, StoreError, StatusError, TimeoutError) as error:
        # Its mark grows old then, and the others take it out.
        _LOG.info("this server could not be taken out of the endpoints: %s", error)


def _mark(server: Server) -> str:
    return f"{MARKS}/{server[0]}:{server[1]}"


async def _alive(stored: ObjectStore, own: Server | None = None) -> list[Server]:
    """The servers that have said in time that they are there; with `own` this one says so too."""
    store, now = stored.store, stored.clock()
    if own is not None:
        await store.transact(Put(_mark(own), orjson.dumps({"renewed": format_time(now)})))
    await store.progress()
    found = []
    for record in (await store.range(f"{MARKS}/")).records:
        if parse_time(orjson.loads(record.value)["renewed"]) < now - LIFE:
            with contextlib.suppress(CompareFailed):
                await store.transact(Delete(record.key, record.revision))
            continue
        address, _, port = record.key.removeprefix(f"{MARKS}/").rpartition(":")
        found.append((address, int(port)))
    return sorted(found)


async def _correct(loopback: Loopback, obj: Obj) -> None:
    """What an earlier run wrote, changed in the parts that say where."""
    wanted: Obj = {name: obj[name] for name in ("subsets", "endpoints", "ports") if name in obj}

    async def make(live: Obj) -> Obj:
        if "spec" in obj:
            return {**live, "spec": {**live["spec"], "ports": obj["spec"]["ports"]}}
        return {**live, **wanted}

    await loopback.update(obj, make)
