"""Gangs from their claims to their end, in both arrangements: shared claims, Jobs with policies, suspension."""

from __future__ import annotations

from typing import Any

from system_cluster import Cluster, job, pod, pod_group, request, template

from haru_process import condition, phase, until

Obj = dict[str, Any]


def test_group_claim_is_created_shared_and_deleted_with_its_group(cluster: Cluster, space: str) -> None:
    api = cluster.api
    api.create(template("one", request()), space)
    group = pod_group("team", 3)
    group["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    created = api.create(group, space)
    for number in range(3):
        api.create(pod(f"team-{number}", group="team", template="one"), space)
    pods = cluster.wait_running(space, 3)
    [shared] = api.list("resourceclaims", space)
    assert {cluster.claim_of(p)["metadata"]["uid"] for p in pods} == {shared["metadata"]["uid"]}
    assert [(o["kind"], o["uid"]) for o in shared["metadata"]["ownerReferences"]] == [
        ("PodGroup", created["metadata"]["uid"])
    ]
    reference = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "team"}
    assert shared["status"]["reservedFor"] == [{**reference, "uid": created["metadata"]["uid"]}]
    recorded = api.get("podgroups", "team", space)["status"]["resourceClaimStatuses"]
    assert recorded == [{"name": "gpu", "resourceClaimName": shared["metadata"]["name"]}]
    # Without members it is still the group's, and the next one that comes finds it.
    for each in pods:
        api.delete("pods", each["metadata"]["name"], space)
    until("no member is left", lambda: cluster.pods(space) == [])
    assert len(cluster.held(space)) == 1
    for number in range(3, 6):
        api.create(pod(f"team-{number}", group="team", template="one"), space)
    cluster.wait_running(space, 3)
    assert [c["metadata"]["uid"] for c in api.list("resourceclaims", space)] == [shared["metadata"]["uid"]]
    # The group waits for its members, and the claim for the group.
    api.delete("podgroups", "team", space)
    assert api.get("podgroups", "team", space)["metadata"]["deletionTimestamp"]
    for each in cluster.pods(space):
        api.delete("pods", each["metadata"]["name"], space)
    until("the group is gone", lambda: api.find("podgroups", "team", space) is None)
    until("its claim is gone", lambda: api.list("resourceclaims", space) == [])


def test_suspended_gang_releases_devices_and_runs_again(cluster: Cluster, space: str) -> None:
    api = cluster.api
    api.create(template("one", request()), space)
    api.create(
        {**job("train", 4, template="one"), "spec": {**job("train", 4, template="one")["spec"], "suspend": True}}, space
    )
    until("it is suspended", lambda: condition(api.get("jobs", "train", space), "Suspended").get("status") == "True")
    assert api.list("podgroups", space) == []
    api.patch("jobs", "train", {"spec": {"suspend": False}}, space)
    cluster.wait_running(space, 4)
    [group] = api.list("podgroups", space)
    assert len(cluster.held(space)) == 4
    api.patch("jobs", "train", {"spec": {"suspend": True}}, space)
    until("the devices are free", lambda: cluster.held(space) == [] and cluster.pods(space) == [])
    assert [g["metadata"]["uid"] for g in api.list("podgroups", space)] == [group["metadata"]["uid"]]
    api.patch("jobs", "train", {"spec": {"suspend": False}}, space)
    pods = cluster.wait_running(space, 4)
    assert {p["spec"]["schedulingGroup"]["podGroupName"] for p in pods} == {group["metadata"]["name"]}
    assert api.get("jobs", "train", space)["status"].get("failed", 0) == 0


def test_exit_code_fails_job_and_eviction_does_not(cluster: Cluster, space: str) -> None:
    api = cluster.api
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
    body = job("train", 3)
    body["spec"] |= {"backoffLimit": 0, "podFailurePolicy": {"rules": rules}}
    api.create(body, space)
    victim = cluster.wait_running(space, 3)[0]["metadata"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": victim["name"], "namespace": space}}
    status, _ = api.call("POST", f"/api/v1/namespaces/{space}/pods/{victim['name']}/eviction", eviction)
    assert status == 201

    def replaced() -> bool:
        uids = {p["metadata"]["uid"] for p in cluster.running(space)}
        return len(uids) == 3 and victim["uid"] not in uids

    until("the evicted one is replaced", replaced)
    assert api.get("jobs", "train", space)["status"].get("failed", 0) == 0
    api.delete("jobs", "train", space, propagationPolicy="Background")  # batch/v1 leaves a Job's pods by default
    until("the first job is gone", lambda: cluster.pods(space) == [])

    annotations = body["spec"]["template"]["metadata"]["annotations"]
    annotations |= {"simulated.haru.dev/fail": "0", "simulated.haru.dev/exit-code": "42"}
    api.create({**body, "metadata": {"name": "broken"}}, space)
    until("it has failed", lambda: condition(api.get("jobs", "broken", space), "Failed").get("status") == "True")
    failed = condition(api.get("jobs", "broken", space), "Failed")
    assert failed["reason"] == "PodFailurePolicy"
    assert "failed with exit code 42 matching FailJob rule at index 1" in failed["message"]


def test_success_of_leader_completes_job(cluster: Cluster, space: str) -> None:
    api = cluster.api
    body = job("serve", 3)
    body["spec"] |= {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
    api.create(body, space)
    leader = next(p for p in cluster.wait_running(space, 3) if p["spec"]["hostname"] == "serve-0")
    done = {"metadata": {"annotations": {"simulated.haru.dev/run-seconds": "0"}}}
    api.patch("pods", leader["metadata"]["name"], done, space)
    until("the leader has succeeded", lambda: phase(api.get("pods", leader["metadata"]["name"], space)) == "Succeeded")
    until("the job is complete", lambda: condition(api.get("jobs", "serve", space), "Complete").get("status") == "True")
    finished = api.get("jobs", "serve", space)["status"]
    assert (finished["completedIndexes"], finished.get("failed", 0)) == ("0", 0)
    assert condition({"status": finished}, "Complete")["reason"] == "SuccessPolicy"
