"""Whoever says the same again changes nothing: for most kinds, by every kind of write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from api_caller import Caller
from sample_objects import SAMPLES, path_of

from haru.kube.kinds import by_kind, known_kind
from haru.kube.strategy import allows_unconditional_update

Obj = dict[str, Any]
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

# What stands in an atomic list gets a time or a neighbour from the server when it is written, as in 1.36.
LISTS_OF_THE_SERVER = {"Node", "ResourceSlice"}
# StorageObjectInUseProtection adds a finalizer; a merge patch, which replaces the list, takes it away again.
PROTECTED = {"PersistentVolumeClaim", "PersistentVolume", "VolumeAttributesClass"}
# The first write after the creation stores the phase, as in 1.36.
COMPLETED = {"PersistentVolumeClaim"}
# A PUT that leaves out what the server filled in wants it gone, which is refused (Job, Pod) or gives a new time (rule).
FILLED_IN = {"Job", "Pod", "DeviceTaintRule"}
# What the server finds out is written to the status after the answer, as a controller would do it.
FOLLOWED_UP = {"ValidatingAdmissionPolicy", "FlowSchema"}


def samples() -> list[Any]:
    found = []
    for obj in SAMPLES:
        kind = by_kind(obj["apiVersion"], obj["kind"])
        if kind is not None and not kind.virtual and kind.kind not in LISTS_OF_THE_SERVER | FOLLOWED_UP | {"PodGroup"}:
            found.append(pytest.param(obj, id=str(kind)))
    return found


@pytest.mark.parametrize("obj", samples())
async def test_repeated_apply_and_update_change_nothing(api: Caller, obj: Obj) -> None:
    obj = json.loads(json.dumps(obj))
    obj.pop("status", None)
    if obj["kind"] in PROTECTED:
        obj["metadata"].pop("finalizers", None)
    if obj["kind"] == "Pod":
        del obj["spec"][
            "tolerations"
        ]  # a patch of this list takes those away that admission adds again: it is an owner
    url = f"{path_of(obj)}/{obj['metadata']['name']}?fieldManager=m"
    first = await api("PATCH", url, obj, type=APPLY)
    assert first.status == 201, first.body
    if obj["kind"] in COMPLETED:
        first = await api("PATCH", url, obj, type=APPLY)
    api.clock.advance(minutes=1)
    for _ in range(2):
        again = await api("PATCH", url, obj, type=APPLY)
        assert (again.status, again.json) == (200, first.json)
    for type in (STRATEGIC,) if obj["kind"] == "Pod" else (MERGE, STRATEGIC):  # a list of containers without mounts
        patched = await api("PATCH", url, obj, type=type)
        assert (patched.status, patched.json) == (200, first.json), type
    same = await api("PUT", url, first.json)
    assert (same.status, same.json) == (200, first.json)
    if obj["kind"] not in FILLED_IN:
        if not allows_unconditional_update(known_kind(obj["apiVersion"], obj["kind"])):
            obj["metadata"]["resourceVersion"] = first.json["metadata"]["resourceVersion"]
        put = await api("PUT", url, obj)
        assert put.status == 200, put.body
        assert {**put.json, "metadata": None} == {**first.json, "metadata": None}
