"""The config map by which extension API servers authenticate this server and the users that it forwards.

Servers that share a store may have authorities of their own: what another one has written stays, ours is added.
Source: kube-apiserver's cluster authentication trust controller, as behaviour.
"""

from __future__ import annotations

import json

from haru.apiserver.aggregation.options import AggregationOptions
from haru.apiserver.peers.request_header import certificates_in, fingerprints
from haru.apiserver.registry.loopback import Loopback
from haru.kube.meta import Obj

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
_BUNDLES = ("client-ca-file", "requestheader-client-ca-file")


async def publish(loopback: Loopback, options: AggregationOptions) -> None:
    """Write the config map, unless the options are empty."""
    data = data_of(options)
    if not data:
        return
    metadata = {"name": NAME, "namespace": NAMESPACE}
    wanted: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    if await loopback.ensure(wanted):
        return

    async def make(live: Obj) -> Obj:
        return {**live, "data": joined(live.get("data") or {}, data)}

    await loopback.update(wanted, make)


def data_of(options: AggregationOptions) -> dict[str, str]:
    """The config map's data: bundles in PEM, lists of names in JSON."""
    data = {_BUNDLES[0]: _certificates(options.clients)} if options.clients else {}
    front = options.front_proxy
    if front is None:
        return data
    lists = {
        "allowed-names": list(front.names),
        "username-headers": _shown(front.user),
        "uid-headers": _shown(front.uid),
        "group-headers": _shown(front.group),
        "extra-headers-prefix": _shown(front.extra),
    }
    named = {f"requestheader-{name}": json.dumps(value) for name, value in lists.items()}
    return {**data, _BUNDLES[1]: _certificates(front.authorities), **named}


def _certificates(pem: bytes) -> str:
    """A bundle without its comments, which may be in any language."""
    return "".join(f"{certificate}\n" for certificate in certificates_in(pem))


def _shown(headers: tuple[str, ...]) -> list[str]:
    """Names of headers as people write them: `X-Remote-User`."""
    return ["-".join(part.capitalize() for part in name.split("-")) for name in headers]


def joined(there: dict[str, str], ours: dict[str, str]) -> dict[str, str]:
    """Ours over what is there, but for bundles: authorities that are there stay."""
    result = {**there, **ours}
    for name in _BUNDLES:
        before, own = there.get(name, ""), ours.get(name, "")
        if before and own:
            known = fingerprints(own.encode()) <= fingerprints(before.encode())
            result[name] = before if known else f"{before.rstrip()}\n{own}"
    return result
