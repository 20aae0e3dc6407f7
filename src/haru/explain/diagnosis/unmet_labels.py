"""What pods ask of the labels of nodes and no node gives: labels, topology keys, one domain for pinned members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from haru.engine import Reason, Snapshot
from haru.engine.state import PodInfo
from haru.explain.changes import listed
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.kube.meta import Obj
from haru.kube.names import counted

HOSTNAME = "kubernetes.io/hostname"
_MOST_VALUES = 4
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LabelValues = Mapping[str, Counter[str]]
Pair = tuple[str, str]


def label_values(snapshot: Snapshot) -> LabelValues:
    """Return the labels of all nodes: on how many nodes each has which value."""
    found: dict[str, Counter[str]] = {}
    for name in snapshot.node_names:
        for key, value in snapshot.nodes[name].labels.items():
            found.setdefault(key, Counter())[value] += 1
    return found


def unmet_labels(snapshot: Snapshot, work: WorkloadUnit) -> tuple[Reason, ...]:
    """Return why no node can take the pods, whatever else is free: what they ask of labels."""
    pods, group = work.pending(snapshot), work.pod_group(snapshot)
    selectors = {pairs: pod for pod in pods if (pairs := node_selector(pod))}
    affinities = [terms for pod in pods if (terms := _affinity_terms(pod))]
    keys = {key for pod in pods for key in _pod_topology_keys(pod)} | set(group_topology_keys(group))
    if not (selectors or affinities or keys) or not snapshot.node_names:
        return ()
    values = label_values(snapshot)
    found = [reason for pairs in selectors for reason in _missing(snapshot, pairs, values)]
    found += [reason for terms in affinities for reason in _terms(terms, values)]
    found += [_missing_key(key, values) for key in sorted(keys) if key not in values]
    found += [_pinned(key, count) for key, count in pinned_domains(snapshot, pods, group).items() if len(count) > 1]
    return tuple({reason.message: reason for reason in found}.values())


def node_selector(pod: PodInfo) -> tuple[Pair, ...]:
    """Return the pairs of a pod's nodeSelector, in order."""
    return tuple(sorted((pod.spec.get("nodeSelector") or {}).items()))


def _missing(snapshot: Snapshot, pairs: Sequence[Pair], values: LabelValues) -> Iterator[Reason]:
    """The pairs that no node has; else that no node has all of them."""
    unknown = [(key, value) for key, value in pairs if value not in values.get(key, ())]
    for key, value in unknown:
        data = {"label": key, "values": [value], "known": sorted(values.get(key, ()))[:_MOST_VALUES]}
        yield Reason("NodeLabelMissing", f"no node has {key}={value}{_instead(key, values)}", data)
    if unknown or len(pairs) < 2:
        return
    wanted = dict(pairs)
    if not any(wanted.items() <= snapshot.nodes[name].labels.items() for name in snapshot.node_names):
        texts = " and ".join(f"{key}={value}" for key, value in pairs)
        yield Reason("NodeLabelMissing", f"no node has {texts} together", {"labels": wanted})


def _instead(key: str, values: LabelValues) -> str:
    """What nodes have in its place."""
    known = values.get(key)
    if not known:
        return ", nor the label at all"
    if len(known) > _MOST_VALUES:
        return ""
    values_found = [f"{value} on {counted(count, 'node')}" for value, count in sorted(known.items())]
    return f": {key} is {', '.join(values_found)}"


def _affinity_terms(pod: PodInfo) -> Sequence[Obj]:
    required = ((pod.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    return required.get("nodeSelectorTerms") or ()


def _terms(terms: Sequence[Obj], values: LabelValues) -> Iterator[Reason]:
    """One requirement of each term that no node meets, if no term is without one."""
    unmet = [next(_unmet(term, values), None) for term in terms]
    if all(unmet):
        yield from (reason for reason in unmet if reason is not None)


def _unmet(term: Obj, values: LabelValues) -> Iterator[Reason]:
    for each in term.get("matchExpressions") or ():
        key, wanted, known = (
            str(each["key"]),
            [str(value) for value in each.get("values") or ()],
            values.get(each["key"]),
        )
        data = {"label": key, "values": wanted, "known": sorted(known or ())[:_MOST_VALUES]}
        if each["operator"] == "In" and not set(wanted) & set(known or ()):
            texts = " or ".join(f"{key}={value}" for value in wanted[:_MOST_VALUES])
            yield Reason("NodeLabelMissing", f"no node has {texts}{_instead(key, values)}", data)
        elif each["operator"] == "Exists" and not known:
            yield Reason("NodeLabelMissing", f"no node has the label {key}", data)


# -- topology keys


def group_topology_keys(group: Obj | None) -> list[str]:
    """Return the labels of a group's topology constraints."""
    constraints = ((group or {}).get("spec") or {}).get("schedulingConstraints") or {}
    return [str(constraint["key"]) for constraint in constraints.get("topology") or ()]


def _pod_topology_keys(pod: PodInfo) -> Iterator[str]:
    """The topology keys without which no node takes the pod."""
    for constraint in pod.spec.get("topologySpreadConstraints") or ():
        if constraint.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            yield str(constraint["topologyKey"])
    affinity = (pod.spec.get("affinity") or {}).get("podAffinity") or {}
    yield from (str(term["topologyKey"]) for term in affinity.get(_REQUIRED) or ())


def _missing_key(key: str, values: LabelValues) -> Reason:
    known = topology_keys(values)
    there = f"; known: {listed(known)}" if known else ""
    text = f"no node has the topology key {key}{there}"
    return Reason("TopologyKeyMissing", text, {"topologyKey": key, "known": known})


def topology_keys(values: Iterable[str]) -> list[str]:
    """Return the labels of nodes that are topology keys, by their names."""
    return sorted(key for key in values if key == HOSTNAME or key.partition("/")[0].split(".")[0] == "topology")


# -- members in different domains


def pinned_domains(snapshot: Snapshot, pods: Sequence[PodInfo], group: Obj | None) -> dict[str, Counter[str]]:
    """Return how many members are pinned to which domain, by the topology keys of their group."""
    found: dict[str, Counter[str]] = {}
    for key in group_topology_keys(group):
        domains = (domain for pod in pods if (domain := _domain(snapshot, pod, key)))
        found[key] = Counter(domains)
    return found


def _domain(snapshot: Snapshot, pod: PodInfo, key: str) -> str:
    """The domain that a pod's nodeSelector pins it to, by the key itself or by a node."""
    pairs = dict(node_selector(pod))
    node = snapshot.nodes.get(pairs.get(HOSTNAME, ""))
    return str(pairs.get(key) or (node.labels.get(key) if node is not None else "") or "")


def _pinned(key: str, domains: Counter[str]) -> Reason:
    texts = ", ".join(f"{count} to {domain}" for domain, count in sorted(domains.items()))
    text = f"its members are pinned to different domains of {key} ({texts}), but the group needs one for all"
    return Reason("MembersPinned", text, {"topologyKey": key, "domains": dict(sorted(domains.items()))})
