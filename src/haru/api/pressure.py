"""Asks the kubelets of those nodes whose devices are held how hard their pods are pressed for memory and I/O.

The way there is the API server's (`nodes/proxy`), so that whoever reaches the cluster reaches its kubelets. A Node that
names no kubelet's port is simulated and is not asked. Each kubelet has so many seconds, and all of them together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from haru.accounting.pressure import PodPressure, Pressures, SummaryError, pressures_of
from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj

NODE_SECONDS = 5.0
ALL_SECONDS = 15.0
_AT_ONCE = 32
_NODES = known_kind("v1", "Node")
_SUMMARY = "proxy/stats/summary"
_MOST_WORDS = 300


def with_kubelets(objects: Iterable[Obj]) -> frozenset[str]:
    """The names of the Nodes among objects that say where their kubelet listens."""
    return frozenset(
        obj["metadata"]["name"] for obj in objects if obj["kind"] == "Node" and obj["apiVersion"] == "v1" and _port(obj)
    )


def _port(node: Obj) -> int:
    endpoints = (node.get("status") or {}).get("daemonEndpoints") or {}
    return (endpoints.get("kubeletEndpoint") or {}).get("Port") or 0


async def ask(
    client: ApiClient, nodes: Sequence[str], *, each: float = NODE_SECONDS, in_all: float = ALL_SECONDS
) -> Pressures:
    """Read kubelets of nodes, each within `each` seconds, all within `in_all`. Raises nothing."""
    found: dict[str, PodPressure] = {}
    failed: dict[str, str] = dict.fromkeys(nodes, f"was not reached within the {in_all:g} s that all nodes have")
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(node: str) -> None:
        async with places:
            try:
                async with asyncio.timeout(each):
                    summary = await client.get(_NODES, node, subresource=_SUMMARY)
                found.update(pressures_of(summary))
                del failed[node]
            except TimeoutError:
                failed[node] = f"no answer within {each:g} s"
            except StatusError as error:
                failed[node] = _refusal(error)
            except SummaryError as error:
                failed[node] = f"/stats/summary: {error}"
            except (OSError, ValueError) as error:
                failed[node] = f"{error}"[:_MOST_WORDS]

    try:
        async with asyncio.timeout(in_all):
            await asyncio.gather(*map(one, nodes))
    except TimeoutError:
        pass
    return Pressures(found, {node: failed[node] for node in nodes if node in failed})


def _refusal(error: StatusError) -> str:
    if error.code == 403 and error.reason == "Forbidden":
        return "not allowed: it takes the right to get nodes/proxy"
    return error.message[:_MOST_WORDS]
