"""What webhooks and policies are asked about a connection: its options as an object, with the operation CONNECT.

Source: `ConnectResource` and the kinds of options in core/v1 of 1.36, as behaviour.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, TypeVar

from haru.apiserver.object_store import ObjectStore
from haru.apiserver.proxy.kubelets.connections import ConnectRequest
from haru.apiserver.proxy.targets import ProxyRequest
from haru.apiserver.request.call import BuiltInAdmission, Call
from haru.apiserver.request.http import Request
from haru.kube.kinds import Kind, ways_of
from haru.kube.meta import Obj

_FLAGS = ("stdin", "stdout", "stderr", "tty")
Connection = TypeVar("Connection", ConnectRequest, ProxyRequest)


class Asks(Protocol):
    """Ask webhooks and policies; `haru.apiserver.admission.dynamic.registry` implements it."""

    async def connect(self, call: Call, options: Obj) -> Obj:
        """Return the options after mutation and validation. Raises StatusError for a refusal."""


async def admitted_connection(
    asks: Asks, objects: ObjectStore, admission: BuiltInAdmission, request: Request, wanted: Connection
) -> Connection:
    """Return the connection to go on with, which mutating webhooks may have changed. Raises StatusError."""
    resource = objects.served.find("", wanted.plural)
    assert resource is not None
    call = Call(objects, admission, request, resource, wanted.namespace, wanted.name, wanted.subresource, "connect")
    options = options_object(resource.kind, request, wanted)
    changed = await asks.connect(call, options)
    if changed == options:
        return wanted
    if wanted.subresource == "proxy":
        return replace(wanted, rest=str(changed.get("path") or ""))
    request.set_query(_parameters(changed))
    return wanted


def options_object(kind: Kind, request: Request, wanted: ConnectRequest | ProxyRequest) -> Obj:
    """Return the options of a connection to an object of `kind`: what the request's path and query say."""
    way = next(each for each in ways_of(kind) if each.name == wanted.subresource)
    found: Obj = {"kind": way.kind, "apiVersion": way.version}
    if wanted.subresource == "proxy":
        # A node's path is never empty: what lies behind `proxy` is.
        given = wanted.rest if request.path.endswith(wanted.rest) else ""
        return {**found, "path": given} if given else found
    if wanted.subresource == "portforward":
        ports = [int(port) for port in request.query.get("ports") or () if port.isascii() and port.isdigit()]
        return {**found, "ports": ports} if ports else found
    found |= {name: True for name in _FLAGS if request.flag(name)}
    if container := request.param("container"):
        found["container"] = container
    if wanted.subresource == "exec":
        found["command"] = list(request.query.get("command") or ()) or None
    return found


def _parameters(options: Obj) -> list[tuple[str, str]]:
    """The query that says what options say."""
    found = [(name, "true") for name in _FLAGS if options.get(name)]
    found += [("container", options["container"])] if options.get("container") else []
    for name in ("command", "ports"):
        found += [(name, str(each)) for each in options.get(name) or ()]
    return found
