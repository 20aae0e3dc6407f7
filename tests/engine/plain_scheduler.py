"""kube-scheduler's default profile in the plainest way: every node, every pod, every time. What the engine is held to.

Works on objects as dicts and on nothing of the engine but quantities, label selectors and node selectors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from haru.kube.meta import controller_of, tolerates
from haru.kube.quantity import parse_quantity
from haru.kube.resources import pod_requests
from haru.kube.selectors import label_selector_from, node_selector_matches, node_selector_term_matches

Obj = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
MISSING = {"cpu": parse_quantity("100m"), "memory": parse_quantity("200Mi")}
WEIGHTS = {"taints": 3, "affinity": 2, "spread": 2, "company": 2, "fit": 1, "balance": 1, "images": 1}


def name_of(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def labels_of(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def namespace_of(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace") or "default")


def amounts(pod: Obj, missing: dict[str, Any] | None = None) -> Counter[str]:
    found = pod_requests(pod, missing or {})
    return Counter({n: q.milli() if n == "cpu" else q.value() for n, q in found.items()})


def terms(pod: Obj, kind: str, how: str) -> list[Obj]:
    return ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(how) or []


class PlainCluster:
    """Nodes, pods and whatever else, as they are."""

    def __init__(self, objects: Iterable[Obj]) -> None:
        listed = list(objects)
        self.of = lambda kind: [o for o in listed if o["kind"] == kind]
        self.nodes = {name_of(o): o for o in self.of("Node")}
        self.pods = [
            o
            for o in self.of("Pod")
            if o["spec"].get("nodeName") in self.nodes
            and (o.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]
        self.namespaces = {name_of(o): labels_of(o) for o in self.of("Namespace")}

    def on(self, node: str) -> list[Obj]:
        return [pod for pod in self.pods if pod["spec"]["nodeName"] == node]

    # -- filters

    def refusals(self, pod: Obj) -> dict[str, tuple[str, ...]]:
        return {name: tuple(self.refusal(pod, node)) for name, node in self.nodes.items()}

    def refusal(self, pod: Obj, node: Obj) -> list[str]:
        checks = (self.cordon, self.taints, self.node_affinity, self.ports, self.resources, self.spread, self.company)
        return next((found for check in checks if (found := list(check(pod, node)))), [])

    def cordon(self, pod: Obj, node: Obj) -> Iterator[str]:
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        if node["spec"].get("unschedulable") and not tolerates(pod["spec"].get("tolerations"), taint):
            yield "node(s) were unschedulable"

    def taints(self, pod: Obj, node: Obj) -> Iterator[str]:
        hard = [t for t in node["spec"].get("taints") or () if t["effect"] in ("NoSchedule", "NoExecute")]
        if any(not tolerates(pod["spec"].get("tolerations"), taint) for taint in hard):
            yield "node(s) had untolerated taint(s)"

    def node_affinity(self, pod: Obj, node: Obj) -> Iterator[str]:
        if not self.selects(pod, node):
            yield "node(s) didn't match Pod's node affinity/selector"

    def selects(self, pod: Obj, node: Obj) -> bool:
        required = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
        chosen = all(labels_of(node).get(k) == v for k, v in (pod["spec"].get("nodeSelector") or {}).items())
        return chosen and (required is None or node_selector_matches(required, name_of(node), labels_of(node)))

    def ports(self, pod: Obj, node: Obj) -> Iterator[str]:
        def wanted(of: Obj) -> set[int]:
            return {p["hostPort"] for c in of["spec"]["containers"] for p in c.get("ports") or () if p.get("hostPort")}

        if any(wanted(pod) & wanted(other) for other in self.on(name_of(node))):
            yield "node(s) didn't have free ports for the requested pod ports"

    def resources(self, pod: Obj, node: Obj) -> Iterator[str]:
        there = {n: (parse_quantity(q).milli() if n == "cpu" else parse_quantity(q).value())
                 for n, q in node["status"]["allocatable"].items()}  # fmt: skip
        used = sum((amounts(other) for other in self.on(name_of(node))), Counter[str]())
        if len(self.on(name_of(node))) + 1 > there["pods"]:
            yield "Too many pods"
        for name, amount in sorted(amounts(pod).items()):
            if amount > there.get(name, 0) - used[name] and amount:
                yield f"Insufficient {name}"

    def spread(self, pod: Obj, node: Obj) -> Iterator[str]:
        hard = [
            c for c in pod["spec"].get("topologySpreadConstraints") or () if c["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        keys = [c["topologyKey"] for c in hard]
        text = "node(s) didn't match pod topology spread constraints"
        for constraint in hard:
            key = constraint["topologyKey"]
            if key not in labels_of(node):
                yield f"{text} (missing required label)"
                return
            counts: Counter[str] = Counter()
            domains = set()
            for other in self.nodes.values():
                if all(k in labels_of(other) for k in keys) and self.eligible(pod, other, constraint):
                    domains.add(labels_of(other)[key])
                    counts[labels_of(other)[key]] += self.matching(pod, constraint, other)
            least = min((counts[d] for d in domains), default=0)
            if len(domains) < (constraint.get("minDomains") or 1):
                least = 0
            own = self.selected(pod, constraint, pod)
            if counts[labels_of(node)[key]] + own - least > constraint["maxSkew"]:
                yield text
                return

    def eligible(self, pod: Obj, node: Obj, constraint: Obj) -> bool:
        if (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor" and not self.selects(pod, node):
            return False
        return constraint.get("nodeTaintsPolicy") != "Honor" or not list(self.taints(pod, node))

    def selected(self, pod: Obj, constraint: Obj, other: Obj) -> bool:
        same = [k for k in constraint.get("matchLabelKeys") or () if k in labels_of(pod)]
        return label_selector_from(constraint.get("labelSelector")).matches(labels_of(other)) and all(
            labels_of(other).get(k) == labels_of(pod)[k] for k in same
        )

    def matching(self, pod: Obj, constraint: Obj, node: Obj) -> int:
        keys = set(constraint.get("matchLabelKeys") or ())
        if not any((constraint.get("labelSelector") or {}).values()) and keys.isdisjoint(labels_of(pod)):
            return 0  # an empty selector
        return sum(
            self.selected(pod, constraint, other)
            for other in self.on(name_of(node))
            if namespace_of(other) == namespace_of(pod) and "deletionTimestamp" not in other["metadata"]
        )

    def speaks(self, owner: Obj, term: Obj, other: Obj) -> bool:
        spaces, named = term.get("namespaceSelector"), set(term.get("namespaces") or ())
        if not named and spaces is None:
            named = {namespace_of(owner)}
        inside = namespace_of(other) in named
        if spaces is not None:
            inside |= label_selector_from(spaces).matches(self.namespaces.get(namespace_of(other), {}))
        return inside and label_selector_from(term.get("labelSelector")).matches(labels_of(other))

    def domain_of(self, node: Obj, key: str) -> list[Obj]:
        """The pods in a node's domain."""
        value = labels_of(node).get(key)
        if value is None:
            return []
        return [pod for pod in self.pods if labels_of(self.nodes[pod["spec"]["nodeName"]]).get(key) == value]

    def company(self, pod: Obj, node: Obj) -> Iterator[str]:
        near, away = terms(pod, "podAffinity", REQUIRED), terms(pod, "podAntiAffinity", REQUIRED)

        def friend(other: Obj) -> bool:
            return all(self.speaks(pod, term, other) for term in near)

        somewhere = any(
            friend(other) and term["topologyKey"] in labels_of(self.nodes[other["spec"]["nodeName"]])
            for other in self.pods
            for term in near
        )
        for term in near:
            if term["topologyKey"] not in labels_of(node) or not (
                any(friend(other) for other in self.domain_of(node, term["topologyKey"]))
                or (not somewhere and friend(pod))
            ):
                yield "node(s) didn't match pod affinity rules"
                return
        if any(self.speaks(pod, t, other) for t in away for other in self.domain_of(node, t["topologyKey"])):
            yield "node(s) didn't match pod anti-affinity rules"
            return
        for other in self.pods:
            for term in terms(other, "podAntiAffinity", REQUIRED):
                if other in self.domain_of(node, term["topologyKey"]) and self.speaks(other, term, pod):
                    yield "node(s) didn't satisfy existing pods anti-affinity rules"
                    return

    # -- scores

    def scores(self, pod: Obj) -> dict[str, int]:
        feasible = [self.nodes[name] for name, failures in self.refusals(pod).items() if not failures]
        parts = {
            "taints": self.by_taints(pod, feasible),
            "affinity": self.by_affinity(pod, feasible),
            "spread": self.by_spread(pod, feasible),
            "company": self.by_company(pod, feasible),
            "fit": [self.by_room(pod, node) for node in feasible],
            "balance": [self.by_balance(pod, node) for node in feasible],
            "images": [self.by_images(pod, node) for node in feasible],
        }
        return {
            name_of(node): sum(WEIGHTS[part] * values[i] for part, values in parts.items())
            for i, node in enumerate(feasible)
        }

    def by_taints(self, pod: Obj, nodes: list[Obj]) -> list[int]:
        raw = [
            sum(t["effect"] == "PreferNoSchedule" and not tolerates(pod["spec"].get("tolerations"), t)
                for t in node["spec"].get("taints") or ())
            for node in nodes
        ]  # fmt: skip
        top = max(raw, default=0)
        return [100 - (value * 100 // top if top else 0) for value in raw]

    def by_affinity(self, pod: Obj, nodes: list[Obj]) -> list[int]:
        preferred = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(PREFERRED) or []
        raw = [
            sum(
                t["weight"]
                for t in preferred
                if node_selector_term_matches(t["preference"], name_of(node), labels_of(node))
            )
            for node in nodes
        ]
        top = max(raw, default=0)
        return [value * 100 // top if top else 0 for value in raw]

    def by_spread(self, pod: Obj, nodes: list[Obj]) -> list[int]:
        own = pod["spec"].get("topologySpreadConstraints") or []
        soft = [c for c in own if c["whenUnsatisfiable"] == "ScheduleAnyway"] if own else self.defaults(pod)
        if not soft:
            return [0] * len(nodes)
        keys = [c["topologyKey"] for c in soft]
        counted = [node for node in nodes if not own or all(k in labels_of(node) for k in keys)]
        everybody = [node for node in self.nodes.values() if not own or all(k in labels_of(node) for k in keys)]
        raw: dict[str, int] = {}
        for node in counted:
            total = 0.0
            for constraint in soft:
                key = constraint["topologyKey"]
                if key not in labels_of(node):
                    continue
                if key == HOSTNAME:
                    factor, pods = math.log(len(counted) + 2), self.matching(pod, constraint, node)
                else:
                    factor = math.log(len({labels_of(n).get(key, "") for n in counted}) + 2)
                    pods = sum(
                        self.matching(pod, constraint, n)
                        for n in everybody
                        if labels_of(n).get(key, "") == labels_of(node)[key] and self.eligible(pod, n, constraint)
                    )
                total += float(pods) * factor + float(constraint["maxSkew"] - 1)
            raw[name_of(node)] = math.floor(total) + (total - math.floor(total) >= 0.5)
        low, high = min(raw.values(), default=0), max(raw.values(), default=0)
        return [
            0 if name_of(node) not in raw else 100 if not high else 100 * (high + low - raw[name_of(node)]) // high
            for node in nodes
        ]

    def defaults(self, pod: Obj) -> list[Obj]:
        labels: dict[str, str] = {}
        for service in self.of("Service"):
            selector = service["spec"].get("selector")
            same = namespace_of(service) == namespace_of(pod)
            if same and selector and all(labels_of(pod).get(k) == v for k, v in selector.items()):
                labels |= selector
        expressions: list[Obj] = []
        owner = controller_of(pod) or {}
        for sets in (o for o in self.of("ReplicaSet") if owner.get("kind") == "ReplicaSet"):
            if (namespace_of(sets), name_of(sets)) == (namespace_of(pod), owner["name"]):
                matched = sets["spec"]["selector"]["matchLabels"].items()
                expressions += [{"key": k, "operator": "In", "values": [v]} for k, v in matched]
        if not labels and not expressions:
            return []
        selector = {"matchLabels": labels, "matchExpressions": expressions}
        shared = {"whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
        return [{**shared, "topologyKey": HOSTNAME, "maxSkew": 3}, {**shared, "topologyKey": ZONE, "maxSkew": 5}]

    def by_company(self, pod: Obj, nodes: list[Obj]) -> list[int]:
        raw = [sum(self.liking(pod, node, other) for other in self.pods) for node in nodes]
        low, high = min(raw, default=0), max(raw, default=0)
        return [int(100 * (float(value - low) / float(high - low))) if high > low else 0 for value in raw]

    def liking(self, pod: Obj, node: Obj, other: Obj) -> int:
        """What another pod adds to a node: by what the pod prefers, and by what the other one does."""
        there = labels_of(self.nodes[other["spec"]["nodeName"]])

        def together(term: Obj) -> bool:
            key = term["topologyKey"]
            return key in there and labels_of(node).get(key) == there[key]

        total = 0
        for sign, kind in ((1, "podAffinity"), (-1, "podAntiAffinity")):
            for entry in terms(pod, kind, PREFERRED):
                term = entry["podAffinityTerm"]
                total += sign * entry["weight"] * (together(term) and self.speaks(pod, term, other))
            for entry in terms(other, kind, PREFERRED):
                term = entry["podAffinityTerm"]
                total += sign * entry["weight"] * (together(term) and self.speaks(other, term, pod))
        for term in terms(other, "podAffinity", REQUIRED):
            total += together(term) and self.speaks(other, term, pod)
        return total

    def shares(self, pods: list[Obj], node: Obj) -> list[float]:
        used = sum((amounts(pod) for pod in pods), Counter[str]())
        there = node["status"]["allocatable"]
        return [
            min(used["cpu"] / parse_quantity(there["cpu"]).milli(), 1.0),
            min(used["memory"] / parse_quantity(there["memory"]).value(), 1.0),
        ]

    def by_balance(self, pod: Obj, node: Obj) -> int:
        if not (amounts(pod)["cpu"] or amounts(pod)["memory"]):
            return 0
        here = self.on(name_of(node))
        before, after = (
            int((1 - abs((a - b) / 2)) * 100) for a, b in (self.shares(here, node), self.shares([*here, pod], node))
        )
        return 50 + (50 + after - before) // 2

    def by_room(self, pod: Obj, node: Obj) -> int:
        used = sum((amounts(other, MISSING) for other in [*self.on(name_of(node)), pod]), Counter[str]())
        there = node["status"]["allocatable"]
        capacity = {"cpu": parse_quantity(there["cpu"]).milli(), "memory": parse_quantity(there["memory"]).value()}
        return sum((c - used[n]) * 100 // c if used[n] <= c else 0 for n, c in capacity.items()) // 2

    def by_images(self, pod: Obj, node: Obj) -> int:
        def sizes(of: Obj) -> dict[str, int]:
            return {n: i["sizeBytes"] for i in of["status"].get("images") or () for n in i["names"]}

        total = 0
        for container in pod["spec"]["containers"]:
            image = container["image"] if ":" in container["image"] else f"{container['image']}:latest"
            holders = sum(image in sizes(other) for other in self.nodes.values())
            total += int(float(sizes(node).get(image, 0)) * (holders / len(self.nodes)))
        low, high = 23 * 2**20, 1000 * 2**20 * len(pod["spec"]["containers"])
        return 100 * (min(max(total, low), high) - low) // (high - low)
