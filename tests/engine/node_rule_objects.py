"""Clusters and pods at random, with all the rules about nodes: affinity, spreading, taints, ports, images."""

from __future__ import annotations

from engine_objects import Obj, node, pod
from hypothesis import strategies as st
from plain_scheduler import HOSTNAME, ZONE

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
APPS = st.sampled_from(["x", "y"])
KEYS = st.sampled_from([ZONE, HOSTNAME, "rack"])


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Obj:
    labels = {}
    if draw(st.integers(0, 5)):
        labels[ZONE] = draw(st.sampled_from(["z1", "z2"]))
    if draw(st.booleans()):
        labels["rack"] = draw(st.sampled_from(["r1", "r2", "r3"]))
    taints = [
        {"key": draw(st.sampled_from(["a", "b"])), "effect": draw(st.sampled_from(["NoSchedule", "PreferNoSchedule"]))}
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2])))
    ]
    obj = node(name, cpu=str(draw(st.integers(2, 8))), labels=labels, taints=taints)
    obj["spec"]["unschedulable"] = draw(st.integers(0, 9)) == 0
    obj["status"]["allocatable"]["pods"] = str(draw(st.integers(3, 9)))
    if draw(st.booleans()):
        obj["status"]["images"] = [{"names": ["model:latest"], "sizeBytes": draw(st.integers(1, 3000)) * 2**20}]
    return obj


@st.composite
def selectors(draw: st.DrawFn) -> Obj:
    app = draw(APPS)
    return draw(
        st.sampled_from(
            [
                {"matchLabels": {"app": app}},
                {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]},
                {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
                {},
            ]
        )
    )


@st.composite
def pod_terms(draw: st.DrawFn) -> Obj:
    term: Obj = {"topologyKey": draw(KEYS), "labelSelector": draw(selectors())}
    spaces = draw(st.sampled_from([None, None, None, {}, {"matchLabels": {"team": "a"}}]))
    if spaces is not None:
        term["namespaceSelector"] = spaces
    return term


@st.composite
def affinities(draw: st.DrawFn) -> Obj:
    found: Obj = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if draw(st.integers(0, 2)) == 0:
            found.setdefault(kind, {})[REQUIRED] = [draw(pod_terms()) for _ in range(draw(st.integers(1, 2)))]
        if draw(st.integers(0, 2)) == 0:
            weighted = {"weight": draw(st.integers(1, 100)), "podAffinityTerm": draw(pod_terms())}
            found.setdefault(kind, {})[PREFERRED] = [weighted]
    if draw(st.integers(0, 3)) == 0:
        expression = {"key": "rack", "operator": "In", "values": ["r1"]}
        preference = {"weight": draw(st.integers(1, 9)), "preference": {"matchExpressions": [expression]}}
        found["nodeAffinity"] = {PREFERRED: [preference]}
        if draw(st.booleans()):
            exists = {
                "matchExpressions": [{"key": ZONE, "operator": draw(st.sampled_from(["Exists", "DoesNotExist"]))}]
            }
            found["nodeAffinity"][REQUIRED] = {"nodeSelectorTerms": [exists]}
    return found


@st.composite
def constraints(draw: st.DrawFn) -> Obj:
    return {
        "topologyKey": draw(KEYS),
        "maxSkew": draw(st.integers(1, 2)),
        "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])),
        "labelSelector": draw(selectors()),
        "nodeAffinityPolicy": draw(st.sampled_from(["Honor", "Ignore"])),
        "nodeTaintsPolicy": draw(st.sampled_from(["Honor", "Ignore"])),
        **({"minDomains": draw(st.integers(1, 3))} if draw(st.integers(0, 3)) == 0 else {}),
        **({"matchLabelKeys": ["tier"]} if draw(st.integers(0, 3)) == 0 else {}),
    }


@st.composite
def pods(draw: st.DrawFn, name: str, places: list[str], placed: bool) -> Obj:
    obj = pod(
        name, cpu=draw(st.sampled_from(["0", "500m", "1", "2"])), node=draw(st.sampled_from(places)) if placed else ""
    )
    obj["metadata"]["namespace"] = draw(st.sampled_from(["default", "default", "other"]))
    obj["metadata"]["labels"] = {"app": draw(APPS), **({"tier": "t"} if draw(st.booleans()) else {})}
    container = obj["spec"]["containers"][0]
    container["image"] = draw(st.sampled_from(["model", "x"]))
    if draw(st.booleans()):
        container["resources"]["requests"]["memory"] = draw(st.sampled_from(["1Gi", "20Gi"]))
    if draw(st.integers(0, 4)) == 0:
        container["ports"] = [{"hostPort": draw(st.integers(80, 81))}]
    if draw(st.booleans()):
        obj["spec"]["affinity"] = draw(affinities())
    if draw(st.integers(0, 2)) == 0:
        obj["spec"]["topologySpreadConstraints"] = [draw(constraints()) for _ in range(draw(st.integers(1, 2)))]
    if draw(st.integers(0, 2)) == 0:
        obj["spec"]["tolerations"] = [{"key": "a", "operator": "Exists"}]
    if draw(st.integers(0, 3)) == 0:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "u", "controller": True}
        obj["metadata"]["ownerReferences"] = [owner]
    if placed and draw(st.integers(0, 5)) == 0:
        obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return obj


def plain(kind: str, name: str, spec: Obj, **labels: str) -> Obj:
    metadata = {"name": name, "labels": labels, **({} if kind == "Namespace" else {"namespace": "default"})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


SERVICE = plain("Service", "s", {"selector": {"app": "x"}})
SET = plain("ReplicaSet", "set", {"selector": {"matchLabels": {"tier": "t"}}})
NAMESPACES = [plain("Namespace", "default", {}, team="a"), plain("Namespace", "other", {}, team="b")]


@st.composite
def clusters(draw: st.DrawFn) -> list[Obj]:
    names = [f"n{i}" for i in range(draw(st.integers(1, 5)))]
    objects = [draw(nodes(name)) for name in names]
    objects += [draw(pods(f"o{i}", names, True)) for i in range(draw(st.integers(0, 6)))]
    return objects + NAMESPACES + [o for o in (SERVICE, SET) if draw(st.booleans())]
