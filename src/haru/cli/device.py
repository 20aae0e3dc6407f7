"""Take one device out of service by a taint, or bring it back.

`haru device taint NODE/DEVICE KEY[=VALUE]:EFFECT` taints a device by a DeviceTaintRule, or updates the rule that it
created before, and lists the affected pods. The effect NoSchedule keeps new work away; NoExecute also evicts the pods
that use the device; None has no effect yet. `haru device untaint NODE/DEVICE KEY[=VALUE][:EFFECT]` deletes these
rules and lists the remaining taints. POOL/DEVICE and DRIVER/POOL/DEVICE name a device too. Exit status: 0 done, or
nothing to do; 1 no such taint to remove; 2 no such device, or bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from haru.cli.connection import add_connection_arguments, connect, told_as_usage
from haru.cli.main import UsageError
from haru.kube.meta import Obj
from haru.kube.node_taints import taint_text

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.engine.dra import DeviceId
    from haru.explain.tainting import ClaimUse, PodUse
    from haru.kube.kinds import Kind

_FIELD_MANAGER = "haru-device-taint"
_OUTCOMES = {
    "Evicted": "is evicted now",
    "EvictedLater": "is evicted at {at}",
    "EvictedOnceBound": "is evicted once it is bound to a node",
    "Tolerates": "stays: it tolerates the taint",
    "Stays": "stays",
    "Leaving": "is being deleted already",
}


@dataclass(slots=True)
class _Change:
    """What was done: Created, Updated, Unchanged, Deleted or NotFound; the rules it was about, and what it affects."""

    device: DeviceId
    action: str
    rules: list[Obj]
    claims: Sequence[ClaimUse] = ()
    parts_beside: Sequence[str] = ()
    remaining: list[tuple[Obj, str]] = field(default_factory=list)


@dataclass(slots=True)
class _World:
    """What the API server has of devices and their users."""

    slices: list[Obj]
    nodes: list[Obj]
    rules: list[Obj]
    claims: list[Obj]
    pods: list[Obj]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `haru device`."""
    add_connection_arguments(parser)
    parser.add_argument("action", choices=("taint", "untaint"), help="action")
    parser.add_argument("device", metavar="NODE/DEVICE", help="device, for example dgx-h100-0/gpu-3")
    parser.add_argument(
        "taint",
        metavar="TAINT",
        help="taint: KEY[=VALUE]:EFFECT; untaint: KEY[=VALUE][:EFFECT]; the effect is NoExecute, NoSchedule or None",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the change without making it; the server validates it"
    )
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="output format")


def run(options: argparse.Namespace) -> int:
    """Changes the taint and prints what that means."""
    from haru.explain.device_names import DeviceNameError
    from haru.explain.tainting import TaintTextError, parse_key, parse_taint

    try:
        # A bad taint is told before any cluster is asked.
        (parse_taint if options.action == "taint" else parse_key)(options.taint)
        change = asyncio.run(_with_client(options))
    except (DeviceNameError, TaintTextError) as error:
        raise UsageError(str(error)) from error
    if options.output == "json":
        print(json.dumps(_to_json(change, options.dry_run), indent=2))
    elif options.output == "yaml":
        from haru.kube.yaml import dump

        print(dump(_to_json(change, options.dry_run)), end="")
    else:
        print("\n".join(_to_text(change, options.dry_run)))
    return 1 if change.action == "NotFound" else 0


async def _with_client(options: argparse.Namespace) -> _Change:
    from haru.api.cluster_reader import know_server
    from haru.client.discovery import newest_kind

    async with connect(options, "haru-device") as client:
        with told_as_usage(client):
            await know_server(client)
            kind = await newest_kind(client, "resource.k8s.io", "devicetaintrules")
            if kind is None:
                raise UsageError(
                    f"{client.server or 'the server'} serves no DeviceTaintRule: turn on its feature gate "
                    "DRADeviceTaintRules and its API version resource.k8s.io/v1beta2"
                )
            world = await _read(client, kind)
            work = _taint if options.action == "taint" else _untaint
            return await work(client, kind, world, options)


async def _read(client: ApiClient, rule_kind: Kind) -> _World:
    from haru.kube.kinds import known_kind

    resource = "resource.k8s.io/v1"
    kinds = [known_kind(resource, "ResourceSlice"), known_kind("v1", "Node"), rule_kind]
    kinds += [known_kind(resource, "ResourceClaim"), known_kind("v1", "Pod")]
    listed = await asyncio.gather(*(client.list(kind) for kind in kinds))
    return _World(*(list(answer["items"]) for answer in listed))


