"""Random pods, gangs and claims for `decisions_compared`, one unit after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from manifests import DRIVER, HOST, NAMESPACE, OTHERS, ZONE, Obj, exactly, expression, obj
from random_clusters import BIG, GPU, IMAGES, IMPLICIT, LINKS, NET, NIC, ROOT, ClusterDraw, opaque, selector
from random_profiles import profiles
from random_volumes import VolumeDraw

_REQUIRED, _PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))


@dataclass
class Unit:
    """A pod or a gang, and the claims that its pods name (or their templates, from which `claims_of` makes them)."""

    pods: list[Obj]
    group: Obj | None = None
    claims: list[Obj] = field(default_factory=list)
    templates: list[Obj] = field(default_factory=list)
    released: Obj = field(default_factory=dict)
    """Of pods with gates: what is added to their specs when these go."""
    nominated: str = ""
    """The node that somebody else nominates for pods with gates."""


class WorkDraw:
    """Random work for a random cluster."""

    def __init__(self, cluster: ClusterDraw) -> None:
        self._cluster = cluster
        self._dice = cluster.dice
        self._dimensions = cluster.dimensions
        self.volumes = VolumeDraw(cluster)
        self.named: list[str] = []
        """Claims of earlier units that any pod may name."""

    def unit(self, number: int) -> Unit:
        """A pod, or a gang of one to three."""
        dice, name = self._dice, f"{self._cluster.prefix}-u{number}"
        chosen = dice.pick("low", "mid", "high", "high", "polite")
        made = Unit([])
        size = 1
        if "gangs" in self._dimensions and dice.one_in(2):
            size = dice.pick(1, 2, 2, 3)
            made.group = self._group(name, size, chosen)
        draw = self._of_one_kind() if dice.one_in(2) else self._of_many_kinds
        wants_claims = "devices" in self._dimensions and not dice.one_in(4)
        shared = self._shared(made, name) if wants_claims and made.group and dice.one_in(3) else None
        profile = dice.pick(*profiles()) if "profiles" in self._dimensions else ""
        for index in range(size):
            spec, claim = draw()
            spec["priorityClassName"] = chosen
            if made.group:
                spec["schedulingGroup"] = {"podGroupName": name}
            if wants_claims:
                self._claimed(made, f"{name}-{index}", spec, claim)
            if shared:
                spec.setdefault("resourceClaims", []).append(shared)
            if profile:
                spec["schedulerName"] = profile
            made.pods.append(obj("v1", "Pod", f"{name}-{index}", labels=self._cluster.labels(), spec=spec))
            self._cluster.owned(made.pods[-1])
        made.claims += self.volumes.drained()
        if "gates" in self._dimensions and dice.one_in(2):
            self._held(made)
        return made

    def _held(self, made: Unit) -> None:
        dice = self._dice
        for pod in made.pods:
            pod["spec"]["schedulingGates"] = [{"name": "example.com/hold"}]
        if dice.one_in(2):
            made.released = {"nodeSelector": dice.pick({"disk": "ssd"}, {ZONE: "z0"}, {"size": "8"})}
        if made.group is None and not dice.one_in(3):
            made.nominated = dice.pick(*self._cluster.names)

    def again(self, unit: Unit, number: int) -> Unit:
        """The same pods under new names, as their controller makes them anew; claims of theirs come from templates."""
        pods = deepcopy(unit.pods)
        for index, pod in enumerate(pods):
            pod["metadata"]["name"] = f"{self._cluster.prefix}-u{number}-{index}"
        return Unit(pods, released=unit.released, nominated=unit.nominated)

    def _shared(self, made: Unit, name: str) -> Obj:
        """A claim that all members use, and that is perhaps reserved for the group."""
        assert made.group
        entry = {"name": "shared", "resourceClaimName": f"{name}-shared"}
        made.claims.append(obj("resource.k8s.io/v1", "ResourceClaim", f"{name}-shared", spec=self._claim()))
        if not self._dice.one_in(3):
            made.group["spec"]["resourceClaims"] = [entry]
        return entry

    def _of_many_kinds(self) -> tuple[Obj, Obj]:
        spec = self.spec()
        if "extended" in self._dimensions and not self._dice.one_in(4):
            self._extended(spec)
        return spec, self._claim()

    def _of_one_kind(self) -> Callable[[], tuple[Obj, Obj]]:
        made = self._of_many_kinds()
        return lambda: deepcopy(made)

    def _group(self, name: str, size: int, chosen: str) -> Obj:
        dice = self._dice
        policy: Obj = {"gang": {"minCount": dice.pick(size, size, max(1, size - 1))}}
        spec: Obj = {"schedulingPolicy": {"basic": {}} if dice.one_in(6) else policy, "priorityClassName": chosen}
        if dice.one_in(4):
            spec["disruptionMode"] = "PodGroup"
        if dice.one_in(4):
            spec["schedulingConstraints"] = {"topology": [{"key": dice.pick(ZONE, ZONE, HOST, "disk")}]}
        return obj("scheduling.k8s.io/v1alpha2", "PodGroup", name, spec=spec)

    # -- pods ---------------------------------------------------------------------------------------------------------

    def spec(self, bound: bool = False) -> Obj:
        """The spec of a pod; a bound one has few constraints."""
        requests = {"cpu": self._dice.pick("500m", "1", "1", "2", "3"), "memory": "10Mi"}
        container = {"name": "main", "image": IMAGES[0], "resources": {"requests": requests}}
        spec: Obj = {"containers": [container], "terminationGracePeriodSeconds": 30}
        most = 4 if "constraints" in self._dimensions else 2
        if bound:
            most = 2 if self._dice.one_in(3) else 1
        for _ in range(self._dice.random.randrange(most)):
            self._dice.pick(*self._constraints())(spec)
        if "volumes" in self._dimensions and not self._dice.one_in(4):
            self.volumes.mount(spec, bound=bound)
        if "kubelets" in self._dimensions:
            self._of_kubelets(spec)
        return spec

    def _of_kubelets(self, spec: Obj) -> None:
        dice = self._dice
        if dice.one_in(4):
            spec["runtimeClassName"] = "heavy"
        if dice.one_in(4):
            codes = {"operator": "In", "values": [42]}
            rule = {"action": "RestartAllContainers", "exitCodes": codes}
            spec["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}

    def _constraints(self) -> tuple[Callable[[Obj], None], ...]:
        plain = (self._nodes_required, self._pods_required, self._pods_required, self._spread, self._tolerating)
        some = (*plain, self._port, self._nic)
        if "constraints" not in self._dimensions:
            return some
        return (
            *some,
            self._spread,
            self._preferring,
            self._preferring_nodes,
            self._init,
            self._amounts,
            self._whole,
            self._selecting,
        )

    def _nodes_required(self, spec: Obj) -> None:
        terms = [self._of_some_nodes() for _ in range(self._dice.pick(1, 1, 1, 2))]
        spec.setdefault("affinity", {})["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": terms}}

    def _of_some_nodes(self) -> Obj:
        """A term: of labels, or of a name."""
        if self._dice.one_in(6):
            name = self._dice.pick(*self._cluster.names)
            return {"matchFields": [expression("metadata.name", self._dice.pick("In", "NotIn"), name)]}
        return {"matchExpressions": [self._of_nodes() for _ in range(self._dice.pick(1, 2))]}

    def _selecting(self, spec: Obj) -> None:
        spec["nodeSelector"] = self._dice.pick({"disk": "ssd"}, {ZONE: "z0"}, {"size": "8"})

    def _of_nodes(self) -> Obj:
        dice = self._dice
        return dice.pick(
            expression(ZONE, dice.pick("In", "NotIn"), "z0"),
            expression("disk", dice.pick("Exists", "DoesNotExist")),
            expression("size", dice.pick("Gt", "Lt"), "4"),
            expression("disk", "NotIn", "ssd"),
        )

    def _term(self) -> Obj:
        dice = self._dice
        term = {"labelSelector": selector(dice, self._cluster.labels()), "topologyKey": dice.pick(ZONE, HOST, "disk")}
        if dice.one_in(5):
            term["namespaceSelector"] = dice.pick({}, {"matchLabels": {"team": "x"}})
        if dice.one_in(6):
            term["namespaces"] = [dice.pick(NAMESPACE, OTHERS if "namespaces" in self._dimensions else "default")]
        if dice.one_in(4) and "rev" not in json.dumps(term):
            term[dice.pick("matchLabelKeys", "mismatchLabelKeys")] = ["rev"]
        return term

    def _pods_required(self, spec: Obj) -> None:
        terms = [self._term() for _ in range(self._dice.pick(1, 1, 2))]
        spec.setdefault("affinity", {})[self._dice.pick("podAffinity", "podAntiAffinity")] = {_REQUIRED: terms}

    def _preferring(self, spec: Obj) -> None:
        weighted = {"weight": self._dice.pick(1, 50, 100), "podAffinityTerm": self._term()}
        spec.setdefault("affinity", {})[self._dice.pick("podAffinity", "podAntiAffinity")] = {_PREFERRED: [weighted]}

    def _preferring_nodes(self, spec: Obj) -> None:
        weighted = {"weight": self._dice.pick(1, 100), "preference": {"matchExpressions": [self._of_nodes()]}}
        spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})[_PREFERRED] = [weighted]

    def _spread(self, spec: Obj) -> None:
        dice = self._dice
        when = dice.pick("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")
        made: Obj = {"maxSkew": dice.pick(1, 1, 2), "topologyKey": dice.pick(ZONE, HOST, "disk")}
        made |= {"whenUnsatisfiable": when, "labelSelector": selector(dice, self._cluster.labels())}
        for policy in ("nodeTaintsPolicy", "nodeAffinityPolicy"):
            if dice.one_in(3):
                made[policy] = dice.pick("Honor", "Ignore")
        if dice.one_in(4) and when == "DoNotSchedule":
            made["minDomains"] = dice.pick(1, 2, 3)
        if dice.one_in(5) and "rev" not in json.dumps(made):
            made["matchLabelKeys"] = ["rev"]
        found = spec.setdefault("topologySpreadConstraints", [])
        if all((one["topologyKey"], one["whenUnsatisfiable"]) != (made["topologyKey"], when) for one in found):
            found.append(made)

    def _tolerating(self, spec: Obj) -> None:
        spec["tolerations"] = [
            self._dice.pick(
                {"key": "t", "operator": "Exists"},
                {"key": "t", "operator": "Equal", "value": "x"},
                {"operator": "Exists", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
                {"operator": "Exists"},
            )
        ]

    def _port(self, spec: Obj) -> None:
        more = self._dice.pick({}, {"hostIP": "10.0.0.1"}, {"protocol": "UDP"}, {"hostIP": "10.0.0.2"})
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80, **more}]

    def _nic(self, spec: Obj) -> None:
        _ask(spec["containers"][0], NIC, "1")

    def _init(self, spec: Obj) -> None:
        more = self._dice.pick({}, {"restartPolicy": "Always"})
        init = {"name": "init", "image": IMAGES[1]}
        spec["initContainers"] = [{**init, "resources": {"requests": {"cpu": self._dice.pick("1", "3")}}, **more}]

    def _amounts(self, spec: Obj) -> None:
        resource, amount = self._dice.pick(
            ("ephemeral-storage", "1Gi"), ("ephemeral-storage", "6Gi"), ("memory", "5Gi")
        )
        spec["containers"][0]["resources"]["requests"][resource] = amount

    def _whole(self, spec: Obj) -> None:
        spec["resources"] = {"requests": {"cpu": "6", "memory": "6Gi"}}  # at least what its containers ask for

    def _extended(self, spec: Obj) -> None:
        """Devices behind extended resources, of containers and perhaps of an init container."""
        dice = self._dice
        for _ in range(dice.pick(1, 1, 2)):
            _ask(spec["containers"][0], dice.pick(GPU, IMPLICIT, BIG), dice.pick("1", "1", "2"))
        if dice.one_in(3):
            spec["containers"].append(_ask({"name": "second", "image": IMAGES[0]}, GPU, "1"))
        if dice.one_in(6):
            more = dice.pick({}, {"restartPolicy": "Always"})
            spec["initContainers"] = [_ask({"name": "init", "image": IMAGES[1], **more}, GPU, dice.pick("1", "2"))]
            if dice.one_in(2):
                spec["initContainers"].append(_ask({"name": "late", "image": IMAGES[1]}, dice.pick(GPU, BIG), "1"))

    # -- claims -------------------------------------------------------------------------------------------------------

    def _claimed(self, made: Unit, pod: str, spec: Obj, claim: Obj) -> None:
        """Let the pod use a claim: one that it names, or one that is made for it from a template."""
        if "allocatable" in self._dimensions and not self._dice.one_in(4):
            spec["containers"][0].setdefault("resources", {})["claims"] = [{"name": "c"}]
        if self.named and "sharing" in self._dimensions and self._dice.one_in(2):
            spec["resourceClaims"] = [{"name": "c", "resourceClaimName": self._dice.pick(*self.named)}]
            return
        if "templates" in self._dimensions and not self._dice.one_in(4):
            made.templates.append(obj("resource.k8s.io/v1", "ResourceClaimTemplate", f"{pod}-t", spec={"spec": claim}))
            spec["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": f"{pod}-t"}]
            return
        made.claims.append(obj("resource.k8s.io/v1", "ResourceClaim", f"{pod}-claim", spec=claim))
        spec["resourceClaims"] = [{"name": "c", "resourceClaimName": f"{pod}-claim"}]

    def _claim(self) -> Obj:
        """The spec of a claim: one or two requests, some of them with alternatives, perhaps with a constraint."""
        dice, requests = self._dice, list[Obj]()
        for number in range(dice.pick(1, 2, 2, 3) if "drivers" in self._dimensions else dice.pick(1, 1, 1, 2)):
            if dice.one_in(4):
                choices = [self._request(f"s{index}", of_several=True) for index in range(dice.pick(1, 2, 3))]
                flat = [{"name": one["name"], **one["exactly"]} for one in choices]
                requests.append({"name": f"r{number}", "firstAvailable": flat})
            else:
                requests.append(self._request(f"r{number}"))
        devices: Obj = {"requests": requests}
        if dice.one_in(4):
            kind = dice.pick("matchAttribute", "matchAttribute", "distinctAttribute")
            devices["constraints"] = [{kind: f"{DRIVER}/{dice.pick('model', 'numa', 'size')}"}]
            if "lists" in self._dimensions and dice.one_in(2):
                kind = dice.pick("matchAttribute", "matchAttribute", "distinctAttribute")
                devices["constraints"] = [{kind: f"{DRIVER}/{LINKS}"}]
            if dice.one_in(2):
                devices["constraints"][0]["requests"] = [dice.pick(*_names(requests))]
            if dice.one_in(4):
                devices["constraints"].append({"matchAttribute": f"{DRIVER}/{dice.pick('model', 'size')}"})
        if "drivers" in self._dimensions and dice.one_in(2):
            kind = dice.pick("matchAttribute", "matchAttribute", "distinctAttribute")
            devices.setdefault("constraints", []).append({kind: ROOT})
        if dice.one_in(4):
            devices["config"] = [opaque("claim") | dice.pick({}, {"requests": [dice.pick(*_names(requests))]})]
        return {"devices": devices}

    def _request(self, name: str, of_several: bool = False) -> Obj:
        dice, more = self._dice, dict[str, Any]()
        if dice.one_in(6):
            more["allocationMode"] = "All"
        else:
            more |= {"allocationMode": "ExactCount", "count": dice.pick(1, 1, 1, 2, 3)}
        missing = "errors" in self._dimensions and dice.one_in(12)
        classes = (
            ("net", "net", "gpu") if "drivers" in self._dimensions and dice.one_in(2) else ("gpu", "gpu", "gpu", "big")
        )
        chosen = "missing" if missing else dice.pick(*classes)
        driver = NET if chosen == "net" else DRIVER
        own = f'device.capacity["{driver}"]'
        texts = (
            (4, f'device.attributes["{driver}"].model == "{dice.pick("a", "b")}"'),
            (8, f"device.allowMultipleAllocations == {dice.pick('true', 'false')}"),
            (10, f'"memory" in {own} && {own}.memory.compareTo(quantity("4")) >= 0'),
        )
        selectors = [text for chance, text in texts if dice.one_in(chance)]
        if "errors" in self._dimensions and dice.one_in(4):
            at_last = f'device.attributes["{driver}"].numa == {dice.pick(0, 1)}'
            selectors.append(dice.pick(at_last, at_last, f'{own}.memory.compareTo(quantity("4")) >= 0'))
        if "lists" in self._dimensions and dice.one_in(4):
            selectors.append(f'device.attributes["{driver}"].?racks.orValue([]).includes("{dice.pick("x", "y")}")')
        if dice.one_in(4):
            broken = {"key": "broken", "operator": "Exists"}
            late = {**broken, "effect": "NoExecute", "tolerationSeconds": 60}
            more["tolerations"] = [dice.pick({"operator": "Exists"}, broken, late)]
        if dice.one_in(3):
            more["capacity"] = {"requests": {"memory": dice.pick("1", "2", "3", "5")}}
            if "fabric" in self._dimensions and dice.one_in(3):
                more["capacity"]["requests"]["slots"] = "1"
        if not of_several and dice.one_in(10):
            more["adminAccess"] = True
        return exactly(name, chosen, *selectors, **more)


def _names(requests: Sequence[Obj]) -> list[str]:
    """What constraints and configurations may name: requests, and single alternatives of theirs."""
    alternatives = ((one["name"], each["name"]) for one in requests for each in one.get("firstAvailable") or ())
    return [*(one["name"] for one in requests), *map("/".join, alternatives)]


def _ask(container: Obj, resource: str, amount: str) -> Obj:
    resources = container.setdefault("resources", {})
    for part in ("requests", "limits"):
        resources.setdefault(part, {})[resource] = amount
    return container


def claims_of(pod: Obj, templates: dict[str, Obj]) -> list[tuple[str, Obj]]:
    """The claims that the claim controller makes for a stored pod, each with the name of the pod's entry for it."""
    found = []
    for entry in pod["spec"].get("resourceClaims") or ():
        template = templates.get(entry.get("resourceClaimTemplateName", ""))
        if template:
            owner = {"apiVersion": "v1", "kind": "Pod", "controller": True, "blockOwnerDeletion": True}
            owner |= {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            name = f"{pod['metadata']['name']}-{entry['name']}"
            notes = {"resource.kubernetes.io/pod-claim-name": entry["name"]}
            made = obj("resource.k8s.io/v1", "ResourceClaim", name, annotations=notes, spec=template["spec"]["spec"])
            made["metadata"]["ownerReferences"] = [owner]
            found.append((entry["name"], made))
    return found
