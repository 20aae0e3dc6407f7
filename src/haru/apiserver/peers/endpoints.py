"""Where the servers are: keys of etcd that no client of the API can write, so nobody leads a server astray.

Each is an Endpoints object under `peerserverleases/`, the server's name its key; it goes by itself when its server has
not written it for a while.
Source: the peer endpoint leases of the mixed version proxy (KEP 4020), as behaviour.
"""

from __future__ import annotations

import ipaddress

import orjson

from haru.apiserver.object_store import ObjectStore
from haru.kube.meta import Obj
from haru.storage import CompareFailed, Delete, Put

Address = tuple[str, int]
"""IP address and port."""

PREFIX = "peerserverleases/"
LIFE_SECONDS = 15
"""Of a key, which is written every ten seconds."""


class Unresolved(Exception):
    """Where a server is is not known; `str()` says which."""


class PeerEndpoints:
    """The places of all servers on one etcd."""

    def __init__(self, objects: ObjectStore, server: str) -> None:
        self._objects = objects
        self._server = server
        self._generation = 0

    async def publish(self, address: Address) -> None:
        """Say where this server is."""
        self._generation += 1
        metadata = {"name": self._server, "generation": self._generation, "labels": {"apiserverIdentity": self._server}}
        port = {"name": "https", "port": address[1], "protocol": "TCP"}
        subsets = [{"addresses": [{"ip": address[0]}], "ports": [port]}]
        endpoints: Obj = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}
        await self._objects.store.transact(Put(PREFIX + self._server, orjson.dumps(endpoints), lives=LIFE_SECONDS))

    async def withdraw(self) -> None:
        """Take this server's place away."""
        try:
            await self._objects.store.transact(Delete(PREFIX + self._server))
        except CompareFailed:
            return

    async def resolve(self, server: str) -> Address:
        """Where a server is. Raises Unresolved."""
        record = await self._objects.store.get(PREFIX + server)
        if record is None:
            raise Unresolved(f"no endpoint of the API server {server} is known")
        try:
            subset = orjson.loads(record.value)["subsets"][0]
            address = str(ipaddress.ip_address(subset["addresses"][0]["ip"]))
            return address, int(next(port["port"] for port in subset["ports"] if port["name"] == "https"))
        except (KeyError, IndexError, TypeError, ValueError, StopIteration):
            raise Unresolved(f"the endpoint of the API server {server} is malformed") from None


def url_of(address: Address) -> str:
    """The base URL of a place."""
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"https://{host}:{address[1]}"
