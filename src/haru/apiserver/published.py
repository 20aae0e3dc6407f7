"""The Service `kubernetes`: where pods find the API server, kept true to where it listens.

Source: kube-apiserver's kubernetes-service controller and endpoint reconciler, as behaviour.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from haru.apiserver.bootstrap import ensure_object, own_call
from haru.apiserver.core import Core
from haru.apiserver.writing import change

Obj = dict[str, Any]

NAME = "kubernetes"
ADDRESS = "10.96.0.1"


def objects(address: str, port: int) -> list[Obj]:
    """The Service and what says where it leads: Endpoints, and the EndpointSlice that has taken their place."""
    listening = {"name": "https", "port": port, "protocol": "TCP"}
    family = "IPv6" if ipaddress.ip_address(address).version == 6 else "IPv4"
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata({"component": "apiserver", "provider": "kubernetes"}),
            "spec": {
                "type": "ClusterIP",
                "clusterIP": ADDRESS,
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": _metadata({"endpointslice.kubernetes.io/skip-mirror": "true"}),
            "subsets": [{"addresses": [{"ip": address}], "ports": [listening]}],
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": _metadata({"kubernetes.io/service-name": NAME}),
            "addressType": family,
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": [listening],
        },
    ]


def _metadata(labels: dict[str, str]) -> Obj:
    return {"name": NAME, "namespace": "default", "labels": labels}


async def publish(core: Core) -> None:
    """Write where the server listens now, if it does."""
    if core.listening is None:
        return
    address, port = core.listening
    if ipaddress.ip_address(address).is_unspecified:
        address = "127.0.0.1"
    for obj in objects(address, port):
        if not await ensure_object(core, obj):
            await _correct(core, obj)


async def _correct(core: Core, obj: Obj) -> None:
    """What an earlier run wrote, changed in the parts that say where."""
    wanted: Obj = {name: obj[name] for name in ("subsets", "endpoints", "ports") if name in obj}

    async def make(live: Obj) -> Obj:
        if "spec" in obj:
            return {**live, "spec": {**live["spec"], "ports": obj["spec"]["ports"]}}
        return {**live, **wanted}

    call = own_call(core, obj, "update")
    call.name = NAME
    await change(call, make)
