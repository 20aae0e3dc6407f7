"""A namespace: its quotas, what runs and waits in it, the devices that it holds, and its latest events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from haru.dashboard.views import tables
from haru.dashboard.views.queue import created_at, is_waiting
from haru.dashboard.views.tables import Column, Table
from haru.dashboard.views.timeline import Entry, timeline
from haru.dashboard.views.usage import Span
from haru.dashboard.views.workloads import Workload, workload
from haru.engine import Snapshot
from haru.engine.state import PodInfo, namespaced_name
from haru.kube.meta import Obj, allocation_of
from haru.kube.quantity import parse_quantity

QUOTA_COLUMNS = (
    Column("quota", "Quota"),
    Column("resource", "Resource"),
    Column("used", "Used", numeric=True),
    Column("hard", "Hard", numeric=True),
    Column("share", "Share", numeric=True),
)
WORKLOAD_COLUMNS = (
    Column("workload", "Workload"),
    Column("running", "On nodes", numeric=True),
    Column("waiting", "Waiting", numeric=True),
    Column("devices", "Devices", numeric=True),
    Column("priority", "Priority", numeric=True),
    Column("since", "Since"),
    Column("hours", "Card-hours, 24 h", numeric=True),
)
CLAIM_COLUMNS = (
    Column("claim", "Claim"),
    Column("state", "State"),
    Column("devices", "Devices"),
    Column("since", "Since"),
)
_MOST_ENTRIES = 60


@dataclass(frozen=True, slots=True)
class NamespacePage:
    """What a page tells of a namespace."""

    name: str
    quotas: Table
    workloads: Table
    claims: Table
    entries: tuple[Entry, ...]


def namespace_page(
    snapshot: Snapshot, name: str, events: Iterable[Obj], spans: Iterable[Span], query: Mapping[str, str]
) -> NamespacePage | None:
    """Make the page of a namespace; `spans` are of the last day. None if there is no such namespace."""
    pods = [pod for pod in snapshot.pods.values() if pod.key.namespace == name]
    claims = [claim for path, claim in snapshot.claims.items() if path.partition("/")[0] == name]
    if not pods and not claims and name not in snapshot.objects("Namespace"):
        return None
    own = [event for event in events if event["metadata"].get("namespace") == name]
    return NamespacePage(
        name,
        tables.table("quotas", "Quotas", QUOTA_COLUMNS, _quotas(snapshot, name), query),
        tables.table("work", "Workloads", WORKLOAD_COLUMNS, _workloads(snapshot, pods, _hours(spans, name)), query),
        tables.table("claims", "Claims", CLAIM_COLUMNS, map(_claim, sorted(claims, key=namespaced_name)), query),
        timeline((), own)[:_MOST_ENTRIES],
    )


def _quotas(snapshot: Snapshot, name: str) -> Iterator[tuple[tables.Cell, ...]]:
    for path, quota in snapshot.objects("ResourceQuota").items():
        if path.partition("/")[0] != name:
            continue
        status = quota.get("status") or {}
        hard = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}
        for resource, most in sorted(hard.items()):
            used = (status.get("used") or {}).get(resource, "0")
            both = parse_quantity(used).milli(), parse_quantity(most).milli()
            share = 100.0 * both[0] / both[1] if both[1] else None
            yield (
                tables.text(path.partition("/")[2]),
                tables.text(resource),
                tables.number(both[0] / 1000, str(used)),
                tables.number(both[1] / 1000, str(most)),
                tables.number(share, "" if share is None else f"{share:.0f} %"),
            )


def _workloads(
    snapshot: Snapshot, pods: Iterable[PodInfo], hours: Mapping[Workload, float]
) -> Iterator[tuple[tables.Cell, ...]]:
    members: dict[Workload, list[PodInfo]] = {}
    for pod in pods:
        if not pod.terminal:
            members.setdefault(workload(pod), []).append(pod)
    for work in sorted(members.keys() | hours.keys()):
        own = members.get(work, [])
        paths = {path for pod in own if pod.node for path in pod.claim_paths}
        yield (
            tables.work(work),
            tables.number(sum(bool(pod.node) for pod in own)),
            tables.number(sum(map(is_waiting, own))),
            tables.number(sum(len(_results(snapshot.claims.get(path))) for path in paths)),
            tables.number(max((pod.priority for pod in own), default=None)),
            tables.time(min(map(created_at, own), default="")),
            tables.number(hours.get(work), f"{hours[work]:.1f}" if work in hours else ""),
        )


def _hours(spans: Iterable[Span], name: str) -> Mapping[Workload, float]:
    """Card-hours by workload."""
    found: Counter[Workload] = Counter()
    for span in spans:
        for use, amount in span.amounts.items():
            if use.workload is not None and use.workload.namespace == name:
                found[use.workload] += amount / 3_600_000  # type: ignore[assignment]
    return found


def _results(claim: Obj | None) -> list[Obj]:
    allocation = allocation_of(claim) or {}
    found: list[Obj] = (allocation.get("devices") or {}).get("results") or []
    return found


def _claim(claim: Obj) -> tuple[tables.Cell, ...]:
    results, metadata = _results(claim), claim["metadata"]
    users = len((claim.get("status") or {}).get("reservedFor") or ())
    # The words of kubectl get resourceclaims; what is allocated and reserved for nobody is held for nothing.
    state = "pending" if not results else "allocated,reserved" if users else "allocated"
    address = f"/workload/{metadata.get('namespace')}/resourceclaim/{metadata['name']}"
    devices = [(each["device"], f"/device/{each['driver']}/{each['pool']}/{each['device']}") for each in results]
    return (
        tables.link(str(metadata["name"]), address),
        tables.badge(state, {"pending": "later", "allocated": "bad"}.get(state, "")),
        tables.links(devices),
        tables.time(str(metadata.get("creationTimestamp") or "")),
    )
