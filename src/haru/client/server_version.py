"""The version of a server, and the versions in which it serves what Haru's components work with.

Components read and write one version of each kind: v1 of claims and slices, v1beta2 of DeviceTaintRules, v1alpha2 of
PodGroups. A server of another release serves others; a client that was told so (`discovery.adapt_to_server`) sends and
reads those and converts at its edge, so that nothing behind it has to know.
Source: API lifecycle of resource.k8s.io (1.32 to 1.37) and scheduling.k8s.io (1.36, 1.37); KEP-4381, KEP-4671.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from haru.kube import kinds
from haru.kube.conversion import convert, convert_part
from haru.kube.gate_table import NEWEST, OLDEST_SERVER, gates_of
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind
from haru.kube.meta import Obj

_CLAIMS = ("v1", "v1beta2", "v1beta1")
_RULES = ("v1beta2", "v1", "v1alpha3")
_GROUPS = ("v1alpha2", "v1beta1")
_READABLE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("resource.k8s.io", "resourceclaims"): _CLAIMS,
    ("resource.k8s.io", "resourceclaimtemplates"): _CLAIMS,
    ("resource.k8s.io", "resourceslices"): _CLAIMS,
    ("resource.k8s.io", "deviceclasses"): _CLAIMS,
    ("resource.k8s.io", "devicetaintrules"): _RULES,
    ("scheduling.k8s.io", "podgroups"): _GROUPS,
    ("scheduling.k8s.io", "workloads"): _GROUPS,
}
"""(group, resource) to the versions that can be read and written; the first is the one that components use."""


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """What a server is and serves. `minor` is that of 1.MINOR, 0 where it is not known."""

    minor: int = 0
    resources: frozenset[tuple[str, str, str]] = frozenset()
    """(group, version, resource) of everything served."""
    _served: Mapping[tuple[str, str], Kind] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, minor: int, resources: Iterable[tuple[str, str, str]]) -> ServerVersion:
        """The server with these resources."""
        there = frozenset(resources)
        served = {}
        for (group, plural), versions in _READABLE.items():
            own = kinds.lookup(group, versions[0], plural)
            found = next((version for version in versions if (group, version, plural) in there), None)
            if own is not None and found not in (None, versions[0]):
                served[group, plural] = kinds.lookup(group, found or "", plural) or replace(own, version=found or "")
        return cls(minor, there, served)

    @property
    def readable(self) -> frozenset[tuple[str, str, str]]:
        """What is served of the resources that differ between releases: if it changes, components start again."""
        return frozenset(found for found in self.resources if (found[0], found[2]) in _READABLE)

    def serves(self, kind: Kind) -> bool:
        """Whether the resource is served in a version that can be read and written."""
        return (kind.group, self.kind_for(kind).version, kind.plural) in self.resources

    def kind_for(self, kind: Kind) -> Kind:
        """The kind in the version to send and to read; the kind itself where that is served, or nothing else is."""
        return self._served.get((kind.group, kind.plural), kind)

    def outgoing(self, kind: Kind, obj: Any) -> Any:
        """Convert an object, or the part of one that a merge patch is, to the version that is served."""
        if not self._served or not isinstance(obj, dict):
            return obj
        to = self.kind_for(kind)
        obj = self._with_owners(obj, outgoing=True)
        if to is kind:
            return obj
        if "apiVersion" in obj:
            return convert({**obj, "apiVersion": kind.api_version}, to)
        return convert_part(obj, kind.group, kind.version, to)

    def incoming(self, kind: Kind, obj: Obj) -> Obj:
        """Convert an object that was read, with or without its apiVersion, to the version of `kind`."""
        if not self._served:
            return obj
        served = self.kind_for(kind)
        obj = self._with_owners(obj, outgoing=False)
        if served is kind or obj.get("kind", kind.kind) != kind.kind:
            return obj
        converted = convert({**obj, "apiVersion": served.api_version}, kind)
        return converted if "apiVersion" in obj else {key: converted[key] for key in converted if key != "apiVersion"}

    def incoming_list(self, kind: Kind, answer: Obj) -> Obj:
        """Convert each item of a list that was read."""
        if not self._served or answer.get("kind") != kind.list_kind:
            return answer
        items = [self.incoming(kind, item) for item in answer.get("items") or ()]
        return {**answer, "apiVersion": kind.api_version, "items": items}

    def _with_owners(self, obj: Obj, *, outgoing: bool) -> Obj:
        """Refer to owners in the version that is served, so that the garbage collector finds them; or back."""
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("ownerReferences"):
            return obj
        references = metadata["ownerReferences"]
        versions = {
            (own.kind, source.api_version): target.api_version
            for (group, plural), served in self._served.items()
            if (own := kinds.lookup(group, _READABLE[group, plural][0], plural)) is not None
            for source, target in [(own, served) if outgoing else (served, own)]
        }
        changed = [
            {**owner, "apiVersion": versions.get((owner.get("kind"), owner.get("apiVersion")), owner.get("apiVersion"))}
            for owner in references
        ]
        return obj if changed == references else {**obj, "metadata": {**metadata, "ownerReferences": changed}}


AS_WRITTEN = ServerVersion()
"""Nothing is known of the server: every kind is sent and read as it is."""


def gates_for_server(
    given: Mapping[str, bool], version: ServerVersion, kept: Mapping[str, bool] | None = None
) -> tuple[FeatureGates, list[str]]:
    """The gates of a scheduler beside this server, and those that were given but that its version does not have.

    Gates that nobody gave are as the server's version has them by default, or follow from what it serves: a server
    that serves PodGroups has GenericWorkload on; `kept` are those that were found out (`gate_probes`). From 1.37 on
    GenericWorkload includes the gates of gangs and of their preemption.
    """
    minor = min(max(version.minor or NEWEST, OLDEST_SERVER), NEWEST)
    there = gates_of(minor)
    groups = version.serves(kinds.known_kind("scheduling.k8s.io/v1alpha2", "PodGroup"))
    found = {
        "DynamicResourceAllocation": version.serves(kinds.known_kind("resource.k8s.io/v1", "ResourceSlice")),
        "DRADeviceTaintRules": version.serves(kinds.known_kind("resource.k8s.io/v1beta2", "DeviceTaintRule")),
        "GenericWorkload": groups,
    }
    if found["DRADeviceTaintRules"]:
        found["DRADeviceTaints"] = True
    if version.minor > NEWEST:
        found |= dict.fromkeys(("GangScheduling", "WorkloadAwarePreemption"), groups)
    found |= kept or {}
    asked = {name: value for name, value in given.items() if name in there or name in ("AllAlpha", "AllBeta")}
    found = {name: value for name, value in found.items() if name in there and not there[name].locked}
    off = {name for name, value in {**found, **asked}.items() if not value}
    usable = {name: value for name, value in found.items() if not (value and off.intersection(there[name].requires))}
    return FeatureGates({**usable, **asked}, minor), sorted(given.keys() - asked.keys())
