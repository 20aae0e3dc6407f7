"""Which simulated nodes `haru up` starts with: those asked for, else those of the last start, else the default's.

The profiles are kept in the ConfigMap `haru-up` in kube-system, so that a snapshot has them too; one that came from a
file with its description. Nodes that are asked for no more go, with their ResourceSlices and Leases; nothing is changed
while pods are bound to one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, takewhile
from typing import Final

import orjson

from haru.client.api import ApiClient
from haru.drivers.simulated.catalogue import Catalogue
from haru.drivers.simulated.objects import FLEET_LABEL, PROFILE_LABEL
from haru.drivers.simulated.profiles import Profile, ProfileError, described_profile, load_profile
from haru.embedded.errors import OptionError
from haru.embedded.options import DEFAULT_PROFILES, UpOptions, parse_profiles
from haru.kube.errors import suppress_status
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, labels_of, name_of
from haru.simulated_nodes.fleet_nodes import FleetError, remove_free_nodes
from haru.simulated_nodes.nodes import NODES

Nodes = list[tuple[Profile, str]]

NAMESPACE: Final = "kube-system"
NAME: Final = "haru-up"
_KEY: Final = "profiles"

CONFIG_MAPS: Final = known_kind("v1", "ConfigMap")


def requested_nodes(options: UpOptions) -> Nodes | None:
    """The nodes that the options ask for, None if they leave it open; OptionError for a profile that is none."""
    if not options.simulated_nodes:
        if options.profiles:
            raise OptionError("--no-simulated-nodes: Forbidden with --profile, which names simulated nodes")
        return []
    if not options.profiles:
        return None
    try:
        return _nodes((load_profile(entry.profile), entry.count) for entry in options.profiles)
    except ProfileError as error:
        raise OptionError(f"--profile: {error}") from error


async def settle_nodes(client: ApiClient, requested: Nodes | None, where: str) -> tuple[Nodes, str]:
    """The nodes of this start, and what to say about them; those that are not wanted any more are deleted.

    `where` is the flag that asked for them. OptionError, and nothing is changed, while pods are bound to such nodes.
    """
    record, note = await _record(client), ""
    try:
        last = await _stored_nodes(client) if record is None else _remembered(record)
    except OptionError:
        if requested is None:
            raise
        last = None
    if requested is not None:
        nodes = requested
        await _drop(client, {name for _, name in last or ()}, {name for _, name in nodes}, where)
    elif last is not None:
        nodes, note = last, f"simulated nodes as at the last start: {_counted_text(last)}"
    else:
        nodes = _nodes((load_profile(entry.profile), entry.count) for entry in parse_profiles(DEFAULT_PROFILES))
    await _remember(client, record, nodes)
    return nodes, note


def _nodes(profiles: Iterable[tuple[Profile, int]]) -> Nodes:
    return [(profile, f"{profile.name}-{number}") for profile, count in profiles for number in range(count)]


def _counted(nodes: Nodes) -> list[tuple[Profile, int]]:
    grouped = groupby(nodes, key=lambda node: (node[0].name, node[0].source))
    return [(members[0][0], len(members)) for members in (list(group) for _, group in grouped)]


def _counted_text(nodes: Nodes) -> str:
    return ",".join(f"{profile.name}:{count}" for profile, count in _counted(nodes)) or "none"


# -- the record -------------------------------------------------------------------------------------------------------


async def _record(client: ApiClient) -> Obj | None:
    with suppress_status(404):
        return await client.get(CONFIG_MAPS, NAME, NAMESPACE)
    return None


def _remembered(record: Obj) -> Nodes:
    where = f"ConfigMap {NAMESPACE}/{NAME}"
    try:
        return nodes_described_by(orjson.loads((record.get("data") or {})[_KEY]), where)
    except (LookupError, TypeError, ValueError) as error:  # a ProfileError is a ValueError
        raise OptionError(
            f"{where}: the profiles of the last start cannot be read ({error}): say which with --profile"
        ) from error


def described_nodes(nodes: Nodes) -> list[Obj]:
    """The nodes as values: profiles by their names or descriptions, with counts."""
    return [
        {"name": profile.name, "count": count, **({"spec": profile.source} if profile.source else {})}
        for profile, count in _counted(nodes)
    ]


def nodes_described_by(entries: list[Obj], where: str) -> Nodes:
    """The nodes that `described_nodes` described; LookupError, TypeError or ValueError for anything else."""
    return _nodes((_profile(entry, where), int(entry["count"])) for entry in entries)


def _profile(entry: Obj, where: str) -> Profile:
    name, described = entry["name"], entry.get("spec")
    return described_profile(described, where, name) if described else load_profile(name)


async def _stored_nodes(client: ApiClient) -> Nodes | None:
    """The nodes of the last start where no record says them: those numbered from 0 on. None without any Node."""
    stored = (await client.list(NODES))["items"]
    if not stored:
        return None
    profiles = {name_of(node): profile for node in stored if (profile := _own_profile(node)) is not None}
    first = [profile for name, profile in sorted(profiles.items()) if name == f"{profile.name}-0"]
    numbered = (_nodes([(profile, len(stored))]) for profile in first)
    return [node for nodes in numbered for node in takewhile(lambda node: node[1] in profiles, nodes)]


def _own_profile(node: Obj) -> Profile | None:
    """The profile of a node that `haru up` simulates; None for a node of a fleet or a real one."""
    try:
        return None if FLEET_LABEL in labels_of(node) else Catalogue().profile_of(node)
    except ProfileError:
        return None


async def _remember(client: ApiClient, record: Obj | None, nodes: Nodes) -> None:
    data = {_KEY: orjson.dumps(described_nodes(nodes)).decode()}
    if record is None:
        await client.create(CONFIG_MAPS, {"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": data})
    elif record.get("data") != data:
        await client.update(CONFIG_MAPS, {**record, "data": data})


# -- nodes that go ----------------------------------------------------------------------------------------------------


async def _drop(client: ApiClient, known: set[str], wanted: set[str], where: str) -> None:
    """Delete the nodes of the last start that are not wanted; whoever took the name of one since keeps it."""
    if not known - wanted:
        return
    nodes = (await client.list(NODES))["items"]
    going = [node for node in nodes if name_of(node) in known - wanted and PROFILE_LABEL in labels_of(node)]
    try:
        await remove_free_nodes(client, going, where)
    except FleetError as error:
        raise OptionError(str(error)) from error
