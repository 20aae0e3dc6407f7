"""From the chosen devices to `status.allocation`: results, configuration in its order, and the node selector.

Class configuration comes first, once per class, naming the requests that it is for; then the claim's own, in the order
of the spec, where it applies to what was chosen (an entry that names several requests is written once).
Source: KEP-4381; later entries take precedence over earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from haru.engine.dra.allocator.node_devices import NodeDevices
from haru.engine.dra.allocator.search_state import Pick
from haru.engine.dra.errors import AllocationError
from haru.engine.dra.model.claims import Claim, SubRequest
from haru.engine.dra.model.model import Obj
from haru.engine.dra.placement import result_selector


def build(
    site: NodeDevices, claim: Claim, picks: Sequence[Pick], asks: Sequence[SubRequest], new_share_id: Callable[[], str]
) -> Obj:
    """The AllocationResult of one claim. `asks` holds the chosen alternative of each request, in order."""
    devices: Obj = {"results": [_result(site, pick, new_share_id) for pick in picks]}
    config = _class_config(asks) + _claim_config(claim, asks)
    if config:
        devices["config"] = config
    allocation: Obj = {"devices": devices}
    try:
        selector = result_selector(((site.slice_of(p.position), site.devices[p.position]) for p in picks), site.node)
    except AllocationError as error:
        name = claim.name.rpartition("/")[2]
        raise AllocationError(f"create NodeSelector for claim {name}: {error}") from error
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _result(site: NodeDevices, pick: Pick, new_share_id: Callable[[], str]) -> Obj:
    ask, device = pick.plan.ask, site.devices[pick.position]
    identity = site.device_id(pick.position)
    result: Obj = {
        "request": ask.result_name,
        "driver": identity.driver,
        "pool": identity.pool,
        "device": identity.device,
    }
    if ask.admin:
        result["adminAccess"] = True
    if ask.raw_tolerations:
        result["tolerations"] = list(ask.raw_tolerations)
    if device.binding is not None and site.features.DeviceBindingAndStatus:
        if device.binding.conditions:
            result["bindingConditions"] = list(device.binding.conditions)
        if device.binding.failure_conditions:
            result["bindingFailureConditions"] = list(device.binding.failure_conditions)
    if pick.consumed is not None:
        result["shareID"] = new_share_id()
        names = (name for name, _ in device.shape.capacity)
        consumed = {name: text for name, (_, text) in zip(names, pick.consumed, strict=True)}
        if consumed:
            result["consumedCapacity"] = consumed
    return result


def _class_config(asks: Sequence[SubRequest]) -> list[Obj]:
    entries: list[Obj] = []
    of_class: dict[str, list[str]] = {}
    for ask in asks:
        if ask.device_class is None:
            continue
        requests = of_class.get(ask.class_name)
        if requests is None:
            requests = of_class[ask.class_name] = []
            entries.extend({"source": "FromClass", "requests": requests, **c} for c in ask.device_class.config)
        requests.append(ask.result_name)
    return [{**entry, "requests": list(entry["requests"])} for entry in entries]


def _claim_config(claim: Claim, asks: Sequence[SubRequest]) -> list[Obj]:
    known = {request.name for request in claim.requests} | {ask.result_name for ask in asks}
    return [
        {"source": "FromClaim", **config}
        for config in claim.config
        if not config.get("requests") or known & set(config["requests"])
    ]
