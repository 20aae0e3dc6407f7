"""Keep the default FlowSchemas and PriorityLevelConfigurations as they should be: at a start, and once a minute.

One that is missing is created. The mandatory ones always get their spec back, the suggested ones while nobody has
changed them or their annotation gives them to the server. What the annotation gives to the server, though it is no
default of this version, is deleted. Source: the ensurer of API Priority and Fairness, as behaviour (KEP 1040).
"""

from __future__ import annotations

from haru.apiserver.encoding.objects import shared
from haru.apiserver.registry.loopback import Loopback
from haru.kube.errors import suppress_status
from haru.kube.flow_control_defaults import AUTOUPDATE, MANAGER, MANDATORY, flow_control_objects
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj

_SCHEMAS = known_kind("flowcontrol.apiserver.k8s.io/v1", "FlowSchema")
_LEVELS = known_kind("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration")
_BOOLEANS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True)
_BOOLEANS |= dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False)


async def ensure_flow_control(loopback: Loopback) -> None:
    """Create, revise and delete, where that is wanted."""
    served = loopback.objects.served
    kinds = {kind.kind: kind for kind in (_SCHEMAS, _LEVELS) if served.find(kind.group, kind.plural) is not None}
    wanted = [obj for obj in flow_control_objects() if obj["kind"] in kinds]
    for obj in wanted:
        if not await loopback.ensure(obj, MANAGER):
            await _revise(loopback, obj)
    names = {(obj["kind"], obj["metadata"]["name"]) for obj in wanted}
    for kind in kinds.values():
        for obj in await loopback.objects.peek_all(kind.group, kind.plural):
            if (kind.kind, obj["metadata"]["name"]) not in names and _is_given(obj):
                with suppress_status(404):
                    await loopback.delete({"apiVersion": kind.api_version, "kind": kind.kind, **obj})


async def _revise(loopback: Loopback, wanted: Obj) -> None:
    """Give a default its spec and its annotation, as far as it is the server's; what is so already is not written."""
    objects = loopback.objects
    resource = objects.served.of_kind(wanted["apiVersion"], wanted["kind"])
    record = await objects.record(resource, "", wanted["metadata"]["name"])
    if record is None or revised(live := shared(record), wanted) == live:
        return

    async def make(live: Obj) -> Obj:
        return revised(live, wanted)

    with suppress_status(404):  # gone meanwhile
        await loopback.update(wanted, make, manager=MANAGER)


def revised(live: Obj, wanted: Obj) -> Obj:
    """The default as it should be: its spec is the server's, unless a user has changed it."""
    metadata, given = live["metadata"], _is_given(live)
    if wanted["metadata"]["name"] in MANDATORY:
        given = True
    elif given is None:
        given = metadata.get("generation") == 1
    annotations = metadata.get("annotations") or {}
    if _BOOLEANS.get(annotations.get(AUTOUPDATE, "")) is not given:
        live = {**live, "metadata": {**metadata, "annotations": {**annotations, AUTOUPDATE: str(given).lower()}}}
    if not given:
        return live
    spec = wanted["spec"]
    # The shares of the level of those who are exempt may be chosen.
    kept = {"exempt": live["spec"]["exempt"]} if "exempt" in spec and live["spec"].get("exempt") else {}
    return {**live, "spec": {**spec, **kept}}


def _is_given(obj: Obj) -> bool | None:
    """Whether its annotation gives an object to the server; None if it does not say."""
    return _BOOLEANS.get((obj["metadata"].get("annotations") or {}).get(AUTOUPDATE, ""))
