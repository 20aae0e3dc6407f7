"""However late the runtime answers, a pod never runs two containers of one name, and finally runs one."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from node_worker import Node, loop_time, node
from slow_runtime import SlowRuntime

import virtual_time
from haru.kube.errors import StatusError
from haru.kube.pod_environment.environment import ReferencedObjects
from haru.node.cri.errors import CriError
from haru.node.podworker.container_kill import ContainerKiller, KillTarget
from haru.node.podworker.observed import CREATED, RUNNING, SeenContainer
from haru.node.probes.probe_exec import Answer

Obj = dict[str, Any]
TROUBLE_SECONDS = 300.0
__all__ = ["loop_time"]


@pytest.mark.parametrize("seed", range(60))
def test_slow_runtime_never_runs_two_containers_of_one_name(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    runtime = SlowRuntime(rng, rng.choice((0.1, 0.3, 0.6)))

    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with node(runtime, tmp_path) as made:
            while loop.time() < TROUBLE_SECONDS:
                await asyncio.sleep(rng.uniform(0.1, 8.0))
                assert made.worker is not None
                match rng.randrange(8):
                    case 0:
                        await made.stop()  # the agent is restarted, whatever it waits for
                        made.start()
                    case 1 if rng.random() < 0.3:
                        runtime.end("main", 1)
                    case _:
                        made.worker.wake()
            runtime.faults = 0.0
            await made.until(lambda: len(runtime.running("main")) == 1)
            await asyncio.sleep(120.0)
            assert len(runtime.running("main")) == 1
            await made.until(lambda: made.api.pod["status"].get("phase") == "Running")

    virtual_time.run(work())
    assert runtime.twice == []
    assert runtime.starts["main"] > 0


def test_container_gets_images_of_the_volumes_that_it_mounts(tmp_path: Path) -> None:
    runtime = SlowRuntime(random.Random(1), 0.0)

    async def work() -> None:
        made = Node(runtime, tmp_path)
        spec = made.api.pod["spec"]
        references = {"used": "registry.test/used:1", "unused": "registry.test/unused:1"}
        spec["volumes"] = [{"name": name, "image": {"reference": text}} for name, text in references.items()]
        spec["containers"][0]["volumeMounts"] = [{"name": "used", "mountPath": "/models"}]
        made.start()
        await made.until(lambda: runtime.running("main"))
        await made.stop()

    virtual_time.run(work())
    (one,) = runtime.running("main")
    (mount,) = [mount for mount in one.config.mounts if mount.container_path == "/models"]
    assert (mount.image.user_specified_image, mount.host_path) == ("registry.test/used:1", "")
    assert mount.image.image


def test_container_starts_again_though_what_its_volume_was_made_of_has_gone(tmp_path: Path) -> None:
    runtime, objects = SlowRuntime(random.Random(1), 0.0), {"words": {"data": {"key": "1"}}}
    told: list[tuple[str, str]] = []

    async def want(pod: Obj) -> ReferencedObjects:
        return ReferencedObjects(lambda name: objects.get(name), lambda name: None)

    async def work() -> None:
        made = Node(runtime, tmp_path)
        made.context.objects.want = want
        made.context.recorder.event = lambda about, kind, reason, message: told.append((reason, message))
        spec = made.api.pod["spec"]
        spec["volumes"] = [{"name": "v", "configMap": {"name": "words"}}]
        spec["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
        made.start()
        await made.until(lambda: runtime.running("main"))
        objects.clear()
        runtime.end("main", 1)
        await made.until(lambda: not runtime.running("main"))
        await made.until(lambda: runtime.running("main"))
        await made.stop()

    virtual_time.run(work())
    assert ("FailedMount", 'MountVolume.SetUp failed for volume "v" : configmap "words" not found') in told
    (volume,) = (path for path in tmp_path.rglob("v") if path.is_dir())
    assert (volume / "key").read_text() == "1"


def test_container_that_would_run_as_root_gets_an_event(tmp_path: Path) -> None:
    runtime = SlowRuntime(random.Random(1), 0.0)
    told: list[tuple[str, str]] = []

    async def work() -> None:
        made = Node(runtime, tmp_path)
        made.context.recorder.event = lambda pod, kind, reason, message: told.append((reason, message))
        made.api.pod["spec"]["securityContext"] = {"runAsNonRoot": True, "runAsUser": 0}
        made.start()
        await made.until(lambda: "Failed" in dict(told))
        await made.stop()

    virtual_time.run(work())
    assert dict(told)["Failed"].startswith("Error: container's runAsUser breaks non-root policy")
    assert not runtime.running("main")


def told_by(made: Node) -> list[tuple[str, str, str]]:
    """Of each event: the container that it is about, reason and message."""
    told: list[tuple[str, str, str]] = []
    made.context.recorder.event = lambda about, kind, reason, message: told.append(
        (about.get("fieldPath", ""), reason, message)
    )
    return told


def test_events_name_the_container_and_keep_what_its_hooks_say_to_themselves(tmp_path: Path) -> None:
    async def run_hook(*_: Any) -> Answer:
        return Answer(False, "password=secret")

    async def work() -> list[tuple[str, str, str]]:
        made = Node(SlowRuntime(random.Random(1), 0.0), tmp_path)
        told = told_by(made)
        made.context.handler_runner = SimpleNamespace(run_hook=run_hook)
        hooks = {name: {"exec": {"command": ["x"]}} for name in ("postStart", "preStop")}
        made.api.pod["spec"]["containers"][0]["lifecycle"] = hooks
        made.api.pod["spec"]["restartPolicy"] = "Never"
        made.start()
        await made.until(lambda: "FailedPostStartHook" in [reason for _, reason, _ in told])
        await made.stop()
        target = KillTarget(SeenContainer("c", "main"), made.api.pod, made.api.pod["spec"]["containers"][0], "")
        killer = ContainerKiller(made.context, lambda: None)
        killer.kill(target, 30.0, "Stopping container main")
        await made.until(lambda: not killer.is_busy)
        return told

    told = virtual_time.run(work())
    path = "spec.containers{main}"
    assert told[0][:2] == ("", "MissingClusterDNS")
    assert told[1:] == [
        (path, "Pulled", 'Container image "i" already present on machine and can be accessed by the pod'),
        (path, "Created", "Container created"),
        (path, "Started", "Container started"),
        (path, "FailedPostStartHook", "PostStartHook failed"),
        (path, "Killing", "FailedPostStartHook"),
        (path, "Killing", "Stopping container main"),
        (path, "FailedPreStopHook", "PreStopHook failed"),
    ]


def test_container_whose_post_start_hook_fails_is_started_again_by_its_crash_loop(tmp_path: Path) -> None:
    async def run_hook(*_: Any) -> Answer:
        return Answer(False)

    async def work() -> list[float]:
        made = Node(SlowRuntime(random.Random(1), 0.0), tmp_path)
        times: list[float] = []
        made.context.recorder.event = lambda about, kind, reason, message: (
            times.append(asyncio.get_running_loop().time()) if reason == "Started" else None
        )
        made.context.handler_runner = SimpleNamespace(run_hook=run_hook)
        made.api.pod["spec"]["containers"][0]["lifecycle"] = {"postStart": {"exec": {"command": ["x"]}}}
        made.start()
        await made.until(lambda: len(times) >= 4)
        await made.stop()
        return times

    first, second, third, fourth = virtual_time.run(work())
    assert second - first < 5 and 10 <= third - second < 15 and 20 <= fourth - third < 25


@pytest.mark.parametrize(
    ("hook", "is_told"), [({"exec": {"command": ["x"]}}, True), ({"sleep": {"seconds": 9}}, False)]
)
def test_pre_stop_hook_that_outlasts_the_grace_period_has_failed(hook: Obj, is_told: bool, tmp_path: Path) -> None:
    async def run_hook(*_: Any) -> Answer:
        await asyncio.sleep(100)
        return Answer(True)

    async def work() -> list[str]:
        made = Node(SlowRuntime(random.Random(1), 0.0), tmp_path)
        told = told_by(made)
        made.context.handler_runner = SimpleNamespace(run_hook=run_hook)
        container = {**made.api.pod["spec"]["containers"][0], "lifecycle": {"preStop": hook}}
        killer = ContainerKiller(made.context, lambda: None)
        killer.kill(KillTarget(SeenContainer("c", "main"), made.api.pod, container, ""), 5.0, "Stopping container main")
        await made.until(lambda: not killer.is_busy)
        return [reason for _, reason, _ in told]

    assert ("FailedPreStopHook" in virtual_time.run(work())) == is_told


def test_container_of_a_pod_without_grace_has_two_seconds_to_end(tmp_path: Path) -> None:
    runtime, given = SlowRuntime(random.Random(1), 0.0), list[int]()

    async def stop(id_: str, grace: int) -> None:
        given.append(grace)

    runtime.stop_container = stop  # type: ignore[method-assign]

    async def work() -> None:
        made = Node(runtime, tmp_path)
        killer = ContainerKiller(made.context, lambda: None)
        for id_, grace in (("a", 0.0), ("b", 1.0), ("c", 9.0)):
            killer.kill(KillTarget(SeenContainer(id_, "main"), made.api.pod), grace, "Stopping container main")
        await made.until(lambda: not killer.is_busy)

    virtual_time.run(work())
    assert given == [2, 2, 9]


def test_pod_whose_sandbox_has_gone_is_told_of_a_new_one(tmp_path: Path) -> None:
    async def work() -> list[str]:
        made = Node(SlowRuntime(random.Random(1), 0.0), tmp_path)
        told = told_by(made)
        made.start()
        await made.until(lambda: made.runtime.running("main"))
        assert "SandboxChanged" not in [reason for _, reason, _ in told]
        made.runtime.end("main", 255)
        for sandbox in made.runtime.rooms.values():
            sandbox.ready = False
        await made.until(lambda: made.runtime.running("main"))
        await made.stop()
        return [message for _, reason, message in told if reason == "SandboxChanged"]

    assert virtual_time.run(work()) == ["Pod sandbox changed, it will be killed and re-created."]


def test_container_that_ends_well_with_its_sandbox_is_started_again(tmp_path: Path) -> None:
    runtime = SlowRuntime(random.Random(1), 0.0)

    async def stop(id_: str, grace: int) -> None:
        runtime.end("main", 0)

    runtime.stop_container = stop  # type: ignore[method-assign]

    async def work() -> str:
        made = Node(runtime, tmp_path)
        made.api.pod["spec"]["restartPolicy"] = "OnFailure"
        made.start()
        await made.until(lambda: made.runtime.running("main"))
        for sandbox in made.runtime.rooms.values():
            sandbox.ready = False
        await made.until(lambda: runtime.starts["main"] == 2, 60)
        await made.stop()
        return str(made.api.pod["status"]["phase"])

    assert virtual_time.run(work()) == "Running"


@pytest.mark.parametrize("hours", [0, 1, -1], ids=["", "the clock jumps forward", "the clock jumps back"])
def test_container_whose_image_can_not_be_pulled_says_so_as_in_kubernetes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    runtime = SlowRuntime(random.Random(1), 0.0)
    clock, ahead = time.time, [0.0]
    monkeypatch.setattr("time.time", lambda: clock() + ahead[0])

    async def image(name: str) -> None:
        return None

    async def pull(*_: Any) -> str:
        # Once it is noted when the next attempt is due, and before that.
        asyncio.get_running_loop().call_later(0.05, ahead.__setitem__, 0, 3600.0 * hours)
        raise CriError("pull_image", "UNAVAILABLE", "no such host")

    runtime.image, runtime.pull = image, pull  # type: ignore[assignment,attr-defined]

    async def work() -> tuple[list[tuple[str, str, str]], Obj]:
        made = Node(runtime, tmp_path)
        told = told_by(made)
        made.api.pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent"
        made.start()
        await made.until(lambda: "BackOff" in [reason for _, reason, _ in told])
        await made.until(lambda: "Back-off" in str(made.api.pod["status"]))
        await made.stop()
        return told, made.api.pod["status"]["containerStatuses"][0]["state"]["waiting"]

    told, waiting = virtual_time.run(work())
    assert [(reason, message) for path, reason, message in told if path == "spec.containers{main}"][:5] == [
        ("Pulling", 'Pulling image "i"'),
        ("Failed", 'Failed to pull image "i": no such host'),
        ("Failed", "Error: ErrImagePull"),
        ("BackOff", 'Back-off pulling image "i"'),
        ("Failed", "Error: ImagePullBackOff"),
    ]
    assert waiting["reason"] == "ImagePullBackOff"
    assert waiting["message"] == 'Back-off pulling image "i": ErrImagePull: no such host'


def test_container_told_as_lost_is_started_although_its_status_may_not_say_so(tmp_path: Path) -> None:
    """The runtime did not know it for a moment; of a pod that restarts nothing the API takes only an end after that."""
    runtime = SlowRuntime(random.Random(1), 0.0)

    async def work() -> Obj:
        made = Node(runtime, tmp_path)
        api, patched = made.api, made.api.patch
        api.pod["spec"]["restartPolicy"] = "Never"
        made.start()
        await made.until(lambda: api.pod["status"].get("phase") == "Running")
        await made.stop()

        async def patch(kind: Any, name: str, patch: Obj, *_: Any, **__: Any) -> Obj:
            before = api.pod
            if "terminated" not in (await patched(kind, name, patch))["status"]["containerStatuses"][0]["state"]:
                api.pod = before
                raise StatusError(422, "Invalid", "may not be transitioned to non-terminated state")
            return api.pod

        api.patch = patch  # type: ignore[method-assign]
        api.pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 137}}
        for one in runtime.held.values():
            one.state = CREATED
        made.start()
        await made.until(lambda: runtime.running("main"))
        runtime.end("main", 5)
        await made.until(lambda: api.pod["status"]["phase"] == "Failed")
        await made.stop()
        return api.pod["status"]["containerStatuses"][0]["state"]["terminated"]  # type: ignore[no-any-return]

    assert virtual_time.run(work())["exitCode"] == 5


def test_start_exceeding_its_timeout_is_not_repeated(tmp_path: Path) -> None:
    runtime = SlowRuntime(random.Random(0), 0.0)
    slow = iter([12.0])

    async def take_time() -> None:
        busy = any(one.busy == "starting" for one in runtime.held.values())
        await asyncio.sleep(next(slow, 0.01) if busy else 0.01)

    runtime._take_time = take_time  # type: ignore[method-assign]

    async def work() -> None:
        async with node(runtime, tmp_path) as made:
            await made.until(lambda: runtime.running("main"), 60)
            await asyncio.sleep(60)

    virtual_time.run(work())
    assert (runtime.twice, runtime.starts["main"]) == ([], 1)


def test_restarted_agent_waits_for_start_in_progress(tmp_path: Path) -> None:
    runtime = SlowRuntime(random.Random(0), 0.0)
    slow = iter([1.5])

    async def take_time() -> None:
        busy = any(one.busy == "starting" for one in runtime.held.values())
        await asyncio.sleep(next(slow, 0.01) if busy else 0.01)

    runtime._take_time = take_time  # type: ignore[method-assign]

    async def work() -> None:
        async with node(runtime, tmp_path) as made:
            async with asyncio.timeout(60):
                while not any(one.busy for one in runtime.held.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await made.stop()
            made.start()
            await made.until(lambda: runtime.running("main"), 60)
            await asyncio.sleep(60)

    virtual_time.run(work())
    assert (runtime.twice, runtime.starts["main"]) == ([], 1)


def test_container_missing_in_one_list_is_not_started_again(tmp_path: Path) -> None:
    runtime = SlowRuntime(random.Random(0), 0.0)

    async def work() -> None:
        async with node(runtime, tmp_path) as made:
            await made.until(lambda: made.api.pod["status"].get("phase") == "Running", 60)
            runtime._shown, runtime.faults = [], 1.0  # from now on lists show nothing
            runtime._take_time = lambda: asyncio.sleep(0.01)  # type: ignore[method-assign]
            await asyncio.sleep(130)
            await made.stop()
            made.start()
            await asyncio.sleep(130)

    virtual_time.run(work())
    assert (runtime.twice, runtime.starts["main"]) == ([], 1)


def test_created_but_unstarted_container_is_removed_before_next(tmp_path: Path) -> None:
    runtime = SlowRuntime(random.Random(0), 0.0)
    create = runtime.create_container

    async def create_stuck(*arguments: Any) -> str:
        id_ = await create(*arguments)
        runtime.held[id_].busy = "starting"  # and never comes to it
        return id_

    async def work() -> None:
        runtime.create_container = create_stuck  # type: ignore[method-assign]
        async with node(runtime, tmp_path) as made:
            await made.until(lambda: runtime.held)
            (first,) = runtime.held.values()
            runtime.create_container = create  # type: ignore[method-assign]
            await made.until(lambda: made.worker is not None and "main" in made.worker._starts.reasons, 60)
            first.busy = ""
            await made.until(lambda: runtime.running("main"), 60)
            await asyncio.sleep(60)
            assert [one.state for one in runtime.held.values()] == [RUNNING]

    virtual_time.run(work())


def test_sandbox_that_cannot_be_made_is_tried_less_and_less_often(tmp_path: Path) -> None:
    runtime, tries = SlowRuntime(random.Random(1), 0.0), list[float]()

    async def refuse(*_: Any) -> str:
        tries.append(asyncio.get_running_loop().time())
        raise CriError("run_podsandbox", "UNKNOWN", "failed to setup network")

    async def work() -> None:
        real, runtime.run_sandbox = runtime.run_sandbox, refuse  # type: ignore[method-assign]
        async with node(runtime, tmp_path) as made:
            await asyncio.sleep(300.0)
            assert 10 <= len(tries) <= 40, len(tries)
            runtime.run_sandbox = real  # type: ignore[method-assign]
            await asyncio.sleep(60.0)
            assert len(runtime.running("main")) == 1
            assert made.api.pod["status"]["phase"] == "Running"

    virtual_time.run(work())
