"""Finding anything by a part of its name, its kind, its owner, its node, or a label."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import DRIVER, allocated, allocation, claim, node, pod, pod_group, resource_slice

from haru.dashboard.views.search import search
from haru.engine import SchedulerCache, Snapshot

Obj = dict[str, Any]


def owned(name: str, owner: str, where: str = "", **more: Any) -> Obj:
    made = pod(name, node=where, **more)
    kind, owner_name = owner.split("/")
    reference = {"apiVersion": "v1", "kind": kind, "name": owner_name, "uid": owner, "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    return made


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    train = owned("train-0", "Job/train", "dgx-1", claims=["train-0"])
    train["metadata"]["labels"] = {"app": "llm", "team.example/name": "red"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"cost": "7"}}}
    return SchedulerCache.of(
        [
            node("dgx-1", labels={"pool": "big"}),
            node("cpu-1"),
            resource_slice("dgx-1", 2),
            namespace,
            train,
            allocated(claim("train-0"), allocation("dgx-1", "gpu-0"), train),
            owned("web-7", "ReplicaSet/web", "cpu-1"),
            pod("train-notes"),
            pod_group("train-gang", 2),
        ]
    ).snapshot()


def found(snapshot: Snapshot, text: str) -> list[str]:
    return [f"{row[1].text} {row[0].text}" for row in search(snapshot, text, {}).rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train-0", ["Pod train-0", "ResourceClaim train-0"]),
        ("TRAIN", ["Job train", "Pod train-0", "ResourceClaim train-0", "PodGroup train-gang", "Pod train-notes"]),
        ("train gang", ["PodGroup train-gang"]),
        ("kind:pod", ["Pod web-7", "Pod train-0", "PodGroup train-gang", "Pod train-notes"]),
        ("kind:pod owner:job/train", ["Pod train-0"]),
        ("pod: node:cpu", ["Pod web-7"]),
        ("kind:node pool=big", ["Node dgx-1"]),
        ("app=llm", ["Pod train-0"]),
        ("name=red", ["Pod train-0"]),
        ("cost=", ["Namespace default"]),
        ("gpu-1", ["Device dgx-1/gpu-1"]),
        ("ns:other", []),
        ("nothing-has-this", []),
        ("", []),
    ],
)
def test_search_finds_by_name_kind_owner_node_and_label(snapshot: Snapshot, text: str, expected: list[str]) -> None:
    assert found(snapshot, text) == expected


def test_every_find_leads_to_the_page_of_what_was_found(snapshot: Snapshot) -> None:
    rows = search(snapshot, "kind:", {}).rows
    links = {f"{row[1].text} {row[0].text}": row[0].href for row in rows}
    assert links["Device dgx-1/gpu-0"] == f"/device/{DRIVER}/dgx-1/gpu-0"
    assert (
        links["Pod train-0"] == "/workload/default/pod/train-0" and links["Job train"] == "/workload/default/job/train"
    )
    assert links["Node cpu-1"] == "/node/cpu-1" and links["Namespace default"] == "/namespace/default"


def test_finds_can_be_sorted_and_narrowed_like_every_table(snapshot: Snapshot) -> None:
    table = search(snapshot, "train", {"found.sort": "-name", "found.find": "pod"})
    assert [row[0].text for row in table.rows] == ["train-notes", "train-gang", "train-0"]
