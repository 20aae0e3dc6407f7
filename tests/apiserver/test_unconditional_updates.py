"""PUT without a resourceVersion: which kinds may be replaced by who does not say which version of them is meant."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod

from haru.kube.kinds import Kind, all_kinds
from haru.kube.strategy import allows_unconditional_update

Obj = dict[str, Any]
MERGE = "application/merge-patch+json"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
REFUSED = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"

# AllowUnconditionalUpdate of each strategy of 1.36.2.
WITHOUT_VERSION = {
    "": (
        "configmaps endpoints events limitranges namespaces nodes persistentvolumeclaims persistentvolumes pods "
        "podtemplates replicationcontrollers resourcequotas secrets serviceaccounts services"
    ),
    "apps": "controllerrevisions daemonsets deployments replicasets statefulsets",
    "autoscaling": "horizontalpodautoscalers",
    "batch": "cronjobs jobs",
    "certificates.k8s.io": "certificatesigningrequests",
    "discovery.k8s.io": "endpointslices",
    "events.k8s.io": "events",
    "flowcontrol.apiserver.k8s.io": "flowschemas prioritylevelconfigurations",
    "networking.k8s.io": "ingresses ingressclasses ipaddresses networkpolicies servicecidrs",
    "rbac.authorization.k8s.io": "clusterrolebindings clusterroles rolebindings roles",
    "resource.k8s.io": "deviceclasses devicetaintrules resourceclaims resourceclaimtemplates resourceslices",
    "scheduling.k8s.io": "podgroups priorityclasses workloads",
    "storage.k8s.io": "storageclasses volumeattributesclasses",
}
WITH_VERSION = {
    "admissionregistration.k8s.io": (
        "mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations "
        "validatingadmissionpolicies validatingadmissionpolicybindings validatingwebhookconfigurations"
    ),
    "apiextensions.k8s.io": "customresourcedefinitions",
    "apiregistration.k8s.io": "apiservices",
    "certificates.k8s.io": "clustertrustbundles podcertificaterequests",
    "coordination.k8s.io": "leasecandidates leases",
    "node.k8s.io": "runtimeclasses",
    "policy": "poddisruptionbudgets",
    "resource.k8s.io": "resourcepoolstatusrequests",
    "storage.k8s.io": "csidrivers csinodes csistoragecapacities volumeattachments",
}


def expected() -> dict[tuple[str, str], bool]:
    """(group, plural) -> whether it is written without a version."""
    return {
        (group, plural): free
        for table, free in ((WITHOUT_VERSION, True), (WITH_VERSION, False))
        for group, plurals in table.items()
        for plural in plurals.split()
    }


@pytest.mark.parametrize("kind", [k for k in all_kinds() if "update" in k.verbs], ids=str)
def test_unconditional_update_table_equals_reference(kind: Kind) -> None:
    assert allows_unconditional_update(kind) is expected()[kind.group, kind.plural]


# --- the recorded answers


def recorded(reference_data: Path) -> Iterator[tuple[str, list[Obj]]]:
    """The name of each sequence, and its steps that make an object and replace it without a version."""
    with gzip.open(reference_data / "vectors" / "api" / "crud.jsonl.gz", "rt") as file:
        for line in file:
            sequence = json.loads(line)
            steps = sequence["steps"]
            before = [s for s in steps if s["method"] == "POST" and (s.get("setup") or s.get("save") == "c")]
            after = [s for s in steps if s.get("what") in ("update no rv", "update other uid")]
            if after:
                yield sequence["name"], before + after


def body_of(step: Obj, created: Obj) -> Obj:
    """The body of a step: as it stands, or the created object with changes at paths."""
    if "$object" not in step["body"]:
        return step["body"]
    assert step["body"]["$object"] == "c"
    body = copy.deepcopy(created)
    for path, value in step["body"]["$set"].items():
        *parents, last = path.split("/")
        at = body
        for name in parents:
            at = at.setdefault(name, {})
        if value == "$delete":
            at.pop(last, None)
        else:
            at[last] = value
    return body


async def test_replace_without_version_behaves_as_recorded(api: Caller, reference_data: Path) -> None:
    played, differing = 0, []
    for number, (name, steps) in enumerate(recorded(reference_data)):
        created: Obj = {}
        for step in json.loads(json.dumps(steps).replace("{{run}}", f"z{number}")):
            answer = await api(step["method"], step["path"], body_of(step, created))
            if step.get("save"):
                created = answer.json
                assert answer.status == 201, (name, answer.body)
            if step.get("setup") or step["method"] == "POST":
                continue
            played += 1
            wanted = step["expect"]
            causes = [[c["reason"], c["field"], c["message"]] for c in answer.json.get("details", {}).get("causes", ())]
            reason = answer.json["reason"] if answer.status >= 400 else None
            found = (answer.status, reason, causes)
            if found != (wanted["code"], wanted.get("reason"), wanted.get("causes") or []):
                differing.append((name, step["what"], found, wanted["code"]))
        await api("DELETE", step["path"])  # some names are the same in all versions
    assert played > 150
    assert differing == []


# --- what it is for


def lease(holder: str, **metadata: Any) -> Obj:
    return {"metadata": {"name": "leader", **metadata}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}}


async def test_second_update_of_a_lease_conflicts(api: Caller) -> None:
    seen = (await api.create(LEASES, lease("nobody")))["metadata"]["resourceVersion"]
    first = await api("PUT", f"{LEASES}/leader", lease("a", resourceVersion=seen))
    second = await api("PUT", f"{LEASES}/leader", lease("b", resourceVersion=seen))
    assert (first.status, second.status) == (200, 409)
    for version in ({}, {"resourceVersion": ""}, {"resourceVersion": "0"}):
        blind = await api("PUT", f"{LEASES}/leader", lease("b", **version))
        assert (blind.status, blind.json["reason"]) == (422, "Invalid")
        assert blind.json["message"] == f'leases.coordination.k8s.io "leader" is invalid: {REFUSED}'
        assert blind.json["details"]["kind"] == "leases"
    assert (await api.get(f"{LEASES}/leader"))["spec"]["holderIdentity"] == "a"


async def test_patch_keeps_resource_version_unless_removed(api: Caller) -> None:
    await api.create(LEASES, lease("a"))
    assert (await api("PATCH", f"{LEASES}/leader", {"spec": {"holderIdentity": "b"}}, type=MERGE)).status == 200
    without = {"metadata": {"resourceVersion": None}, "spec": {"holderIdentity": "c"}}
    answer = await api("PATCH", f"{LEASES}/leader", without, type=MERGE)
    assert answer.status == 422 and REFUSED in answer.json["message"]
    applied = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease("d")}
    url = f"{LEASES}/leader?fieldManager=me&force=true"
    assert (await api("PATCH", url, applied, type="application/apply-patch+yaml")).status == 200


async def test_status_update_and_uid_follow_the_same_rule(api: Caller) -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
    budget = await api.create(budgets, {"metadata": {"name": "b"}, "spec": spec})
    del budget["metadata"]["resourceVersion"]
    budget["status"]["disruptionsAllowed"] = 5
    answer = await api("PUT", f"{budgets}/b/status", budget)
    assert answer.status == 422 and REFUSED in answer.json["message"]
    budget["metadata"]["uid"] = "another"
    assert (await api("PUT", f"{budgets}/b", budget)).status == 409, "another object is told first"


@pytest.mark.parametrize("version", [None, "", "0"])
async def test_most_kinds_accept_update_without_version(api: Caller, version: str | None) -> None:
    await api.create(MAPS, config_map("a", text="1"))
    replaced = config_map("a", text="2")
    replaced["metadata"]["resourceVersion"] = version
    answer = await api("PUT", f"{MAPS}/a", replaced)
    assert (answer.status, answer.json["data"]) == (200, {"text": "2"})


async def test_eviction_decrements_its_budget(api: Caller) -> None:
    """The server's own writes name the version that they read."""
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    running = pod("a") | {"metadata": {"name": "a", "labels": {"a": "b"}}}
    await api.create(PODS, running)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert (await api("PATCH", f"{PODS}/a/status", {"status": ready}, type=MERGE)).status == 200
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"a": "b"}}}
    await api.create(budgets, {"metadata": {"name": "b"}, "spec": spec})
    status = {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1, "expectedPods": 1}
    assert (await api("PATCH", f"{budgets}/b/status", {"status": status}, type=MERGE)).status == 200
    assert (await api("POST", f"{PODS}/a/eviction", {"metadata": {"name": "a"}})).status == 201
    assert (await api.get(f"{budgets}/b"))["status"]["disruptionsAllowed"] == 0
