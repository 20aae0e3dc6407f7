"""EndpointSlices of a Service: what they should say, and the fewest writes that make them say it.

Endpoints with the same ports share slices of at most a hundred. What stays keeps its slice, so that one pod more or
less rewrites one slice and not all. A Service without pods has one slice that says so.
Source: KEP-752 (EndpointSlice API), as behaviour; how slices are filled is our own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from haru.controllers.service_pods import (
    Port,
    address_of,
    conditions_of,
    families_of,
    hostname_of,
    may_serve,
    ports_of,
    reference_to,
)
from haru.kube.meta import Obj, node_of

MOST = 100
"""Endpoints of a slice (kube-controller-manager's `--max-endpoints-per-slice`)."""
_NEAR = ("PreferClose", "PreferSameZone", "PreferSameNode")

Group = tuple[str, tuple[Port, ...]]
"""What the endpoints of a slice have in common: the kind of their addresses, and their ports."""


@dataclass(slots=True)
class Plan:
    """Slices to be made (group, endpoints), changed (slice, group, endpoints), removed, and left as they are."""

    create: list[tuple[Group, list[Obj]]] = field(default_factory=list)
    change: list[tuple[Obj, Group, list[Obj]]] = field(default_factory=list)
    remove: list[Obj] = field(default_factory=list)
    keep: list[Obj] = field(default_factory=list)


def wanted_of(service: Obj, pods: Iterable[Obj], zones: Mapping[str, str]) -> dict[Group, list[Obj]]:
    """The endpoints of a Service by what they have in common; `zones` of nodes by their names."""
    found: dict[Group, list[Obj]] = {}
    for pod in pods:
        if not may_serve(pod, terminating=True):
            continue
        ports = ports_of(service, pod)
        for family in families_of(service):
            address = address_of(pod, family)
            if address:
                found.setdefault((family, ports), []).append(_endpoint(service, pod, address, zones))
    for family in families_of(service):
        if not any(kind == family for kind, _ in found):
            found[family, ()] = []
    return found


def _endpoint(service: Obj, pod: Obj, address: str, zones: Mapping[str, str]) -> Obj:
    node = node_of(pod)
    zone = zones.get(node, "")
    conditions = conditions_of(service, pod)
    made: Obj = {"addresses": [address], "conditions": conditions, "targetRef": reference_to(pod)}
    hostname = hostname_of(service, pod)
    if hostname:
        made["hostname"] = hostname
    if node:
        made["nodeName"] = node
    if zone:
        made["zone"] = zone
    near = (service.get("spec") or {}).get("trafficDistribution")
    if near in _NEAR and zone and conditions["ready"]:
        made["hints"] = {"forZones": [{"name": zone}]}
        if near == "PreferSameNode":
            made["hints"]["forNodes"] = [{"name": node}]
    return made


def plan(existing: Collection[Obj], wanted: Mapping[Group, Sequence[Obj]]) -> Plan:
    """How the slices that are there become those that are wanted."""
    found = Plan()
    left = list(existing)
    missing: list[tuple[Group, list[Obj]]] = []
    for group, endpoints in wanted.items():
        own = [each for each in left if group_of(each) == group]
        left = [each for each in left if group_of(each) != group]
        missing += [(group, part) for part in _fill(found, group, own, endpoints)]
    # What is left has ports that nobody has any more: it may as well tell of others.
    for group, endpoints in missing:
        spare = next((each for each in left if each["addressType"] == group[0]), None)
        if spare is None:
            found.create.append((group, endpoints))
        else:
            left.remove(spare)
            found.change.append((spare, group, endpoints))
    found.remove += left
    return found


def _fill(found: Plan, group: Group, own: Sequence[Obj], endpoints: Sequence[Obj]) -> list[list[Obj]]:
    """Put endpoints into the slices that they were in, and others where there is room; those that found none."""
    new = {_identity(endpoint): endpoint for endpoint in endpoints}
    kept: list[tuple[Obj, list[Obj]]] = []
    for each in own:
        known = [_identity(endpoint) for endpoint in each.get("endpoints") or ()]
        kept.append((each, [new.pop(identity) for identity in known if identity in new]))
    rest, nobody = list(new.values()), not endpoints
    # Those that change anyway take in newcomers first.
    for each, staying in sorted(kept, key=lambda one: one[1] == (one[0].get("endpoints") or [])):
        room = MOST - len(staying)
        staying += rest[:room]
        del rest[:room]
        if not staying and not nobody:
            found.remove.append(each)
            continue
        nobody = False  # one is enough to say so
        if staying == (each.get("endpoints") or []):
            found.keep.append(each)
        else:
            found.change.append((each, group, staying))
    if nobody:
        return [[]]
    return [rest[start : start + MOST] for start in range(0, len(rest), MOST)]


def group_of(endpoint_slice: Obj) -> Group:
    """What the endpoints of a slice have in common."""
    ports = [
        Port(
            port.get("name") or "", port.get("port") or 0, port.get("protocol") or "TCP", port.get("appProtocol") or ""
        )
        for port in endpoint_slice.get("ports") or ()
    ]
    return endpoint_slice["addressType"], tuple(sorted(ports))


def _identity(endpoint: Obj) -> tuple[str, str]:
    return (endpoint.get("targetRef") or {}).get("uid") or "", (endpoint.get("addresses") or [""])[0]
