"""Pods as the engine sees them: decoded once per version into what filters, scores and claims ask for.

Source: kube-scheduler's PodInfo, as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

from haru.engine.equivalence.decision_cache import cached_property
from haru.engine.state.affinity_terms import NO_TERMS, PodAffinityTerms
from haru.engine.state.decision import GroupKey, PodKey
from haru.engine.state.pod_values import (
    HostPort,
    PodClaim,
    RunDeadline,
    amount,
    asks_for_both,
    host_ports_of,
    normalized_image,
)
from haru.kube.meta import Obj, controller_of
from haru.kube.node_features import needed_features
from haru.kube.quantity import parse_quantity
from haru.kube.resources import claimed_resources, pod_requests

# What a container without requests counts as when nodes are scored (never when they are filtered).
_SCORING_MISSING = {"cpu": parse_quantity("100m"), "memory": parse_quantity("200Mi")}
# What a pod knows that depends on what its devices take of its node.
_TAKEN = ("usage", "scoring_usage", "weight")
_DEVICES_TAKE = "nodeAllocatableResourceClaimStatuses"
_NO_LABELS: Mapping[str, str] = {}

RUN_TIME_LIMIT = "haru.dev/run-time-limit"
"""The annotation by which pods and PodGroups promise how long they run at most."""
NOT_STARTED = "~"
"""Later than any time."""


@lru_cache(maxsize=4096)
def _one_of_equals(weight: Hashable) -> Hashable:
    """Return the first of equal values: who keeps those of thousands of pods keeps few."""
    return weight


_DISK_SOURCES = frozenset({"gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"})
_NOTHING_READ = dict.fromkeys(("hostname", "resourceClaims", "schedulingGroup"))
"""In place of members of a spec that pods of one template may differ in, and that nothing below depends on."""
_READ_ONCE = (
    "requests",
    "extended_resources",
    "scoring_requests",
    "host_ports",
    "tolerations",
    "disks",
    "volume_claims",
    "terms",
    "images",
    "needed_features",
    "has_required_anti_affinity",
    "inter_pod",
    "shape",
    "priority",
    "scheduler_name",
    "gated",
)


_ALL_READ = frozenset(_READ_ONCE)
_SHARED = (*_READ_ONCE, *_TAKEN)
_VALUES_OF_SHARED = attrgetter(*_SHARED)
_OF_SPEC = frozenset({*_READ_ONCE, *_TAKEN, "claims", "group"})
"""What is read of a spec, and where no part of a status counts, too, of nothing else."""
_RESIZED = frozenset({"containerStatuses", "initContainerStatuses", "resources", _DEVICES_TAKE})
"""Members of a status that the request, or what is used of a node, depends on."""


# Not frozen, which would take thrice as long to make; never changed.
@dataclass(eq=False)
class PodInfo:
    """One version of a pod. `node` is where it is bound, or assumed to be.

    `claimed` is what its devices take of the node, as a decision has it; None: what its status says (KEP-5517).
    `reserved_node` is the only node where it can use a claim that is reserved for it.
    """

    key: PodKey
    obj: Obj
    node: str = ""
    claimed: tuple[Obj, ...] | None = None
    reserved_node: str = ""

    @staticmethod
    def of(obj: Obj) -> PodInfo:
        """Decode a Pod object."""
        meta, spec = obj["metadata"], obj.get("spec") or {}
        key = PodKey(meta.get("namespace") or "default", meta["name"], meta.get("uid") or "")
        found = PodInfo(key, obj, spec.get("nodeName") or "")
        known = found.__dict__
        known["spec"], known["status"] = spec, obj.get("status") or {}
        # Whoever meets a pod asks for these.
        known["labels"], known["deleting"] = meta.get("labels") or _NO_LABELS, bool(meta.get("deletionTimestamp"))
        return found

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """`spec`."""
        return self.obj.get("spec") or {}

    @cached_property
    def status(self) -> Mapping[str, Any]:
        """`status`."""
        return self.obj.get("status") or {}

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """`metadata.labels`."""
        return self.obj["metadata"].get("labels") or _NO_LABELS

    @cached_property
    def group(self) -> GroupKey | None:
        """The PodGroup that the pod names."""
        name = (self.spec.get("schedulingGroup") or {}).get("podGroupName")
        return GroupKey(self.key.namespace, name) if name else None

    @cached_property
    def controller(self) -> Obj | None:
        """The owner reference of the controller that made it."""
        return controller_of(self.obj) if "ownerReferences" in self.obj["metadata"] else None

    @cached_property
    def priority(self) -> int:
        """The resolved priority; 0 if none was given."""
        return int(self.spec.get("priority") or 0)

    @cached_property
    def scheduler_name(self) -> str:
        """The name of its scheduler."""
        return str(self.spec.get("schedulerName") or "default-scheduler")

    @cached_property
    def terminal(self) -> bool:
        """It has run to its end and uses nothing any more."""
        return self.status.get("phase") in ("Succeeded", "Failed")

    @cached_property
    def deleting(self) -> bool:
        """Its deletion was asked for; it uses its room until it is gone."""
        return bool(self.obj["metadata"].get("deletionTimestamp"))

    @cached_property
    def preempted(self) -> bool:
        """It is being deleted to make room for others, whoever asked for it."""
        return self.deleting and self.marked_for_preemption

    @property
    def marked_for_preemption(self) -> bool:
        """Its condition says that it goes, or is about to go, to make room for others."""
        return any(
            (c.get("type"), c.get("status"), c.get("reason")) == ("DisruptionTarget", "True", "PreemptionByScheduler")
            for c in self.status.get("conditions") or ()
        )

    @cached_property
    def nominated_node(self) -> str:
        """The node that it waits for: room is being made there, or it was about to be bound to it."""
        return self.reserved_node or str(self.status.get("nominatedNodeName") or "")

    @cached_property
    def gated(self) -> bool:
        """Scheduling gates hold it."""
        return bool(self.spec.get("schedulingGates"))

    @cached_property
    def requests(self) -> Mapping[str, int]:
        """The effective request, zero amounts left out."""
        amounts = {name: amount(name, quantity) for name, quantity in pod_requests(self.obj).items()}
        return {name: value for name, value in amounts.items() if value}

    @cached_property
    def extended_resources(self) -> tuple[str, ...]:
        """The extended resources that it requests."""
        return tuple([name for name in self.requests if "/" in name])

    @cached_property
    def usage(self) -> Mapping[str, int]:
        """Its requests, and what its devices take of its node (KEP-5517)."""
        if not (self.claimed or self.status.get(_DEVICES_TAKE)):
            return self.requests
        total = dict(self.requests)
        for name, quantity in claimed_resources(self.obj, self.claimed).items():
            total[name] = total.get(name, 0) + amount(name, quantity)
        return total

    @cached_property
    def scoring_requests(self) -> tuple[int, int]:
        """Cpu and memory as scores count them: a container that asks for none counts as a small one."""
        if all(map(asks_for_both, (*(self.spec.get("initContainers") or ()), *(self.spec.get("containers") or ())))):
            return self.requests.get("cpu", 0), self.requests.get("memory", 0)
        counted = pod_requests(self.obj, _SCORING_MISSING)
        cpu, memory = (amount(name, counted[name]) if name in counted else 0 for name in ("cpu", "memory"))
        return cpu, memory

    @cached_property
    def scoring_usage(self) -> tuple[int, int]:
        """`scoring_requests`, and what its devices take of its node."""
        cpu, memory = self.scoring_requests
        usage, requests = self.usage, self.requests
        if usage is requests:
            return self.scoring_requests
        cpu += usage.get("cpu", 0) - requests.get("cpu", 0)
        return cpu, memory + usage.get("memory", 0) - requests.get("memory", 0)

    @cached_property
    def weight(self) -> Hashable:
        """A key that is equal for pods that take the same of a node."""
        return _one_of_equals((tuple(sorted(self.usage.items())), self.scoring_usage, self.host_ports))

    @cached_property
    def host_ports(self) -> frozenset[HostPort]:
        """The ports of the node that its containers and sidecars want."""
        return host_ports_of(self.spec)

    @cached_property
    def claims(self) -> tuple[PodClaim, ...]:
        """`spec.resourceClaims`."""
        return tuple(
            PodClaim(c["name"], c.get("resourceClaimName") or "", c.get("resourceClaimTemplateName") or "")
            for c in self.spec.get("resourceClaims") or ()
        )

    @cached_property
    def claim_paths(self) -> frozenset[str]:
        """`namespace/name` of the claims that it names, and of those that were made for it from templates."""
        made = {s.get("name"): s.get("resourceClaimName") for s in self.status.get("resourceClaimStatuses") or ()}
        names = (claim.claim_name or made.get(claim.name) for claim in self.claims)
        return frozenset(f"{self.key.namespace}/{name}" for name in names if name)

    @property
    def is_unlimited(self) -> bool:
        """Return whether neither the pod nor a group or Job of its can limit its time."""
        if self.spec.get("activeDeadlineSeconds") is not None or self.group is not None:
            return False
        metadata = self.obj["metadata"]
        if RUN_TIME_LIMIT in (metadata.get("annotations") or ()):
            return False
        owner = self.controller if "ownerReferences" in metadata else None
        return owner is None or owner.get("kind") != "Job"

    @property
    def ends_by_itself(self) -> bool:
        """Return whether it ends without being deleted; a controller keeps others running."""
        return self.spec.get("restartPolicy", "Always") != "Always" or self.controller is None

    @cached_property
    def run_deadline(self) -> RunDeadline:
        """When it ends, as far as its own object says."""
        some_day = self.ends_by_itself if self.is_unlimited else None
        return RunDeadline(some_day, str(self.status.get("startTime") or NOT_STARTED))

    @cached_property
    def tolerations(self) -> tuple[Obj, ...]:
        """`spec.tolerations`."""
        return tuple(self.spec.get("tolerations") or ())

    @cached_property
    def volume_claims(self) -> tuple[str, ...]:
        """Names of the PersistentVolumeClaims its volumes use, generic ephemeral ones included."""
        names = []
        for volume in self.spec.get("volumes") or ():
            if volume.get("persistentVolumeClaim"):
                names.append(volume["persistentVolumeClaim"]["claimName"])
            elif volume.get("ephemeral"):
                names.append(f"{self.key.name}-{volume['name']}")
        return tuple(names)

    @cached_property
    def ephemeral_claims(self) -> frozenset[str]:
        """Those of `volume_claims` that are made for the pod."""
        volumes = self.spec.get("volumes") or ()
        return frozenset(f"{self.key.name}-{volume['name']}" for volume in volumes if volume.get("ephemeral"))

    @cached_property
    def disks(self) -> tuple[Obj, ...]:
        """Volumes of the old in-tree kinds that may not be shared between pods of one node."""
        return tuple(v for v in self.spec.get("volumes") or () if not _DISK_SOURCES.isdisjoint(v))

    def affinity(self, kind: str) -> Mapping[str, Any]:
        """`spec.affinity.<kind>`: nodeAffinity, podAffinity or podAntiAffinity."""
        return (self.spec.get("affinity") or {}).get(kind) or {}

    @cached_property
    def terms(self) -> PodAffinityTerms:
        """Its inter-pod terms, required and preferred."""
        affinity = self.spec.get("affinity")
        return PodAffinityTerms.of(self.key.namespace, affinity) if affinity else NO_TERMS

    @cached_property
    def images(self) -> tuple[str, ...]:
        """The images of its containers, init containers first, each with a tag or digest."""
        containers = [*(self.spec.get("initContainers") or ()), *(self.spec.get("containers") or ())]
        return tuple(normalized_image(container.get("image") or "") for container in containers)

    @cached_property
    def needed_features(self) -> tuple[str, ...]:
        """The features that a node must declare for it (KEP-5328), in order of name."""
        return tuple(sorted(needed_features(self.spec)))

    @cached_property
    def has_required_anti_affinity(self) -> bool:
        """Whether it has required anti-affinity terms."""
        return bool(self.affinity("podAntiAffinity").get("requiredDuringSchedulingIgnoredDuringExecution"))

    @cached_property
    def inter_pod(self) -> bool:
        """Whether its place depends on which nodes other pods are on, beside what they use."""
        spread = any(
            c.get("whenUnsatisfiable") == "DoNotSchedule" for c in self.spec.get("topologySpreadConstraints") or ()
        )
        return spread or bool(self.affinity("podAffinity") or self.affinity("podAntiAffinity"))

    @cached_property
    def shape(self) -> str:
        """A key that is equal for pods with the same feasible nodes, labels and claims aside."""
        spec = self.spec
        parts = [
            self.key.namespace,
            sorted(self.requests.items()),
            self.scoring_requests,
            sorted(self.host_ports),
            self.tolerations,
            spec.get("nodeSelector"),
            spec.get("affinity"),
            spec.get("topologySpreadConstraints"),
            self.volume_claims,
            self.disks,
            self.needed_features,
            self.node,
        ]
        return json.dumps(parts, sort_keys=True)

    def lend_decoded(self, pods: Sequence[PodInfo]) -> None:
        """Let pods with an equal spec, as most pods of a gang have, take over the decoded fields."""
        spec, node, namespace = self.spec, self.node, self.key.namespace
        volumes = spec.get("volumes") or ()
        if self.claimed or not _RESIZED.isdisjoint(self.status) or any(volume.get("ephemeral") for volume in volumes):
            return
        like = {**spec, **_NOTHING_READ}
        for pod in pods:
            known, own = pod.__dict__, pod.spec
            if known.keys() >= _ALL_READ:
                continue
            if pod.node != node or pod.claimed or pod.key.namespace != namespace or not _RESIZED.isdisjoint(pod.status):
                continue
            if own == spec:
                known.update(self._read, claims=self.claims)
            elif len(own) == len(spec) and {**own, **_NOTHING_READ} == like:
                known.update(self._read)
                if own.get("resourceClaims") == spec.get("resourceClaims"):
                    known["claims"] = self.claims

    @cached_property
    def _read(self) -> Mapping[str, Any]:
        """The decoded fields that pods with an equal spec share."""
        return dict(zip(_SHARED, _VALUES_OF_SHARED(self), strict=True))

    def confirms(self, assumed: PodInfo) -> bool:
        """Return whether this is an assumed pod as the API has it on that node, and take over what was read of it.

        Its spec names the node and its status that it was scheduled; all else that takes of a node is the same.
        """
        spec, before = self.spec, assumed.spec
        if not self.node or self.node != assumed.node or self.key != assumed.key or "nodeName" in before:
            return False
        if self.terminal or assumed.terminal or assumed.claimed or len(spec) != len(before) + 1:
            return False
        if not before.items() <= spec.items():
            return False
        if not (_RESIZED.isdisjoint(self.status) and _RESIZED.isdisjoint(assumed.status)):
            return False
        known = assumed.__dict__
        names = [*filter(known.__contains__, _OF_SPEC)]
        self.__dict__.update(zip(names, map(known.__getitem__, names), strict=True))
        return True

    def has_owners_of(self, other: PodInfo) -> bool:
        """Return whether the metadata tells the owner and labels of another version: both are of one workload."""
        return self.labels == other.labels and self.controller == other.controller

    def with_reserved_node(self, node: str) -> PodInfo:
        """Return the pod with another node where a claim is reserved for it."""
        kept = object.__new__(PodInfo)
        kept.__dict__.update(self.__dict__)
        kept.__dict__.pop("nominated_node", None)
        kept.__dict__["reserved_node"] = node
        return kept

    def bound_to(self, node: str, claimed: tuple[Obj, ...] | None = None) -> PodInfo:
        """Return the pod on a node; `claimed` is what its devices take there, if a decision says so."""
        bound = object.__new__(PodInfo)
        known = bound.__dict__
        # What was read of the object so far stays true, but for what depends on the place.
        known.update(self.__dict__)
        known.pop("shape", None)
        known.pop("_read", None)
        if self.claimed or claimed or _DEVICES_TAKE in self.status:
            for name in _TAKEN:
                known.pop(name, None)
        known["node"], known["claimed"] = node, self.claimed if claimed is None else claimed
        return bound
