"""In-place resize on a real node: what is allocated, given to containers and reported, with a fake runtime."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from haru.kube.pod_resize import Allocations
from haru.node.agent.context import Context
from haru.node.cgroups.amounts import Amounts
from haru.node.cri.errors import CriError
from haru.node.podworker.observed import RUNNING, SeenContainer, SeenPod, SeenSandbox
from haru.node.podworker.resize import PodResizer
from haru.node.podworker.sandboxes import Sandboxes
from haru.proto import cri_pb2 as cri

Obj = dict[str, Any]


def sized(memory: str, name: str = "a", **more: Any) -> Obj:
    amounts = {"cpu": "1", "memory": memory}
    return {"name": name, "image": "i", "resources": {"requests": amounts, "limits": amounts}, **more}


def pod(*containers: Obj, generation: int = 1, status: Obj | None = None) -> Obj:
    meta = {"name": "p", "namespace": "n", "uid": "u", "generation": generation}
    return {"metadata": meta, "spec": {"containers": list(containers)}, "status": status or {}}


def running(*names: str) -> SeenPod:
    found = [SeenContainer(f"id-{name}", name, state=RUNNING, sandbox="s0") for name in names]
    return SeenPod.of([SeenSandbox("s0")], found)


class Node:
    """A node with room or without; its runtime and its control groups note what they are given."""

    def __init__(self) -> None:
        self.room: tuple[str, str] | None = None
        self.used = 0
        self.refuses = ""
        self.given: list[tuple[str, int]] = []
        self.events: list[str] = []
        self.messages: list[str] = []
        mib = 1 << 20

        def amounts(pod: Obj, container: Obj) -> Amounts:
            limits = (container.get("resources") or pod["spec"]["resources"])["limits"]
            return Amounts(1024, 100_000, int(limits["memory"][:-2]) * mib)

        async def update(id_: str, resources: cri.LinuxContainerResources) -> None:
            if self.refuses:
                raise CriError("update_container_resources", "UNKNOWN", self.refuses)
            self.given.append((id_, resources.memory_limit_in_bytes // mib))

        async def stats() -> list[cri.ContainerStats]:
            attributes, usage = cri.ContainerAttributes(id="id-a"), cri.UInt64Value(value=self.used * mib)
            return [cri.ContainerStats(attributes=attributes, memory=cri.MemoryUsage(usage_bytes=usage))]

        def apply(_group: Any, _values: Any, amounts: Amounts) -> None:
            self.given.append(("pod", amounts.memory_limit // mib))

        def event(_pod: Obj, _type: str, reason: str, message: str) -> None:
            self.events.append(reason)
            self.messages.append(message)

        context = SimpleNamespace(
            allocations=Allocations(),
            admission=lambda _: self.room,
            amounts=amounts,
            runtime=SimpleNamespace(update_container_resources=update, container_stats=stats),
            cgroups=SimpleNamespace(
                tree=SimpleNamespace(apply=apply), memory_qos=None, hierarchies=SimpleNamespace(mode="unified")
            ),
            recorder=SimpleNamespace(event=event),
        )
        sandboxes = SimpleNamespace(group=lambda _: "group")
        self.resizer = PodResizer(cast(Context, context), cast(Sandboxes, sandboxes))


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr("haru.node.podworker.resize.pod_values", lambda _qos, _pod: {})
    return Node()


async def start(node: Node, *containers: Obj) -> SeenPod:
    before = node.resizer.allocate(pod(*containers))
    for one in containers:
        node.resizer.started(f"id-{one['name']}", one)
    seen = running(*(one["name"] for one in containers))
    assert await node.resizer.actuate(before, seen) == [] and node.given == []
    return seen


async def test_pod_group_grows_before_its_containers_and_shrinks_after_them(node: Node) -> None:
    seen = await start(node, sized("64Mi"), sized("64Mi", "b"))
    await node.resizer.actuate(node.resizer.allocate(pod(sized("96Mi"), sized("32Mi", "b"))), seen)
    # The sum stays, so the group does; who shrinks goes first.
    assert node.given == [("id-b", 32), ("id-a", 96)]
    node.given.clear()
    await node.resizer.actuate(node.resizer.allocate(pod(sized("128Mi"), sized("32Mi", "b"))), seen)
    assert node.given == [("pod", 160), ("id-a", 128)]
    node.given.clear()
    await node.resizer.actuate(node.resizer.allocate(pod(sized("32Mi"), sized("32Mi", "b"))), seen)
    assert node.given == [("id-a", 32), ("pod", 64)]
    assert node.resizer.conditions == []
    assert node.events == ["ResizeStarted", "ResizeCompleted"] * 3


async def test_pod_is_resized_as_a_whole(node: Node) -> None:
    def whole(memory: str) -> Obj:
        made = pod({"name": "a", "image": "i"})
        made["spec"]["resources"] = {"requests": {"memory": memory}, "limits": {"memory": memory}}
        return made

    node.resizer.started("id-a", whole("64Mi")["spec"]["containers"][0])
    seen = running("a")
    await node.resizer.actuate(node.resizer.allocate(whole("64Mi")), seen)
    assert (node.given, node.events) == ([], [])
    allocated = node.resizer.allocate(whole("128Mi"))
    assert await node.resizer.actuate(allocated, seen) == []
    # A container without a limit of its own has that of its pod.
    assert (node.given, node.events) == ([("pod", 128), ("id-a", 128)], ["ResizeStarted", "ResizeCompleted"])
    assert await node.resizer.actuate(allocated, seen) == [] and len(node.given) == 2
    assert node.resizer.level(allocated)["allocatedResources"] == {"memory": "128Mi"}
    # The kernel would kill for a limit below what is used.
    node.used = 50
    await node.resizer.actuate(node.resizer.allocate(whole("32Mi")), seen)
    below = f"memory limit ({32 << 20}) below current usage ({50 << 20})"
    text = f'[attempting to set pod {below}, attempting to set container "a" {below}]'
    assert len(node.given) == 2
    assert node.resizer.conditions[0].message == f"cannot decrease memory limits: {text}"


async def test_resize_without_room_is_deferred_and_pod_keeps_what_it_has(node: Node) -> None:
    seen = await start(node, sized("64Mi"))
    wanted = pod(sized("128Mi"), generation=2)
    for used in ("1Gi", "2Gi"):
        node.room = ("OutOfmemory", f"Node didn't have enough resource: memory, used: {used}")
        assert node.resizer.allocate(wanted)["spec"]["containers"] == [sized("64Mi")]
        assert await node.resizer.actuate(node.resizer.allocated(wanted), seen) == []
    (condition,) = node.resizer.conditions
    assert (condition.type, condition.reason) == ("PodResizePending", "Deferred")
    assert node.events == ["ResizeDeferred"] and node.given == []
    assert node.messages[0].startswith("Pod resize OutOfmemory: {")
    node.resizer.allocate({**wanted, "metadata": {**wanted["metadata"], "generation": 3}})
    assert node.events == ["ResizeDeferred"] * 2
    assert node.resizer.reported(wanted, seen)["a"]["resources"] == sized("64Mi")["resources"]
    node.room = None
    await node.resizer.actuate(node.resizer.allocate(wanted), seen)
    assert ("id-a", 128) in node.given and node.resizer.conditions == []


async def test_limit_below_usage_is_an_error_that_is_tried_again(node: Node) -> None:
    seen = await start(node, sized("64Mi"))
    node.used = 50
    wanted = pod(sized("32Mi"))
    for _ in range(2):
        await node.resizer.actuate(node.resizer.allocate(wanted), seen)
    (condition,) = node.resizer.conditions
    assert (condition.type, condition.reason) == ("PodResizeInProgress", "Error")
    below = f"memory limit ({32 << 20}) below current usage ({50 << 20})"
    assert condition.message == (
        f'cannot decrease memory limits: [attempting to set pod {below}, attempting to set container "a" {below}]'
    )
    assert node.given == [] and node.events == ["ResizeStarted", "ResizeError"]
    node.used = 10
    await node.resizer.actuate(node.resizer.allocate(wanted), seen)
    assert node.given == [("id-a", 32), ("pod", 32)] and node.resizer.conditions == []


async def test_error_of_runtime_is_in_condition(node: Node) -> None:
    seen = await start(node, sized("64Mi"))
    node.refuses = "cgroup is busy"
    await node.resizer.actuate(node.resizer.allocate(pod(sized("128Mi"))), seen)
    assert node.resizer.conditions[0][1:] == ("Error", "cgroup is busy")
    assert node.resizer.reported(pod(sized("128Mi")), seen)["a"] == {
        "allocatedResources": {"cpu": "1", "memory": "128Mi"},
        "resources": sized("64Mi")["resources"],
    }


async def test_container_is_killed_to_restart_where_its_policy_says_so(node: Node) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    seen = await start(node, sized("64Mi", resizePolicy=policy))
    (kill,) = await node.resizer.actuate(node.resizer.allocate(pod(sized("96Mi", resizePolicy=policy))), seen)
    assert (kill.id, kill.message, kill.again) == ("id-a", "Container a resize requires restart", True)
    assert node.given == [("pod", 96)]


async def test_restarted_agent_takes_resources_of_running_container_from_status(node: Node) -> None:
    status = {
        "containerStatuses": [
            {"name": "a", "containerID": "containerd://id-a", "resources": sized("64Mi")["resources"]}
        ]
    }
    wanted = pod(sized("128Mi"), status=status)
    assert node.resizer.allocated(wanted)["spec"]["containers"] == [sized("64Mi")]
    await node.resizer.actuate(node.resizer.allocate(wanted), running("a"))
    assert ("id-a", 128) in node.given and node.events == ["ResizeStarted", "ResizeCompleted"]
