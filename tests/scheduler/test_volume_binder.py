"""PreBind of volumes: what is written, what is waited for, and what ends the waiting."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from volume_objects import volume, volume_claim

import virtual_time
from haru.engine.state import MemberDecision, PodKey, VolumeBinding
from haru.kube.errors import conflict_error, not_found_error
from haru.kube.kinds import Kind
from haru.scheduler.binding.volume_binder import VolumeBinder
from haru.scheduler.shared import WatchedObjects

Obj = dict[str, Any]
SELECTED = "volume.kubernetes.io/selected-node"


class Server(WatchedObjects):
    """An API server whose watch shows each write at once."""

    def __init__(self, *objects: Obj) -> None:
        super().__init__()
        self.known: dict[tuple[str, str], Obj] = {}
        self.writes: list[str] = []
        self.conflicts = 0
        node = {"kind": "Node", "metadata": {"name": "a", "labels": {"kubernetes.io/hostname": "a"}}}
        names = [{"name": f"p{i}", "namespace": "default", "uid": f"uid-p{i}"} for i in range(3)]
        pods = [{"kind": "Pod", "metadata": metadata} for metadata in names]
        for obj in (node, *pods, *objects):
            self.put(obj)

    def put(self, obj: Obj) -> None:
        metadata = obj["metadata"]
        path = f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]
        self.known[obj["kind"], path] = obj

    def get(self, kind: Kind, path: str) -> Obj | None:
        return copy.deepcopy(self.known.get((kind.kind, path)))

    def observe(self, kind: Kind, obj: Obj) -> None:
        self.put(obj)

    async def update(self, kind: Kind, obj: Obj) -> Obj:
        if self.conflicts:
            self.conflicts -= 1
            raise conflict_error(kind.group, kind.plural, obj["metadata"]["name"])
        self.writes.append(f"{kind.kind} {obj['metadata']['name']}")
        self.put(obj)
        return obj

    def change(self, kind: str, path: str, **spec: Any) -> None:
        obj = copy.deepcopy(self.known[kind, path])
        obj["metadata"].setdefault("annotations", {}).update(spec.pop("annotations", {}))
        obj["spec"].update(spec)
        self.put(obj)

    def bind(self, claim: str, to: str) -> None:
        done = {"pv.kubernetes.io/bind-completed": "yes"}
        self.change("PersistentVolumeClaim", f"default/{claim}", volumeName=to, annotations=done)


class Reads:
    """The requests that read past the watch."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.update = server.update

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Obj:
        found = self.server.get(kind, f"{namespace}/{name}" if namespace else name)
        if found is None:
            raise not_found_error(kind.group, kind.plural, name)
        return found


def member(number: int, claim: str, to: str = "") -> MemberDecision:
    binding = VolumeBinding("default", claim, f"uid-{claim}", to)
    return MemberDecision(PodKey("default", f"p{number}", f"uid-p{number}"), "scheduled", "a", volumes=(binding,))


async def bind(server: Server, *members: MemberDecision, timeout: float = 600.0, needed: int = 0) -> dict[str, str]:
    loop = asyncio.get_running_loop()
    binder = VolumeBinder(Reads(server), server, loop.time)  # type: ignore[arg-type]
    failures = await binder.bind(members, timeout, needed)
    return {pod.name: str(error) for pod, error in failures.items()}


def run(work: Any) -> Any:
    return virtual_time.run(work)


def failed(text: str) -> str:
    return f'running PreBind plugin "VolumeBinding": {text}'


