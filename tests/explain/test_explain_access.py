"""Who may not read everything is told what was left out, and nothing that does not follow from what could be read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from engine_objects import Obj, device_class, node, pod, resource_slice
from explain_schema import check_explanation, check_story
from volume_objects import FAST, PROVISIONER, attachment, csi_volume, storage_class, uses, volume_claim, volume_limit

from haru.api.changes import Delete
from haru.api.cluster_reader import fetch
from haru.api.snapshot import Snapshot
from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.client.api import ApiClient
from haru.engine.state import WATCHED_KINDS
from haru.errors import InputError
from haru.explain import DeviceStory, Explanation, NodeStory
from haru.kube.gates import FeatureGates
from haru.kube.kinds import by_kind, known_kind
from haru.storage import SqliteStore

RBAC = "rbac.authorization.k8s.io/v1"
CONDITION = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
WORK = ("pods", "resourceclaims", "resourceclaimtemplates", "podgroups", "jobs")
INVENTORY = ("nodes", "resourceslices", "deviceclasses", "devicetaintrules")


def allow(resources: Sequence[str], namespace: str) -> list[Obj]:
    """A role for the viewer, everywhere or in one namespace."""
    kind, meta = ("Role", {"namespace": namespace}) if namespace else ("ClusterRole", {})
    name = f"{'-'.join(resources[:1])}-{namespace or 'all'}"
    rules = [{"verbs": ["get", "list"], "apiGroups": ["*"], "resources": list(resources)}]
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "viewer"}
    role = {"apiVersion": RBAC, "kind": kind, "metadata": {"name": name, **meta}, "rules": rules}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    binding = {"apiVersion": RBAC, "kind": f"{kind}Binding", "metadata": {"name": name, **meta}, "roleRef": reference}
    return [role, {**binding, "subjects": [subject]}]


def objects() -> list[Obj]:
    mine, theirs = pod("mine", cpu="4"), pod("theirs", cpu="6", node="a")
    theirs["metadata"]["namespace"] = "other"
    mine["status"]["conditions"] = [CONDITION]
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("other",)]
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        for name in ("default", "other")
    ]
    return [*spaces, *accounts, device_class(), node("a"), resource_slice("a", 2), mine, theirs]


async def seen_by(*roles: tuple[Sequence[str], str], more: Sequence[Obj] = ()) -> Snapshot:
    """What the viewer gets to see with these roles, in the namespace `default`; with `more` objects in the cluster."""
    users = {"admin": UserInfo("admin", ("system:masters",)), "viewer": UserInfo("viewer", ())}
    config = ServerConfig(
        store=SqliteStore(":memory:"),
        gates=FeatureGates.accelerator_defaults(),
        runtime_config={"api/all": True},
        authentication=AuthenticationOptions(tokens=users),
    )
    server = ApiServer(config)
    await server.start()
    try:
        admin = ApiClient.in_process(server, "admin")
        for obj in [*objects(), *more, *(o for role in roles for o in allow(*role))]:
            kind = by_kind(obj["apiVersion"], obj["kind"])
            assert kind is not None
            obj["metadata"] = {k: v for k, v in obj["metadata"].items() if k not in ("uid", "resourceVersion")}
            made = await admin.create(kind, obj, obj["metadata"].get("namespace", ""))
            if obj.get("status"):
                status = {**made, "status": {**(made.get("status") or {}), **obj["status"]}}
                await admin.update(kind, status, subresource="status")
        # A new node is taken to be not ready until its kubelet says otherwise.
        await admin.patch(known_kind("v1", "Node"), "a", {"spec": {"taints": None}})
        viewer = ApiClient.in_process(server, "viewer")
        fetched = await fetch(viewer, WATCHED_KINDS, "default")
        return Snapshot(fetched.objects, refused=fetched.refused)
    finally:
        await server.stop()


def test_full_read_access_gives_complete_explanation() -> None:
    snapshot = asyncio.run(seen_by((["*"], "")))
    told = snapshot.explain("pod/mine")
    assert isinstance(told, Explanation)
    assert (snapshot.refused, told.verdict, told.unread) == ((), "FitsLater", ())
    assert "notRead" not in told.as_dict()


def test_limits_of_volumes_are_read() -> None:
    """A node that can attach no more is no free place."""
    wants = pod("wants", cpu="1", volumes=uses("more"))
    storage = [storage_class(FAST, PROVISIONER), csi_volume("v"), volume_claim("more", class_name=FAST)]
    limited = [*storage, volume_limit("a", 1), attachment("v", "a"), wants]
    snapshot = asyncio.run(seen_by((["*"], ""), more=limited))
    told = snapshot.explain("pod/wants")
    assert isinstance(told, Explanation)
    assert (told.verdict, [reason.type for reason in told.reasons]) == ("FitsLater", ["TooManyVolumes"])
    assert told.reasons[0].data == {"driver": PROVISIONER, "attached": 1, "wanted": 1, "limit": 1, "nodes": 1}


def test_volume_is_detached_once_the_pod_that_uses_it_is_gone() -> None:
    """Ended work makes room for volumes, too."""
    claims = [volume_claim("c", class_name=FAST, bound="v"), volume_claim("more", class_name=FAST)]
    storage = [storage_class(FAST, PROVISIONER), csi_volume("v", claim=claims[0], phase="Bound"), *claims]
    pods = [pod("runs", node="a", volumes=uses("c")), pod("wants", volumes=uses("more"))]
    snapshot = Snapshot.of([node("a"), *storage, volume_limit("a", 1), attachment("v", "a"), *pods])
    told = snapshot.explain("pod/wants")
    assert isinstance(told, Explanation)
    assert (told.verdict, [reason.type for reason in told.reasons]) == ("FitsLater", ["TooManyVolumes"])
    assert [(way.kind, way.confirmed) for way in told.remedies if way.kind == "Evict"] == [("Evict", True)]
    assert [start.path for start in snapshot.what_if(Delete("pod/runs")).starts] == ["default/wants"]


def test_tenant_explanation_lists_kinds_not_read() -> None:
    snapshot = asyncio.run(seen_by((WORK, "default"), (INVENTORY, "")))
    told = snapshot.explain("pod/mine")
    assert isinstance(told, Explanation)
    assert "Pod of other namespaces" in told.unread and "Node" not in told.unread
    # As far as the tenant can see there is room.
    assert (told.verdict, told.reasons[0].type, told.reasons[-1].type) == ("Starting", "Waiting", "NotReadable")
    answer = told.as_dict()
    check_explanation(answer)
    assert answer["notRead"] == list(told.unread)
    assert "theirs" not in str(answer) and "theirs" not in str(told)


def test_without_access_to_nodes_fit_is_not_stated() -> None:
    snapshot = asyncio.run(seen_by((WORK, "default")))
    told = snapshot.explain("pod/mine")
    assert isinstance(told, Explanation)
    assert told.verdict == "FitsIf" and [reason.type for reason in told.reasons] == ["NotReadable"]
    assert "cannot be told without reading" in told.summary and "the scheduler says: 0/1 nodes are available" in str(
        told
    )
    assert not (told.remedies or told.nodes or told.requests)
    for what in ("node/a", "device/a/gpu-0"):
        with pytest.raises(InputError, match="not allowed to read"):
            snapshot.explain(what)


def test_stories_name_kinds_not_read() -> None:
    snapshot = asyncio.run(seen_by((WORK, "default"), (INVENTORY, "")))
    node_story, device_story = snapshot.explain("node/a"), snapshot.explain("device/a/gpu-0")
    assert isinstance(node_story, NodeStory) and isinstance(device_story, DeviceStory)
    for story in (node_story, device_story):
        check_story(story.as_dict())
        assert story.reasons[-1].type == "NotReadable"
        assert "theirs" not in str(story) and "theirs" not in str(story.as_dict())
    assert known_kind("v1", "Pod").kind in story.reasons[-1].message
