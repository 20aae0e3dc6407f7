"""JobValidation: when a Job may have another parallelism, and when its gang stands against that."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import Caller

Obj = dict[str, Any]
MERGE = "application/merge-patch+json"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
REFUSED = 'jobs.batch "j" is forbidden: cannot change parallelism for a Job referencing gang-scheduled PodGroup "g"'
GANG, BASIC = {"gang": {"minCount": 4}}, {"basic": {}}


async def a_job(api: Caller, pod: Obj | None = None, **spec: Any) -> Obj:
    """An Indexed Job of four that would be a gang."""
    containers = [{"name": "main", "image": "busybox:1"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers, **(pod or {})}}
    shape = {"completionMode": "Indexed", "completions": 4, "parallelism": 4, "template": template, **spec}
    return await api.create(JOBS, {"metadata": {"name": "j"}, "spec": shape})


async def a_group(api: Caller, job: Obj | None = None, policy: Obj = GANG, **annotations: str) -> Obj:
    """A PodGroup, controlled by the Job if one is given."""
    metadata: Obj = {"name": "g", "annotations": annotations}
    if job is not None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"]}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    return await api.create(GROUPS, {"metadata": metadata, "spec": {"schedulingPolicy": policy}})


async def resize(api: Caller, parallelism: int, **spec: Any) -> Any:
    return await api("PATCH", f"{JOBS}/j", {"spec": {"parallelism": parallelism, **spec}}, type=MERGE)


@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.parametrize(("parallelism", "completions"), [(2, 4), (2, 2), (8, 8), (1, 1)])
async def test_job_without_pod_group_may_be_resized(
    api: Caller, suspend: bool, parallelism: int, completions: int
) -> None:
    """As queues admit a part of a Job that waits: nothing is a gang before there is a PodGroup."""
    job = await a_job(api, suspend=suspend)
    job["spec"] |= {"parallelism": parallelism, "completions": completions, "suspend": False}
    answer = await api("PUT", f"{JOBS}/j", job)
    assert answer.status == 200, answer.body
    assert (answer.json["spec"]["parallelism"], answer.json["spec"]["completions"]) == (parallelism, completions)


@pytest.mark.parametrize("suspend", [True, False])
async def test_job_with_gang_cannot_be_resized(api: Caller, suspend: bool) -> None:
    await a_group(api, await a_job(api, suspend=suspend))
    for parallelism, completions in ((2, 4), (2, 2), (8, 8)):
        answer = await resize(api, parallelism, completions=completions)
        assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
        assert answer.json["message"] == REFUSED
    job = await api.get(f"{JOBS}/j")
    job["spec"]["parallelism"] = 3
    assert (await api("PUT", f"{JOBS}/j", job)).status == 403
    assert (await resize(api, 4, suspend=True)).status == 200, "the rest of it may change"


async def test_invalid_job_update_is_refused_before_gang_check(api: Caller) -> None:
    await a_group(api, await a_job(api))
    assert (await resize(api, -1)).status == 422


async def test_groups_of_other_owners_are_ignored(api: Caller) -> None:
    await a_job(api)
    await a_group(api)
    assert (await resize(api, 2)).status == 200


async def test_group_with_basic_policy_is_ignored(api: Caller) -> None:
    await a_group(api, await a_job(api), BASIC)
    assert (await resize(api, 2)).status == 200


@pytest.mark.parametrize(("policy", "code"), [(GANG, 403), (BASIC, 200), (None, 200)])
async def test_group_named_in_template_is_checked(api: Caller, policy: Obj | None, code: int) -> None:
    await a_job(api, {"schedulingGroup": {"podGroupName": "g"}})
    if policy is not None:
        await a_group(api, policy=policy)
    answer = await resize(api, 2)
    assert answer.status == code, answer.body


async def test_suspended_job_with_replaceable_gang_may_be_resized(api: Caller) -> None:
    """Haru's Job controller says for which parallelism it made the PodGroup, and makes another one."""
    await a_group(api, await a_job(api), **{"haru.dev/job-parallelism": "4"})
    assert (await resize(api, 2, completions=2, suspend=True)).status == 403, "it runs"
    assert (await resize(api, 4, suspend=True)).status == 200
    assert (await resize(api, 2, completions=2, suspend=False)).status == 200
    assert (await resize(api, 1, completions=1)).status == 403, "it runs again"
