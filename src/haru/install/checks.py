"""What stands against an installation, asked before anything is written: version, groups, rights, other schedulers.

Source: KEP-4671, KEP-4381 for what is served since when; SelfSubjectAccessReview, dry-run server-side apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from haru.client.access_reviews import may
from haru.client.api import ApiClient
from haru.client.discovery import adapt_to_server
from haru.client.server_version import ServerVersion
from haru.install.manifests import SCHEDULERS, identity, kind_of, reference
from haru.kube.errors import StatusError, qualified
from haru.kube.gate_table import NEWEST, OLDEST_SERVER
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj

MANAGER = "haru-install"
FIRST_WITH_GROUPS = 36
NEWEST_SERVER = NEWEST + 1
"""What was published of 1.37 is known, too."""
_LEASE = known_kind("coordination.k8s.io/v1", "Lease")
_POD = known_kind("v1", "Pod")
_OF_KUBE_SCHEDULER = "kube-system", "kube-scheduler"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. An `error` stands against the installation."""

    text: str
    level: str = "ok"

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"


async def check(
    client: ApiClient, mode: str, objects: Sequence[Obj], now: datetime, *, remove: bool = False
) -> list[Finding]:
    """All findings about a cluster. Raises OSError, and StatusError where it does not say what it is."""
    version = await adapt_to_server(client)
    found = [] if remove else [*check_version(version), *check_served(version)]
    missing = await missing_rights(client, objects, "delete" if remove else "patch")
    found += [
        Finding(f"you may not {text}: ask for this right, or install as another user", "error") for text in missing
    ]
    if remove:
        return found
    if not missing:
        found += await _refused(client, objects)
    if mode in SCHEDULERS:
        lease = await _read(client, _LEASE, *_OF_KUBE_SCHEDULER)
        found += check_leader(mode, lease, now)
        found += check_schedulers(await _scheduler_pods(client))
    return found


def check_version(version: ServerVersion) -> Iterator[Finding]:
    """Whether this version of Kubernetes is one that Haru was written for."""
    if not version.minor:
        yield Finding("the server does not tell its version", "warning")
    elif version.minor < OLDEST_SERVER:
        yield Finding(f"Kubernetes 1.{version.minor} is older than 1.{OLDEST_SERVER}: upgrade the cluster", "error")
    elif version.minor > NEWEST_SERVER:
        yield Finding(
            f"Kubernetes 1.{version.minor} is newer than 1.{NEWEST_SERVER}, the newest that Haru knows", "warning"
        )
    else:
        yield Finding(f"Kubernetes 1.{version.minor}")


def check_served(version: ServerVersion) -> Iterator[Finding]:
    """What the served groups allow: claims, gangs, taints of devices."""
    for api_version, name, lost in (
        ("resource.k8s.io/v1", "ResourceClaim", "claims are not scheduled"),
        ("scheduling.k8s.io/v1alpha2", "PodGroup", "no gangs by PodGroups of scheduling.k8s.io"),
        ("resource.k8s.io/v1beta2", "DeviceTaintRule", "device taints only in ResourceSlices"),
    ):
        kind = known_kind(api_version, name)
        served = version.kind_for(kind)
        if version.serves(kind):
            yield Finding(f"{name} is served as {served.api_version}")
        else:
            fix = f"turn on {kind.group} with --runtime-config"
            if kind.group == "scheduling.k8s.io" and 0 < version.minor < FIRST_WITH_GROUPS:
                fix = f"they come with 1.{FIRST_WITH_GROUPS}"
            yield Finding(f"{name} is not served: {lost}; {fix}", "warning")


async def missing_rights(client: ApiClient, objects: Sequence[Obj], verb: str) -> list[str]:
    """What the user may not do of `verb`, and of `create` where that writes."""
    needed: dict[tuple[str, str, str, str], None] = {}
    for obj in objects:
        kind = kind_of(obj)
        for each in (verb,) if verb == "delete" else (verb, "create"):
            needed[each, kind.group, kind.plural, obj["metadata"].get("namespace", "")] = None
    missing = []
    for each, group, plural, namespace in needed:
        if not await may(client, each, group, plural, namespace):
            where = f" in namespace {namespace}" if namespace else ""
            missing.append(f"{each} {qualified(plural, group)}{where}")
    return missing


async def _refused(client: ApiClient, objects: Sequence[Obj]) -> list[Finding]:
    """What the server would refuse of the objects; in a namespace that is not there yet nothing can be tried."""
    there = {"", "kube-system"}
    for obj in objects:
        if obj["kind"] == "Namespace" and await _read(client, kind_of(obj), "", obj["metadata"]["name"]):
            there.add(obj["metadata"]["name"])
    found = []
    for obj in objects:
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        if namespace not in there:
            continue
        try:
            await client.patch(
                kind_of(obj), metadata["name"], obj, namespace, "apply", field_manager=MANAGER, force=True, dry_run=True
            )
        except StatusError as error:
            found.append(Finding(f"{reference(obj)}: {error.message}", "error"))
    return found


def check_leader(mode: str, lease: Mapping[str, Any] | None, now: datetime) -> Iterator[Finding]:
    """Whether a kube-scheduler leads; `lease` is that of kube-scheduler."""
    spec = (lease or {}).get("spec") or {}
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        return
    age = (now - datetime.fromisoformat(str(renewed).replace("Z", "+00:00"))).total_seconds()
    if age > float(spec.get("leaseDurationSeconds") or 15):
        return
    if mode == "default-scheduler":
        yield Finding(
            f"{holder} leads as kube-scheduler: Haru waits until it is stopped; move "
            "/etc/kubernetes/manifests/kube-scheduler.yaml away on every control plane node",
            "warning",
        )
    else:
        yield Finding(
            f"{holder} leads as kube-scheduler: keep its pods away from the nodes or device classes of Haru's, "
            "or devices may be allocated twice",
            "warning",
        )


def check_schedulers(pods: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Which pods look like other schedulers."""
    for pod in pods:
        metadata = pod["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        yield Finding(f"pod {name} runs another scheduler: no two may serve the same schedulerName", "warning")


async def _scheduler_pods(client: ApiClient) -> list[Obj]:
    try:
        found = await client.list(_POD, "", label_selector="component=kube-scheduler")
    except StatusError:
        return []
    return [pod for pod in found["items"] if (pod.get("status") or {}).get("phase") == "Running"]


async def _read(client: ApiClient, kind: Any, namespace: str, name: str) -> Obj | None:
    try:
        return await client.get(kind, name, namespace)
    except StatusError:
        return None


def left_over(old: Sequence[Obj], new: Sequence[Obj]) -> list[Obj]:
    """The objects of `old` that are not among `new`."""
    kept = {identity(obj) for obj in new}
    return [obj for obj in old if identity(obj) not in kept]
