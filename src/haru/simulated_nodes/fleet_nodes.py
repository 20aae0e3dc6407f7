"""The nodes of a named fleet on any cluster: what they are made of, who owns a name, and their removal.

A fleet knows its Nodes by a label with its name, so that it neither acts for nor deletes a Node of anybody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from haru.client.api import ApiClient
from haru.drivers.simulated.objects import FLEET_LABEL
from haru.drivers.simulated.profiles import Profile
from haru.event_loop import bounded
from haru.kube import node_taints
from haru.kube.errors import suppress_status
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj, controller_of, key_of, labels_of, name_of, namespace_of, uid_of
from haru.kube.names import is_dns1123_subdomain, is_label_value, names_text
from haru.simulated_nodes.nodes import LEASE_NAMESPACE, LEASES, NODES

Nodes = list[tuple[Profile, str]]

DEFAULT_TAINT: Final = "simulated.haru.dev/node:NoSchedule"
PODS: Final = known_kind("v1", "Pod")
SLICES: Final = known_kind("resource.k8s.io/v1", "ResourceSlice")


class FleetError(ValueError):
    """A fleet that cannot be run as it was asked for; the text names the cause and the fix."""


@dataclass(frozen=True, slots=True)
class FoundNodes:
    """The nodes of a cluster as a fleet sees them before it starts."""

    foreign: tuple[str, ...]
    """Names that the fleet wants and that Nodes of others have."""
    surplus: tuple[Obj, ...]
    """Nodes of the fleet that it was not asked for this time."""


def selector_of(fleet: str) -> str:
    """Return the label selector of a fleet's Nodes."""
    return f"{FLEET_LABEL}={fleet}"


def fleet_nodes(fleet: str, profiles: Iterable[tuple[Profile, int]], prefix: str, labels: Mapping[str, str]) -> Nodes:
    """List (profile, node name) of a fleet: the names are PREFIX, the profile's name and a number.

    Raises FleetError for a name that no label can have, and for a prefix with which no Node's name begins.
    """
    for flag, text, complaints in (
        ("--name", fleet, is_label_value(fleet)),
        ("--name-prefix", prefix, is_dns1123_subdomain(f"{prefix}x")),
    ):
        if complaints:
            raise FleetError(f'{flag}: Invalid value: "{text}": {complaints[0]}')
    nodes = []
    for profile, count in profiles:
        own = replace(profile, labels={**profile.labels, **labels, FLEET_LABEL: fleet})
        nodes += [(own, f"{prefix}{profile.name}-{number}") for number in range(count)]
    return nodes


def parse_taint(text: str) -> Obj:
    """Read `KEY[=VALUE]:EFFECT` of the flag; raises FleetError."""
    try:
        return node_taints.parse_taint(text)
    except ValueError as error:
        raise FleetError(f"--taint: Invalid value: {error}") from error


def parse_label(text: str) -> tuple[str, str]:
    """Read `KEY=VALUE`; raises FleetError."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise FleetError(f'--node-label: Invalid value: "{text}": write KEY=VALUE')
    return key, value


def sort_nodes(fleet: str, stored: Iterable[Obj], wanted: Iterable[str]) -> FoundNodes:
    """Tell the fleet's own Nodes from those of others. Pure."""
    names, foreign, surplus = set(wanted), [], []
    for node in stored:
        own = labels_of(node).get(FLEET_LABEL) == fleet
        if own and name_of(node) not in names:
            surplus.append(node)
        elif not own and name_of(node) in names:
            foreign.append(name_of(node))
    return FoundNodes(tuple(sorted(foreign)), tuple(surplus))


async def prepare_fleet(client: ApiClient, fleet: str, wanted: Sequence[str], *, with_slices: bool) -> int:
    """Check the names and delete Nodes that the fleet no longer has; how many. Raises FleetError."""
    found = sort_nodes(fleet, (await client.list(NODES))["items"], wanted)
    if found.foreign:
        raise FleetError(
            f"Forbidden: these Nodes are not of the fleet {fleet}: {names_text(found.foreign)}; "
            "take another --name-prefix, or delete them yourself"
        )
    await remove_free_nodes(client, found.surplus, "--profile", with_slices=with_slices)
    return len(found.surplus)


async def delete_fleet(client: ApiClient, fleet: str, *, with_slices: bool) -> tuple[int, int]:
    """Delete a fleet's Nodes, Leases and slices, and the pods bound there; how many Nodes and pods.

    Nobody else would end these pods: they are deleted without grace.
    """
    nodes = (await client.list(NODES, label_selector=selector_of(fleet)))["items"]
    pods = await _bound_pods(client, {name_of(node) for node in nodes})
    await bounded(pods, lambda pod: _delete(client, PODS, pod, grace=0))
    await _remove_nodes(client, nodes, with_slices)
    return len(nodes), len(pods)


async def remove_free_nodes(client: ApiClient, nodes: Sequence[Obj], where: str, *, with_slices: bool = True) -> None:
    """Delete Nodes that `where`, a flag, leaves out, with what belongs to them.

    FleetError, and nothing is deleted, while pods are bound there; those that have ended, and those of a DaemonSet, go
    with the node.
    """
    bound: dict[str, list[str]] = {}
    for pod in await _bound_pods(client, {name_of(node) for node in nodes}):
        if not _goes_with_node(pod):
            bound.setdefault(pod["spec"]["nodeName"], []).append(key_of(pod))
    if bound:
        named = names_text([f"{node} ({names_text(sorted(pods))})" for node, pods in sorted(bound.items())])
        raise FleetError(
            f"{where}: Forbidden: pods are bound to nodes that it leaves out: {named}; "
            "delete these pods first, or keep these nodes"
        )
    await _remove_nodes(client, nodes, with_slices)


async def _remove_nodes(client: ApiClient, nodes: Sequence[Obj], with_slices: bool) -> None:
    """Delete Nodes with their ResourceSlices and Leases. Nodes last: after a crash the next call finds what is left."""
    if not nodes:
        return
    names = {name_of(node) for node in nodes}
    if with_slices:
        slices = [item for item in (await client.list(SLICES))["items"] if item["spec"].get("nodeName") in names]
        await bounded(slices, lambda item: _delete(client, SLICES, item))
    leases = [{"metadata": {"name": name, "namespace": LEASE_NAMESPACE}} for name in sorted(names)]
    await bounded(leases, lambda lease: _delete(client, LEASES, lease))
    await bounded(nodes, lambda node: _delete(client, NODES, node))


async def _bound_pods(client: ApiClient, names: set[str]) -> list[Obj]:
    if not names:
        return []
    pods = (await client.list(PODS, field_selector="spec.nodeName!="))["items"]
    return [pod for pod in pods if pod["spec"].get("nodeName") in names]


def _goes_with_node(pod: Obj) -> bool:
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return ended or (controller_of(pod) or {}).get("kind") == "DaemonSet"


async def _delete(client: ApiClient, kind: Kind, obj: Obj, grace: int | None = None) -> None:
    with suppress_status(404):
        await client.delete(kind, name_of(obj), namespace_of(obj), uid=uid_of(obj), grace_period_seconds=grace)
