"""What is particular to a few kinds and needs the server: addresses, requesters, what a client can not know.

The rest of what happens to an object between decoding and validation is pure, and lies in `haru.kube.strategy`.
The hooks change the object they are given in place: its top level, metadata and spec belong to the call.
Source: the registry strategies of each kind, as behaviour.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from haru.apiserver.encoding.objects import recent
from haru.apiserver.registry.ip_addresses import with_ip_addresses
from haru.apiserver.registry.services import create_service, update_service
from haru.apiserver.request.call import Call
from haru.kube.apparmor import take_over_annotations
from haru.kube.defaulting import apply_defaults
from haru.kube.meta import Obj
from haru.kube.warnings.pods import APPARMOR_ADVICE
from haru.storage import Delete, Put, Record

Complete = Callable[[Call, Obj], Awaitable[None]]
CompleteUpdate = Callable[[Call, Obj, Obj], Awaitable[None]]
WrittenWith = Callable[[Call, Obj | None, Obj | None], Awaitable[Sequence[Put | Delete]]]


@dataclass(frozen=True, slots=True)
class Strategy:
    """The hooks of one kind; `complete_update` is given the new and the old object."""

    complete_create: Complete | None = None
    complete_update: CompleteUpdate | None = None
    allocates: bool = False
    """Whether something is given out with a new object that no other one may have."""
    written_with: WrittenWith | None = None
    """What goes into the same transaction as an object, given its old and its new version, if there is one."""


async def _create_pod(call: Call, pod: Obj) -> None:
    """Profiles of AppArmor in annotations become fields."""
    for key in take_over_annotations(pod):
        call.request.warnings.append(f"metadata.annotations[{key}]: {APPARMOR_ADVICE}")


async def _update_pod(call: Call, new: Obj, old: Obj) -> None:
    """Removing the last scheduling gate takes back the condition that it caused."""
    if (old.get("spec") or {}).get("schedulingGates") and not (new.get("spec") or {}).get("schedulingGates"):
        status = dict(new.get("status") or {})
        status["conditions"] = [
            c
            for c in status.get("conditions") or []
            if not (c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated")
        ]
        new["status"] = status


async def _create_signing_request(call: Call, request: Obj) -> None:
    """A signing request carries who asked for it."""
    user = call.request.user
    spec = request.setdefault("spec", {})
    spec["username"], spec["groups"] = user.name, list(user.groups)
    for name in ("uid", "extra"):
        spec.pop(name, None)
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {k: list(v) for k, v in user.extra.items()}


async def _update_signing_request(call: Call, new: Obj, old: Obj) -> None:
    """Keep the spec of a signing request: an update cannot change it."""
    new["spec"] = old["spec"]


async def _create_secret(call: Call, secret: Obj) -> None:
    """A webhook may have written `stringData`."""
    apply_defaults(secret, call.resource.kind, call.objects.gates, own=True)


async def _update_secret(call: Call, new: Obj, old: Obj) -> None:
    if not new.get("type"):
        new["type"] = old.get("type")


_STRATEGIES: dict[tuple[str, str], Strategy] = {
    ("", "pods"): Strategy(_create_pod, _update_pod),
    ("", "services"): Strategy(create_service, update_service, allocates=True, written_with=with_ip_addresses),
    ("", "secrets"): Strategy(_create_secret, _update_secret),
    ("certificates.k8s.io", "certificatesigningrequests"): Strategy(_create_signing_request, _update_signing_request),
}
_PLAIN = Strategy()


async def written_with(call: Call, old: Record | None, new: Obj | None) -> Sequence[Put | Delete]:
    """What goes into the transaction of an object of the call's resource, given what it was and what it becomes."""
    hook = strategy_for(call.resource.kind.group, call.resource.kind.plural).written_with
    return () if hook is None else await hook(call, recent(old) if old is not None else None, new)


def strategy_for(group: str, plural: str) -> Strategy:
    """The strategy of a resource."""
    return _STRATEGIES.get((group, plural), _PLAIN)