async def _taint(client: ApiClient, kind: Kind, world: _World, options: argparse.Namespace) -> _Change:
    from haru.explain.device_names import find_device
    from haru.explain.tainting import affected, own_rules, parse_taint, parts_beside, rule_manifest

    device, taint = find_device(options.device, world.slices, world.nodes), parse_taint(options.taint)
    wanted = rule_manifest(device, taint, kind.api_version)
    known = own_rules(world.rules, device, taint.key)
    if not known:
        action = "Created"
        rule = await client.create(kind, wanted, dry_run=options.dry_run, field_manager=_FIELD_MANAGER)
    elif _plain(known[0]) == _plain(wanted):
        action, rule = "Unchanged", known[0]
    else:
        action, rule = "Updated", await _update(client, kind, known[0], wanted, options.dry_run)
    users = affected(device, rule["spec"]["taint"], world.claims, world.pods, datetime.now(UTC))
    return _Change(device, action, [_typed(rule, kind)], users, parts_beside(device, world.slices))


def _plain(rule: Obj) -> Obj:
    """The taint of a rule without what the server adds."""
    return {name: text for name, text in rule["spec"]["taint"].items() if name != "timeAdded"}


async def _update(client: ApiClient, kind: Kind, known: Obj, wanted: Obj, dry_run: bool) -> Obj:
    metadata = {name: known["metadata"][name] for name in ("uid", "resourceVersion")}
    patch = {"metadata": metadata, "spec": {"taint": {"value": None, **_plain(wanted)}}}
    return await client.patch(kind, known["metadata"]["name"], patch, field_manager=_FIELD_MANAGER, dry_run=dry_run)


async def _untaint(client: ApiClient, kind: Kind, world: _World, options: argparse.Namespace) -> _Change:
    from haru.explain.device_names import DeviceNameError, find_device, find_ruled_device
    from haru.explain.tainting import own_rules, parse_key, remaining_taints

    try:
        device = find_device(options.device, world.slices, world.nodes)
    except DeviceNameError:
        # A device that failed for good is published no longer; the rule about it is still there.
        ruled = find_ruled_device(options.device, world.rules)
        if ruled is None:
            raise
        device = ruled
    ours = own_rules(world.rules, device, *parse_key(options.taint))
    for rule in ours if not options.dry_run else ():
        await client.delete(kind, rule["metadata"]["name"], uid=rule["metadata"]["uid"])
    left = remaining_taints(device, world.slices, [rule for rule in world.rules if rule not in ours])
    action = "Deleted" if ours else "NotFound"
    return _Change(device, action, [_typed(rule, kind) for rule in ours], remaining=left)


def _typed(rule: Obj, kind: Kind) -> Obj:
    """The rule as kubectl shows it."""
    metadata = {name: value for name, value in rule["metadata"].items() if name != "managedFields"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, **rule, "metadata": metadata}


# -- how it is told ----------------------------------------------------------------------------------------------------


def _to_json(change: _Change, dry_run: bool) -> Obj:
    from haru.kube.names import format_time

    def pod_json(pod: PodUse) -> Obj:
        told = {name: value for name, value in asdict(pod).items() if value}
        return {**told, "at": format_time(pod.at)} if pod.at else told

    claims = [
        {"namespace": c.namespace, "name": c.name, "barred": c.barred, "pods": [pod_json(p) for p in c.pods]}
        for c in change.claims
    ]
    remaining = [{"taint": taint, **({"rule": rule} if rule else {})} for taint, rule in change.remaining]
    return {
        "apiVersion": "haru.dev/v1alpha1",
        "kind": "DeviceTaintChange",
        "action": change.action,
        "dryRun": dry_run,
        "device": change.device._asdict(),
        "rules": change.rules,
        "claims": claims,
        "partsBeside": list(change.parts_beside),
        "remaining": remaining,
    }


def _to_text(change: _Change, dry_run: bool) -> Iterator[str]:
    from haru.kube.names import format_time

    done = f"{change.action.lower()}{' (dry run)' if dry_run else ''}"
    if change.action == "NotFound":
        yield f"{change.device}: `haru device taint` put no such taint there"
    for rule in change.rules:
        name = rule["metadata"]["name"]
        yield f"{change.device}: {taint_text(rule['spec']['taint'])} by DeviceTaintRule {name}: {done}"
    if change.action in ("Deleted", "NotFound"):
        for taint, of_rule in change.remaining:
            by = f"DeviceTaintRule {of_rule}" if of_rule else f"its driver {change.device.driver}"
            yield f"remains {taint_text(taint)}, by {by}"
        if not change.remaining:
            yield "no taint remains on it"
        return
    for claim in change.claims:
        future = "does not get this device again" if claim.barred else "may get this device again"
        yield f"claim {claim.namespace}/{claim.name} uses it now and {future}"
        for pod in claim.pods:
            outcome = _OUTCOMES[pod.outcome].format(at=pod.at and format_time(pod.at))
            yield f"  pod {pod.namespace}/{pod.name} {outcome}"
    if not change.claims:
        yield "no claim uses it"
    if change.parts_beside:
        from haru.explain.changes import listed

        yield f"this taint is not on other parts of the same hardware: {listed(change.parts_beside)}"
