"""A small cluster with devices of every kind that changes at random, while units come, are placed, and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from changing_cluster import HOSTNAME, NODES, ZONE, ChangingCluster, obj
from generated_devices import API, EXTENDED, IMPLICIT, NET, GeneratedDevices

from haru.engine import Decision, SchedulerCache
from haru.engine.preemption import displaced
from haru.engine.state import ClaimAllocation, nominations_of

Obj = dict[str, Any]
Change = tuple[str, Obj | None, Obj | None]
GROUP = "scheduling.k8s.io/v1alpha2"
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@dataclass
class Unit:
    """What waits: a pod, or the members of a gang with their PodGroup."""

    name: str
    pods: list[str]
    group: str = ""
    claims: list[str] = field(default_factory=list)
    priority: int = 0
    polite: bool = False
    """Whether it evicts nobody."""


class ChangingDevices(ChangingCluster):
    """`units` wait or run; what a decision asks for is carried out object by object, other changes in between."""

    def __init__(self, random: Random) -> None:
        self.made = GeneratedDevices(random)
        self.units: dict[str, Unit] = {}
        self.coming: list[Change] = []
        self.generations = dict.fromkeys((*NODES, NET), 0)
        self.count = 0
        super().__init__(random)

    def whole(self) -> list[Obj]:
        made = [self._new_node(name) for name in NODES]
        made += [self.made.device_class(name) for name in ("gpu", "big")]
        for pool in self.generations:
            made += self._published(pool)
        return made

    def _new_node(self, name: str) -> Obj:
        self.count += 1
        room = self.room()
        if self.chance(6):
            room[EXTENDED] = "1"
        labels = {HOSTNAME: name, ZONE: f"z{NODES.index(name) % 2}"}
        metadata = {"labels": labels, "uid": f"uid-{name}-{self.count}"}
        return obj("Node", name, namespaced=False, metadata=metadata, spec={}, status={"allocatable": room})

    def _published(self, pool: str) -> list[Obj]:
        self.generations[pool] += 1
        return self.made.pool(pool, self.generations[pool])

    # -- changes

    def change(self) -> Change:
        makers: list[Callable[[], Change | None]] = [self.next_coming] * 5
        makers += [self.publish, self.amended, self.withdraw, self.classes, self.rules]
        makers += [self.claim_changes, self.claim_changes, self.node, self.replaced_node, self.pod]
        makers += [self.ended, self.ended, self.freed, self.abandoned]
        while True:
            made = self.random.choice(makers)()
            if made is not None and made[1] is not made[2]:
                self.take(*made)
                return made

    def take(self, kind: str, old: Obj | None, new: Obj | None) -> None:
        if new is None and old is not None:
            self.objects.pop((kind, old["metadata"]["name"]), None)
            self.cluster.remove(old)
        else:
            super().take(kind, old, new)

    def next_coming(self) -> Change | None:
        """The next of the objects that are on their way; what it replaces is what there is by then."""
        if not self.coming:
            return None
        kind, old, new = self.coming.pop(0)
        named = new if new is not None else old
        assert named is not None
        there = self.objects.get((kind, named["metadata"]["name"]))
        return (kind, there, new) if there is not None or new is not None else None

    def publish(self) -> Change | None:
        """A driver publishes a pool anew: its slices come, and old ones go, one after the other."""
        pool = self.random.choice(list(self.generations))
        slices = self._published(pool)
        names = {one["metadata"]["name"] for one in slices}
        gone = [
            one for (kind, name), one in self.objects.items()
            if kind == "ResourceSlice" and one["spec"]["pool"]["name"] == pool and name not in names
        ]  # fmt: skip
        steps: list[Change] = [("ResourceSlice", None, one) for one in slices]
        steps += [("ResourceSlice", one, None) for one in gone]
        if self.chance(2):
            self.random.shuffle(steps)
        self.coming += steps
        return self.next_coming()

    def amended(self) -> Change | None:
        """A driver changes what it says of the devices of one slice."""
        found = [one for (kind, _), one in sorted(self.objects.items()) if kind == "ResourceSlice"]
        found = [one for one in found if one["spec"].get("devices")]
        if not found:
            return None
        old = self.random.choice(found)
        changed = [
            {**device, **self.made.looks(bool(device.get("allowMultipleAllocations")))}
            for device in old["spec"]["devices"]
        ]
        return self.put({**old, "spec": {**old["spec"], "devices": changed}})

    def withdraw(self) -> Change | None:
        found = [one for (kind, _), one in sorted(self.objects.items()) if kind == "ResourceSlice"]
        return ("ResourceSlice", self.random.choice(found), None) if found and self.chance(8) else None

    def classes(self) -> Change | None:
        name = self.random.choice(("gpu", "big"))
        old = self.objects.get(("DeviceClass", name))
        if old is not None and self.chance(4):
            return "DeviceClass", old, None
        return self.put(self.made.device_class(name))

    def rules(self) -> Change | None:
        old = self.objects.get(("DeviceTaintRule", "rule"))
        return ("DeviceTaintRule", old, None) if old is not None else self.put(self.made.taint_rule())

    def room(self) -> Obj:
        return {"cpu": str(self.random.choice((4, 16))), "memory": "8Gi", "pods": str(self.random.choice((3, 20)))}

    def node(self) -> Change | None:
        """A node's labels change, what it has, or rarely its taints."""
        old = self.objects.get(("Node", self.random.choice(NODES)))
        if old is None:
            return None
        new = {**old, "metadata": dict(old["metadata"]), "spec": dict(old["spec"]), "status": dict(old["status"])}
        aspect = self.random.randrange(6)
        if aspect < 3:
            zone = self.random.choice([{}, {ZONE: "z0"}, {ZONE: "z1"}])
            new["metadata"]["labels"] = {HOSTNAME: new["metadata"]["name"], **zone}
        elif aspect < 5:
            more = {EXTENDED: str(self.random.randrange(3))} if self.chance(3) else {}
            new["status"]["allocatable"] = {**self.room(), **more}
        else:
            new["spec"]["taints"] = [] if old["spec"].get("taints") else [{"key": "a", "effect": "NoSchedule"}]
        return self.put(new)

    def abandoned(self) -> Change | None:
        """A unit that waited is given up: its pods go, then its claims."""
        units = list(self.waiting())
        if not units or not self.chance(4):
            return None
        unit = self.random.choice(units)
        del self.units[unit.name]
        named = [("Pod", name) for name in unit.pods] + [("PodGroup", unit.group)] * bool(unit.group)
        named += [("ResourceClaim", name) for name in unit.claims]
        self.coming += [(kind, self.objects[kind, name], None) for kind, name in named if (kind, name) in self.objects]
        return self.next_coming()

    def replaced_node(self) -> Change | None:
        """A node goes, or comes back under the same name."""
        name = self.random.choice(NODES)
        old = self.objects.get(("Node", name))
        if old is None:
            return self.put(self._new_node(name))
        return ("Node", old, None) if self.chance(3) else None

    def pod(self) -> Change | None:
        made = super().pod()
        # Others need room only; what concerns volumes is another generator's.
        for one in made[1:] if made is not None else ():
            if one is not None:
                one["spec"].pop("volumes", None)
        return made

    # -- units

    def spec(self, *, gang: bool = False) -> Obj:
        spec = super().spec(gang=gang)
        spec.pop("volumes", None)
        spec.pop("resourceClaims", None)
        return spec

    def new_unit(self) -> Unit:
        """A unit comes, with its claims; everything is there at once, as PreEnqueue waits for it."""
        self.count += 1
        name = f"u{self.count}"
        size = self.random.choice((1, 1, 1, 2, 2, 3))
        unit = Unit(name, [f"{name}-{number}" for number in range(size)], name if size > 1 else "")
        unit.priority = self.random.choice((0, 0, 5, 10))
        unit.polite = self.chance(8)
        shared = self.made.claim_spec() if self.chance(4) else None
        alike, of_group = self.chance(2), size > 1 and self.chance(2)
        specs = [self._spec(size > 1) for _ in unit.pods]
        asked = [self.made.claim_spec() for _ in unit.pods]
        plain = self.chance(6)
        for number, pod in enumerate(unit.pods):
            spec = dict(specs[0 if alike else number], priority=unit.priority)
            if unit.polite:
                spec["preemptionPolicy"] = "Never"
            entries: list[Obj] = []
            status: Obj = {"phase": "Pending"}
            if shared is not None:
                self._claim(unit, f"{name}-shared", shared)
                entries.append({"name": "shared", "resourceClaimName": f"{name}-shared"})
            elif not plain:
                claim = f"{pod}-own"
                self._claim(unit, claim, asked[0 if alike else number], owner=pod)
                entries.append({"name": "own", "resourceClaimTemplateName": "t"})
                status["resourceClaimStatuses"] = [{"name": "own", "resourceClaimName": claim}]
            if entries:
                spec["resourceClaims"] = entries
            if size > 1:
                spec["schedulingGroup"] = {"podGroupName": name}
            metadata = {"labels": {"app": self.app()}, "owned": True}
            self.take("Pod", None, obj("Pod", pod, spec=spec, status=status, metadata=metadata))
        if size > 1:
            self._group(unit, size, f"{name}-shared" if shared is not None and of_group else "")
        self.units[name] = unit
        return unit

    def _spec(self, gang: bool) -> Obj:
        spec = self.spec(gang=gang) if self.chance(3) else self.plain()
        if self.chance(6):
            requests = {self.random.choice((EXTENDED, IMPLICIT)): str(self.random.choice((1, 1, 2)))}
            container = spec["containers"][0]
            own = (container.get("resources") or {}).get("requests") or {}
            spec["containers"] = [{**container, "resources": {"requests": {**own, **requests}}}]
        return spec

    def plain(self) -> Obj:
        requests = {"cpu": str(self.random.choice((0, 1, 1, 2)))}
        container = {"name": "c", "resources": {"requests": requests}}
        return {"containers": [container], "schedulerName": "default-scheduler"}

    def _claim(self, unit: Unit, name: str, spec: Obj, owner: str = "") -> None:
        if name in unit.claims:
            return
        unit.claims.append(name)
        metadata: Obj = {"owned": True, "resourceVersion": str(self.count)}
        if owner:
            reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": f"uid-Pod-{owner}"}
            metadata["ownerReferences"] = [{**reference, "controller": True}]
        made = obj("ResourceClaim", name, API, metadata=metadata, spec=spec, status={})
        self.take("ResourceClaim", None, made)

    def _group(self, unit: Unit, size: int, claim: str) -> None:
        spec: Obj = {"schedulingPolicy": {"gang": {"minCount": self.random.choice((size, size, max(1, size - 1)))}}}
        spec["priority"] = unit.priority
        if self.chance(3):
            spec["schedulingConstraints"] = {"topology": [{"key": ZONE}]}
        if self.chance(3):
            spec["disruptionMode"] = "PodGroup"
        if claim:
            spec["resourceClaims"] = [{"name": "shared", "resourceClaimName": claim}]
        self.take("PodGroup", None, obj("PodGroup", unit.name, GROUP, spec=spec, metadata={"owned": True}))

    def members(self, unit: Unit) -> list[Obj]:
        """Those that are on no node."""
        found = (self.objects.get(("Pod", name)) for name in unit.pods)
        return [pod for pod in found if pod is not None and not pod["spec"].get("nodeName")]

    def group_of(self, unit: Unit) -> Obj | None:
        return self.objects.get(("PodGroup", unit.group)) if unit.group else None

    def waiting(self) -> Iterator[Unit]:
        """Units that may be decided: nobody of them is on a node or on the way."""
        moving = {
            named["metadata"]["name"] for kind, old, new in self.coming if kind == "Pod" and (named := new or old)
        }
        for unit in list(self.units.values()):
            if len(self.members(unit)) == len(unit.pods) and moving.isdisjoint(unit.pods):
                yield unit

    def enact(self, decision: Decision) -> list[Change]:
        """Write the claims of a decision to bind, and put its pods on their way; return what was changed at once."""
        claims: dict[str, Obj] = {}
        pods: list[Change] = []
        for member in decision.placed:
            for allocation in member.allocations:
                old = self._claim_object(allocation)
                status = {"allocation": allocation.allocation, "reservedFor": [allocation.reserve_for]}
                claims[allocation.claim_name] = {**old, "status": status}
            for joined in member.reservations:
                claim = claims.get(joined.claim_name) or self.objects["ResourceClaim", joined.claim_name]
                status = dict(claim["status"])
                users = status.get("reservedFor") or []
                status["reservedFor"] = users if joined.reserve_for in users else [*users, joined.reserve_for]
                claims[joined.claim_name] = {**claim, "status": status}
            pod = self.objects["Pod", member.pod.name]
            status = {**pod["status"], "phase": "Running"}
            if member.extended is not None:
                name = member.extended.path.split("/")[1]
                mappings = list(member.extended.mappings)
                status["extendedResourceClaimStatus"] = {"resourceClaimName": name, "requestMappings": mappings}
            pods.append(("Pod", pod, {**pod, "spec": {**pod["spec"], "nodeName": member.node}, "status": status}))
        changes: list[Change] = [self.put(claim) for claim in claims.values()]
        for change in changes:
            self.take(*change)
        self.coming += pods
        return changes

    def halves(self, decision: Decision) -> bool:
        """Whether a member goes alone of a gang of which others wait: their places are free then, but not before."""
        gone = [self.objects["Pod", eviction.pod.name]["spec"] for eviction in decision.evictions if not eviction.unit]
        groups = {spec["schedulingGroup"]["podGroupName"] for spec in gone if "schedulingGroup" in spec}
        return any(self.members(unit) for unit in self.units.values() if unit.group in groups)

    def make_room(self, unit: Unit, decision: Decision) -> list[Change]:
        """Nominate the members, and put the victims on their way out; return what was changed at once."""
        for key in displaced(self.cluster.snapshot(), decision, unit.priority):
            self.cluster.forget_nomination(key)
        self.cluster.nominate(nominations_of(decision, unit.priority))
        changes = [self._nominated(member.pod.name, member.node or "") for member in decision.members]
        for eviction in decision.evictions:
            old = self.objects["Pod", eviction.pod.name]
            metadata = {**old["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            going = {**old, "metadata": metadata, "status": {**old["status"], "conditions": [PREEMPTED]}}
            self.coming += [("Pod", old, going), ("Pod", going, None)]
        return changes

    def give_up(self, unit: Unit) -> list[Change]:
        """Take back the nominations of a unit that was refused."""
        for pod in self.members(unit):
            known = self.cluster.snapshot().pods[f"default/{pod['metadata']['name']}"]
            self.cluster.forget_nomination(known.key)
        return [self._nominated(name, "") for name in unit.pods]

    def _nominated(self, name: str, node: str) -> Change:
        old = self.objects["Pod", name]
        status = {key: value for key, value in old["status"].items() if key != "nominatedNodeName"}
        change = self.put({**old, "status": {**status, **({"nominatedNodeName": node} if node else {})}})
        self.take(*change)
        return change

    def _claim_object(self, allocation: ClaimAllocation) -> Obj:
        if allocation.new_claim is not None:
            made = allocation.new_claim
            metadata = {**made["metadata"], "name": allocation.claim_name, "uid": allocation.claim_uid}
            return {**made, "apiVersion": API, "kind": "ResourceClaim", "metadata": metadata}
        return self.objects["ResourceClaim", allocation.claim_name]

    # -- claims and ends

    def claim_changes(self) -> Change | None:
        """A driver reports on a device, or an allocated claim that nobody uses is freed."""
        found = [one for (kind, _), one in sorted(self.objects.items()) if kind == "ResourceClaim"]
        held = [one for one in found if (one.get("status") or {}).get("allocation")]
        if not held:
            return None
        old = self.random.choice(held)
        status = dict(old["status"])
        if self.chance(2):
            results = status["allocation"]["devices"]["results"]
            told = [
                {
                    **{name: result[name] for name in ("driver", "pool", "device", "shareID") if name in result},
                    "conditions": [{"type": self.random.choice(("ready", "ready", "failed")), "status": "True"}],
                }
                for result in results
            ]
            status["devices"] = told
        elif not self._used(old):
            status = {}
        return "ResourceClaim", old, {**old, "status": status}

    def _used(self, claim: Obj) -> bool:
        users = {entry["uid"] for entry in claim["status"].get("reservedFor") or ()}
        return any(one["metadata"].get("uid") in users for one in self.objects.values())

    def ended(self) -> Change | None:
        """A placed pod is deleted, succeeds, or is gone."""
        placed = [
            self.objects["Pod", name] for unit in self.units.values() for name in unit.pods
            if ("Pod", name) in self.objects and self.objects["Pod", name]["spec"].get("nodeName")
        ]  # fmt: skip
        if not placed:
            return None
        old = self.random.choice(placed)
        if old["metadata"].get("deletionTimestamp") or self.chance(3):
            return "Pod", old, None
        new = {**old, "metadata": dict(old["metadata"]), "status": dict(old["status"])}
        if self.chance(2):
            new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        else:
            new["status"]["phase"] = "Succeeded"
        return "Pod", old, new

    def freed(self) -> Change | None:
        """The claim controller frees what nobody uses, or removes a user that is gone."""
        for (kind, _), old in sorted(self.objects.items()):
            if kind != "ResourceClaim" or not (old.get("status") or {}).get("allocation"):
                continue
            alive = {
                one["metadata"].get("uid") for one in self.objects.values()
                if one["kind"] in ("Pod", "PodGroup") and (one.get("status") or {}).get("phase") != "Succeeded"
            }  # fmt: skip
            users = [entry for entry in old["status"].get("reservedFor") or () if entry["uid"] in alive]
            if users != (old["status"].get("reservedFor") or []) and self.chance(2):
                status = {**old["status"], "reservedFor": users} if users else {}
                return "ResourceClaim", old, {**old, "status": status}
        return None

    def anew(self, decision_cache: Any = None) -> SchedulerCache:
        """The same cluster, read at once, by a scheduler that remembers what it ordered."""
        cluster = SchedulerCache(decision_cache)
        for one in self.objects.values():
            cluster.apply(one)
        known = self.cluster.snapshot()
        cluster.nominate(known.pod_index.nominations.values())
        for path in known.podgroup_index.evicted:
            # What only who saw it can know: the group lost a member by eviction.
            spec = {"nodeName": NODES[0], "schedulingGroup": {"podGroupName": path.split("/")[1]}}
            lost = obj("Pod", "lost", spec=spec, status={"phase": "Running", "conditions": [PREEMPTED]})
            lost["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            cluster.apply(lost)
            cluster.remove(lost)
        return cluster