def test_available_volume_gets_the_claims_reference_and_its_binding_is_awaited() -> None:
    server = Server(volume("v", "a"), volume_claim("c"))

    async def scenario() -> tuple[dict[str, str], float]:
        loop = asyncio.get_running_loop()
        loop.call_later(30, server.bind, "c", "v")
        return await bind(server, member(0, "c", "v")), loop.time()

    failures, seconds = run(scenario())
    assert failures == {}
    assert 30 <= seconds < 32
    written = server.known["PersistentVolume", "v"]
    assert written["spec"]["claimRef"]["uid"] == "uid-c"
    assert written["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert server.writes == ["PersistentVolume v"]


@pytest.mark.parametrize(
    ("left", "words"), [({}, "selectedNode annotation reset"), ({"example.com/a": "b"}, "provisioning failed")]
)
def test_claim_gets_the_selected_node_and_a_provisioner_that_takes_it_off_ends_the_waiting(
    left: dict[str, str], words: str
) -> None:
    server = Server(volume_claim("c", class_name="fast"))

    async def scenario() -> dict[str, str]:
        reset = volume_claim("c", class_name="fast")
        reset["metadata"]["annotations"] = left
        asyncio.get_running_loop().call_later(5, server.put, reset)
        return await bind(server, member(0, "c"))

    assert run(scenario()) == {"p0": failed(f'binding volumes: {words} for PVC "c"')}
    assert server.writes == ["PersistentVolumeClaim c"]


def test_waiting_ends_with_the_timeout() -> None:
    server = Server(volume_claim("c", class_name="fast"))

    async def scenario() -> tuple[dict[str, str], float]:
        return await bind(server, member(0, "c"), timeout=20), asyncio.get_running_loop().time()

    failures, seconds = run(scenario())
    assert failures == {"p0": failed("binding volumes: context deadline exceeded")}
    assert 20 <= seconds < 21
    assert server.known["PersistentVolumeClaim", "default/c"]["metadata"]["annotations"] == {SELECTED: "a"}


def test_provisioned_volume_that_the_node_cannot_reach_ends_the_waiting() -> None:
    server = Server(volume_claim("c", class_name="fast"), volume("v", "b"))

    async def scenario() -> dict[str, str]:
        loop = asyncio.get_running_loop()
        claim = "PersistentVolumeClaim", "default/c"
        loop.call_later(1, lambda: server.change(*claim, volumeName="v"))
        return await bind(server, member(0, "c"))

    text = 'binding volumes: pv "v" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'
    assert run(scenario()) == {"p0": failed(text)}


@pytest.mark.parametrize("taken", [False, True])
def test_conflict_is_tried_again_unless_another_claim_has_the_volume(taken: bool) -> None:
    server = Server(volume("v", "a"), volume_claim("c"), volume_claim("d"))
    server.conflicts = 1
    if taken:
        server.put(volume("v", "a", claim=volume_claim("d")))

    async def scenario() -> dict[str, str]:
        asyncio.get_running_loop().call_later(1, server.bind, "c", "v")
        return await bind(server, member(0, "c", "v"))

    assert run(scenario()) == ({"p0": failed('volume "v" was taken by another claim')} if taken else {})


def test_gang_is_not_waited_for_once_too_few_members_can_have_volumes() -> None:
    server = Server(*(volume_claim(f"c{i}", class_name="fast") for i in range(3)))

    async def scenario(needed: int) -> tuple[set[str], float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        loop.call_later(3, server.put, volume_claim("c1", class_name="fast"))
        loop.call_later(50, server.bind, "c0", "x")
        loop.call_later(50, server.bind, "c2", "x")
        server.put(volume("x"))
        failures = await bind(server, *(member(i, f"c{i}") for i in range(3)), needed=needed)
        return set(failures), loop.time() - began

    everybody, soon = run(scenario(3))
    assert everybody == {"p0", "p1", "p2"}
    assert soon < 5
    server.put(volume_claim("c0", class_name="fast"))
    server.put(volume_claim("c2", class_name="fast"))
    one, late = run(scenario(2))
    assert one == {"p1"}
    assert late >= 50


@pytest.mark.parametrize("replaced", [False, True])
def test_pod_that_was_deleted_is_not_waited_for(replaced: bool) -> None:
    server = Server(volume_claim("c", class_name="fast"))
    younger = {"kind": "Pod", "metadata": {"name": "p0", "namespace": "default", "uid": "younger"}}

    async def scenario() -> dict[str, str]:
        pod = "Pod", "default/p0"
        asyncio.get_running_loop().call_later(2, lambda: server.put(younger) if replaced else server.known.pop(pod))
        return await bind(server, member(0, "c"))

    assert "pod does not exist any more" in run(scenario())["p0"]
