"""ServiceCIDRs, IPAddresses, LeaseCandidates and Events: one good object of each, a fault at a time."""

from __future__ import annotations

from typing import Any

import pytest
from kube_cases import REMOVE, Obj, problems, put, update_problems
from test_validation_kinds import CONFIG, NEW_EVENT, STORAGE, thing

CIDR = thing("networking.k8s.io/v1", "ServiceCIDR", spec={"cidrs": ["10.0.0.0/16"]})
PARENT = {"resource": "services", "name": "a", "namespace": "team"}
ADDRESS = put(thing("networking.k8s.io/v1", "IPAddress", spec={"parentRef": PARENT}), "metadata.name", "10.0.0.1")
CANDIDATE = thing(
    "coordination.k8s.io/v1beta1",
    "LeaseCandidate",
    "team",
    spec={
        "leaseName": "l",
        "binaryVersion": "1.36.0",
        "emulationVersion": "1.35.0",
        "strategy": "OldestEmulationVersion",
    },
)
GROUP = ("group", "resource", "name")
OWNED = [{"manager": "m" * 129, "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:data": {}}}]


def fields(texts: list[str]) -> list[str]:
    return [text.split(":")[0] for text in texts]


@pytest.mark.parametrize("obj", [CIDR, ADDRESS, CANDIDATE, NEW_EVENT, STORAGE], ids=lambda obj: str(obj["kind"]))
def test_good_object_is_taken_and_may_stay_as_it_is(obj: Obj) -> None:
    assert problems(obj) == [] == update_problems(obj, obj)


@pytest.mark.parametrize(
    ("obj", "path", "value", "expected"),
    [
        (CIDR, "spec.cidrs", [], ["spec.cidrs"]),
        (CIDR, "spec.cidrs", ["10.0.0.1/16", "nets"], ["spec.cidrs[0]", "spec.cidrs[1]"]),
        (CIDR, "spec.cidrs", ["10.0.0.0/16", "10.1.0.0/16"], ["spec.cidrs"]),
        (CIDR, "spec.cidrs", ["10.0.0.0/16", "fd00::/64"], []),
        (ADDRESS, "spec.parentRef", REMOVE, ["spec.parentRef"]),
        (ADDRESS, "spec.parentRef", {"group": "G", "resource": "a/b"}, [f"spec.parentRef.{n}" for n in GROUP]),
        (CANDIDATE, "spec.binaryVersion", "1.36", ["spec.binaryVersion", "spec.binaryVersion"]),
        (CANDIDATE, "spec.binaryVersion", "1.35.0-rc.1", ["spec.binaryVersion"]),
        (CANDIDATE, "spec.binaryVersion", "1.35.0+build", []),
        (CANDIDATE, "spec.emulationVersion", "v1", ["spec.emulationVersion", "spec.emulationVersion"]),
        (CANDIDATE, "spec.emulationVersion", REMOVE, ["spec.emulationVersion"]),
        (CANDIDATE, "spec.strategy", "Newest", ["spec.strategy.strategy"]),
        (CANDIDATE, "spec.strategy", "example.com/newest", []),
        (NEW_EVENT, "series", {"count": 1}, ["series.count", "series.lastObservedTime"]),
        (NEW_EVENT, "deprecatedSource", {"component": "c"}, ["source"]),
        (NEW_EVENT, "note", "x" * 1025, ["message"]),
    ],
)
def test_new_object_with_a_fault_is_refused_there(obj: Obj, path: str, value: Any, expected: list[str]) -> None:
    assert fields(problems(put(obj, path, value))) == expected


@pytest.mark.parametrize(
    ("old", "path", "value", "expected"),
    [
        (CIDR, "spec.cidrs", ["10.1.0.0/16"], ["spec.cidrs[0]"]),
        (CIDR, "spec.cidrs", ["10.0.0.0/16", "fd00::/64"], []),
        (CIDR, "spec.cidrs", [], ["spec.cidrs"]),
        (ADDRESS, "spec.parentRef.name", "b", ["spec.parentRef"]),
        (CANDIDATE, "spec.leaseName", "other", ["spec.leaseName"]),
        (NEW_EVENT, "regarding", {"kind": "Pod"}, ["involvedObject.namespace", "involvedObject"]),
        (NEW_EVENT, "reason", "", ["reason", "reason"]),
        (NEW_EVENT, "series", {"count": 1}, ["series.count", "series.lastObservedTime"]),
        (STORAGE, "reclaimPolicy", "Keep", ["reclaimPolicy", "reclaimPolicy"]),
        (CONFIG, "metadata.managedFields", OWNED, ["metadata.managedFields[0].manager"]),
    ],
)
def test_update_with_a_fault_is_refused_there(old: Obj, path: str, value: Any, expected: list[str]) -> None:
    assert fields(update_problems(put(old, path, value), old)) == expected
