"""Workloads that lack pods are those that a look at all pods finds, whichever snapshots were asked before."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from engine_objects import pod

from haru.engine import SchedulerCache, Snapshot
from haru.explain.diagnosis.makers import MAKERS, lacking, waiting_makers, wanted_pods

KINDS = (*MAKERS, "DaemonSet")

Obj = dict[str, Any]


def by_all(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """How many pods each workload lacks that lacks some."""
    owners = (each.controller for each in snapshot.pods.values() if not (each.terminal or each.deleting))
    living = Counter(owner["uid"] for owner in owners if owner is not None)
    found: dict[tuple[str, str], int] = {}
    for kind in KINDS:
        for one in snapshot.objects(kind).values():
            left = max(0, wanted_pods({**one, "kind": kind}) - living[one["metadata"]["uid"]])
            if left or one["spec"].get("suspend"):
                found[kind, one["metadata"]["name"]] = left
    return found


def maker(rng: Random) -> Obj:
    kind, name = rng.choice(KINDS), f"m{rng.randrange(3)}"
    spec: Obj = (
        {"parallelism": rng.randrange(4), "suspend": rng.random() < 0.2}
        if kind == "Job"
        else {"replicas": rng.randrange(4)}
    )
    # One that is made anew under its name has another uid.
    metadata = {"name": name, "namespace": "default", "uid": f"{kind}-{name}-{rng.randrange(2)}"}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": {"desiredNumberScheduled": rng.randrange(4)},
    }


def owned_pod(rng: Random) -> Obj:
    made = pod(f"p{rng.randrange(20)}", node=rng.choice(("", "n1")))
    made["status"]["phase"] = rng.choice(("Pending", "Running", "Succeeded"))
    owner = maker(rng)
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    made["metadata"]["ownerReferences"] = [{**reference, **{k: owner["metadata"][k] for k in ("name", "uid")}}]
    if rng.random() < 0.2:
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


@pytest.mark.parametrize("seed", range(8))
def test_makers_that_lack_pods_are_those_of_the_snapshot_that_is_asked(seed: int) -> None:
    rng, cache, snapshots = Random(seed), SchedulerCache(), list[Snapshot]()
    for _ in range(150):
        made = maker(rng) if rng.random() < 0.3 else owned_pod(rng)
        (cache.remove if rng.random() < 0.2 else cache.apply)(made)
        snapshots.append(cache.snapshot())
        asked = snapshots[-1] if rng.random() < 0.6 else rng.choice(snapshots)
        found = {(one["kind"], one["metadata"]["name"]): missing for one, missing in waiting_makers(asked)}
        assert found == by_all(asked)
        for kind in KINDS:
            for one in asked.objects(kind).values():
                whole = {**one, "kind": kind}
                assert lacking(asked, whole) == by_all(asked).get((kind, one["metadata"]["name"]), 0)
    assert {len(by_all(snapshot)) for snapshot in snapshots} > {1, 2, 3}
