"""The names of many objects in a command, in words that stay short: a label selector, or a question to the server.

A selector is used only where it selects these objects and no others of those that are there.
Source: kubectl (`-l`, `--field-selector`, `-o jsonpath`); `kubectl patch` takes no selector, so names are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from shlex import quote

from haru.engine import Snapshot
from haru.engine.state import PodInfo
from haru.gangs import as_written

_MOST_NAMES = 8
_OF_JOB = "batch.kubernetes.io/job-name"


def named(snapshot: Snapshot, kind: str, namespace: str, names: Sequence[str]) -> str:
    """Return what follows the resource in a command of kubectl that takes selectors."""
    return _selector(snapshot, kind, namespace, names) or _asked(snapshot, kind, namespace, names) or " ".join(names)


def addressed(snapshot: Snapshot, kind: str, namespace: str, resource: str, names: Sequence[str]) -> str:
    """Return the resource and the names of objects for a command of kubectl that takes no selectors."""
    selector = _selector(snapshot, kind, namespace, names)
    if selector:
        return f"$(kubectl get {resource} {selector}{f' -n {namespace}' if namespace else ''} -o name)"
    return f"{resource} {_asked(snapshot, kind, namespace, names) or ' '.join(names)}"


def _selector(snapshot: Snapshot, kind: str, namespace: str, names: Sequence[str]) -> str:
    """Labels, and the phase where need be, that only these have; nothing if there are none, or names are few."""
    if len(names) <= _MOST_NAMES or kind not in ("Pod", "Node"):
        return ""
    if kind == "Node":
        found = _labels({name: snapshot.nodes[name].labels for name in snapshot.node_names}, names)
        return f"-l {quote(found)}" if found else ""
    pods = _pods_of(snapshot, namespace)
    found = _labels({name: pod.labels for name, pod in pods.items()}, names)
    if found:
        return f"-l {quote(found)}"
    phases = {str(pods[name].status.get("phase") or "Pending") for name in names if name in pods}
    [phase] = phases if len(phases) == 1 else [""]
    alike = {name: pod.labels for name, pod in pods.items() if pod.status.get("phase", "Pending") == phase}
    found = _labels(alike, names) if phase else ""
    return f"-l {quote(found)} --field-selector=status.phase={phase}" if found else ""


def _pods_of(snapshot: Snapshot, namespace: str) -> dict[str, PodInfo]:
    return {pod.key.name: pod for pod in snapshot.pods.values() if pod.key.namespace == namespace}


def _labels(every: Mapping[str, Mapping[str, str]], names: Collection[str]) -> str:
    """The shortest selector of labels that these have and no others; nothing if they are not told apart by labels."""
    chosen = set(names)
    if not chosen <= every.keys():
        return ""
    common = set.intersection(*(set(every[name].items()) for name in chosen))
    others = [labels.items() for name, labels in every.items() if name not in chosen]
    telling = sorted((key != _OF_JOB, len(key) + len(value), key, value) for key, value in common)
    labels = [(key, value) for *_, key, value in telling]
    for label in labels:
        if not any(label in other for other in others):
            return "=".join(label)
    if not labels or any(all(label in other for label in labels) for other in others):
        return ""
    for label in reversed(list(labels)):
        fewer = [each for each in labels if each != label]
        if fewer and not any(all(each in other for each in fewer) for other in others):
            labels = fewer
    return ",".join("=".join(label) for label in labels)


def _asked(snapshot: Snapshot, kind: str, namespace: str, names: Sequence[str]) -> str:
    """A question for the names: pods of a PodGroup, or the claims that were made for such pods."""
    if len(names) <= _MOST_NAMES or kind not in ("Pod", "ResourceClaim"):
        return ""
    pods = _pods_of(snapshot, namespace)
    users = names if kind == "Pod" else [name for name, pod in pods.items() if set(_claims(pod)) & set(names)]
    entries = {entry for name in users for entry, claim in _entries(pods.get(name)) if claim in set(names)}
    made = sorted(claim for name in users for claim in _claims(pods[name], entries)) if kind != "Pod" else []
    if kind != "Pod" and made != sorted(names):
        return ""
    [entry] = entries if len(entries) == 1 else [""]
    which = f'?(@.name=="{entry}")' if entry else "*"
    what = "metadata.name" if kind == "Pod" else f"status.resourceClaimStatuses[{which}].resourceClaimName"
    selector, place = _selector(snapshot, "Pod", namespace, users), f" -n {namespace}"
    if selector:
        return f"$(kubectl get pod {selector}{place} -o jsonpath={quote(f'{{.items[*].{what}}}')})"
    groups = {pod.group for name in users if (pod := pods.get(name)) is not None}
    group = next(iter(groups)) if len(groups) == 1 else None
    if group is None or {name for name, pod in pods.items() if _written_group(pod) == group.name} != set(users):
        return ""
    member = f'?(@.spec.schedulingGroup.podGroupName=="{group.name}")'
    return f"$(kubectl get pod{place} -o jsonpath={quote(f'{{.items[{member}].{what}}}')})"


def _written_group(pod: PodInfo) -> str:
    """The PodGroup that a pod names itself, not by what another project writes."""
    return str((as_written(pod.obj)["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")


def _entries(pod: PodInfo | None) -> Iterable[tuple[str, str]]:
    statuses = pod.status.get("resourceClaimStatuses") or () if pod is not None else ()
    return [(str(entry.get("name")), str(entry.get("resourceClaimName"))) for entry in statuses]


def _claims(pod: PodInfo, entries: Collection[str] | None = None) -> list[str]:
    """The claims that were made for a pod, of these entries of its."""
    return [claim for entry, claim in _entries(pod) if entries is None or entry in entries]
