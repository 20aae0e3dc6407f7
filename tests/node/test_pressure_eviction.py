"""Room is made on a node under pressure: what nobody uses goes first, then one pod at a time."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import virtual_time
from haru.cli.main import UsageError
from haru.cli.node_eviction_flags import add_eviction_arguments, eviction_options, image_gc_options
from haru.node.agent.options import EvictionOptions, ImageGcOptions
from haru.node.eviction.image_gc import ImageCollector, ImageGcError, bytes_to_free, readable
from haru.node.eviction.pressure_eviction import Machine, PressureEviction
from haru.node.eviction.ranking import ContainerUsage, Disk, PodUsage, Usages
from haru.node.eviction.signals import Signals
from haru.node.eviction.thresholds import Observation, parse_thresholds
from haru.node.podworker.observed import SeenPod
from haru.node.stats.kubelet.snapshot import FileSystem
from haru.node.status.container_status import StatusInputs
from haru.node.status.pod_status import pod_status
from haru.proto import cri_pb2 as cri

Obj = dict[str, Any]
GIB = 1 << 30


def pod(name: str, **spec: Any) -> Obj:
    meta = {"name": name, "uid": name, "namespace": "n"}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}], "terminationGracePeriodSeconds": 9, **spec}}


class Worker:
    """The worker of a pod that runs."""

    is_cleaned = True

    def __init__(self, pod: Obj) -> None:
        self.uid, self.evictable = pod["metadata"]["uid"], pod
        self.evicted: list[tuple[float, bool]] = []

    def evict(self, reason: str, message: str, grace: float, disruption: str) -> bool:
        assert reason == "Evicted"
        self.evicted.append((grace, disruption == message))
        return True


class World:
    """A node on which so much of a signal is free, look by look; each pod has 1 GiB of memory and of files."""

    def __init__(self, options: EvictionOptions, *pods: Obj, signal: str = "memory.available", disk: bool = False):
        self.workers = [Worker(one) for one in pods]
        self.events: list[tuple[str, str]] = []
        self.removed = 0
        self.reclaimed, self.changes, self.time, self.available = 0, 0, 100.0, [0]
        self.signal, self.disk = signal, disk
        machine = Machine(self.observe, self.usages, self.reclaim, self.remove_evicted)
        parts: Any = (options, machine, SimpleNamespace(event=self._event), self._tell, lambda: self.workers)
        self.eviction = PressureEviction(*parts, changed=self._changed, now=lambda: self.time)

    async def observe(self) -> Signals:
        available = self.available.pop(0) if len(self.available) > 1 else self.available[0]
        return Signals({self.signal: Observation(available, 10 * GIB)}, self.disk)

    async def usages(self, pods: Sequence[Obj]) -> Usages:
        one = PodUsage(GIB, containers={"main": ContainerUsage(GIB, Disk(GIB), Disk())})
        return {pod["metadata"]["uid"]: one for pod in pods}

    async def remove_evicted(self) -> None:
        self.removed += 1

    async def reclaim(self) -> None:
        self.reclaimed += 1

    def look(self) -> str | None:
        """The pod that was evicted."""
        found = asyncio.run(self.eviction.look())
        return None if found is None else found.uid

    def _event(self, about: Obj, type: str, reason: str, message: str, annotations: Any) -> None:
        self.events.append((reason, message))

    def _tell(self, type: str, reason: str, message: str) -> None:
        self.events.append((reason, message))

    def _changed(self) -> None:
        self.changes += 1


def hard(signal: str = "memory.available", **more: Any) -> EvictionOptions:
    return EvictionOptions(parse_thresholds({signal: "1Gi"}, {}, {}, {}), **more)


def soft(seconds: float, **more: Any) -> EvictionOptions:
    return EvictionOptions(parse_thresholds({}, {"memory.available": "1Gi"}, {"memory.available": seconds}, {}), **more)


def test_node_short_of_memory_evicts_one_pod_that_is_not_critical() -> None:
    world = World(hard(), pod("critical", priority=2_000_000_000), pod("important", priority=5), pod("other"))
    assert world.look() == "other"
    assert world.eviction.pressure.conditions == ("MemoryPressure",)
    assert [worker.evicted for worker in world.workers] == [[], [], [(1.0, True)]]
    assert world.events[0] == ("EvictionThresholdMet", "Attempting to reclaim memory")
    assert world.events[1][0] == "Evicted"
    assert (world.eviction.evictions, world.changes, world.reclaimed) == ({"memory.available": 1}, 1, 0)


def test_node_with_enough_memory_evicts_nobody_and_keeps_quiet() -> None:
    world = World(hard(), pod("p"))
    world.available = [2 * GIB]
    assert (world.look(), world.events, world.changes) == (None, [], 0)


@pytest.mark.parametrize(("most", "grace"), [(0, 1.0), (5, 5.0), (60, 9.0), (-1, 9.0)])
def test_pod_at_soft_threshold_has_time_to_end(most: float, grace: float) -> None:
    world = World(soft(30, max_pod_grace_seconds=most), pod("p"))
    assert world.look() is None
    world.time += 30
    assert world.look() == "p"
    assert world.workers[0].evicted == [(grace, True)]


@pytest.mark.parametrize(
    ("signal", "disk", "reclaimed"),
    [
        ("nodefs.available", False, 1),
        ("nodefs.available", True, 0),
        ("imagefs.available", True, 1),
        ("memory.available", False, 0),
    ],
)
def test_what_nobody_uses_goes_before_pods_if_it_is_on_the_full_disk(signal: str, disk: bool, reclaimed: int) -> None:
    world = World(hard(signal), pod("p"), signal=signal, disk=disk)
    world.available = [0, 2 * GIB] if reclaimed else [0]
    assert (world.look(), world.reclaimed) == (None if reclaimed else "p", reclaimed)


def test_pods_go_when_unused_images_were_not_enough() -> None:
    world = World(hard("nodefs.available"), pod("p"), signal="nodefs.available")
    assert (world.look(), world.reclaimed) == ("p", 1)


@pytest.mark.parametrize(("signal", "seconds"), [("nodefs.available", 10.0), ("memory.available", 0.0)])
def test_nobody_else_goes_before_the_disk_of_an_evicted_pod_is_free(signal: str, seconds: float) -> None:
    world = World(hard(signal), pod("p"), pod("q"), signal=signal)

    async def body() -> float:
        evicted = await world.eviction.look()
        assert evicted is not None
        began = asyncio.get_running_loop().time()
        await world.eviction.make_sure(evicted)
        return asyncio.get_running_loop().time() - began

    assert round(virtual_time.run(body())) == seconds
    assert world.removed == 1


def test_status_of_evicted_pod_has_the_condition_once_nothing_runs() -> None:
    known = StatusInputs(is_over=True, failure=("Evicted", "no memory"), disruption="too little memory")
    status = pod_status(pod("p"), SeenPod(), known, "2026-01-01T00:00:00Z")
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "no memory")
    found = next(one for one in status["conditions"] if one["type"] == "DisruptionTarget")
    assert (found["status"], found["reason"], found["message"]) == ("True", "TerminationByKubelet", "too little memory")
    limits = dataclasses.replace(known, disruption="")
    assert "DisruptionTarget" not in {
        one["type"] for one in pod_status(pod("p"), SeenPod(), limits, "2026-01-01T00:00:00Z")["conditions"]
    }


# -- flags ------------------------------------------------------------------------------------------------------------


def flags(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_eviction_arguments(parser)
    return parser.parse_args(words)


def test_flags_have_the_defaults_of_kubelets() -> None:
    assert eviction_options(flags()) == EvictionOptions()
    assert image_gc_options(flags()) == ImageGcOptions()


def test_flags_are_read_as_kubelets_read_them() -> None:
    found = eviction_options(
        flags(
            "--eviction-hard=memory.available<200Mi",
            "--eviction-soft=memory.available<1Gi",
            "--eviction-soft-grace-period=memory.available=1m30s",
            "--eviction-minimum-reclaim=memory.available=5%",
            "--eviction-max-pod-grace-period=60",
        )
    )
    assert [(one.signal, one.grace) for one in found.thresholds] == [
        ("memory.available", 0), ("memory.available", 90.0),
    ]  # fmt: skip
    assert all(one.minimum is not None for one in found.thresholds)
    assert found.max_pod_grace_seconds == 60
    assert eviction_options(flags("--eviction-hard=")).thresholds == ()


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("--eviction-hard=memory.available=1Gi", '"memory.available=1Gi": write SIGNAL<VALUE'),
        ("--eviction-hard=memory.available<x", "Invalid value"),
        ("--eviction-soft=memory.available<1Gi", "grace period must be specified"),
        ("--eviction-soft-grace-period=memory.available=soon", "write a duration"),
    ],
)
def test_wrong_flag_is_named(word: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        eviction_options(flags(word))


def test_low_threshold_of_images_is_not_above_the_high_one() -> None:
    with pytest.raises(UsageError, match="--image-gc-low-threshold, which is 80"):
        image_gc_options(flags("--image-gc-high-threshold=70"))


# -- images -----------------------------------------------------------------------------------------------------------


class Runtime:
    """Images by id, each of 10 bytes; `used` are those of containers."""

    def __init__(self, *ids: str, used: tuple[str, ...] = (), pinned: tuple[str, ...] = ()) -> None:
        self.ids, self.used, self.pinned, self.refused = list(ids), used, pinned, ""

    async def images(self) -> list[cri.Image]:
        return [cri.Image(id=one, size=10, pinned=one in self.pinned) for one in self.ids]

    async def containers(self) -> list[cri.Container]:
        return [cri.Container(image_ref=one) for one in self.used]

    async def sandbox_image(self) -> str:
        return "pause:1"

    async def image(self, name: str) -> cri.Image | None:
        found = name.partition(":")[0]
        return cri.Image(id=found) if found in self.ids else None

    async def image_directory(self) -> str:
        return "/images"

    async def remove_image(self, image: str) -> None:
        self.ids.remove(image)


class Images:
    """A collector whose disk is given, and the events about the node."""

    def __init__(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, *pods: Obj, **options: Any) -> None:
        self.now, self.disk = 1000.0, FileSystem(capacity=100, available=50)
        self.events: list[tuple[str, str]] = []
        monkeypatch.setattr("haru.node.stats.kubelet.readings.file_system", lambda _: self.disk)
        parts: Any = (runtime, ImageGcOptions(**options), lambda: pods, self._tell)
        self.collector = ImageCollector(*parts, now=lambda: self.now)

    def collect(self) -> None:
        asyncio.run(self.collector.collect())

    def _tell(self, type: str, reason: str, message: str) -> None:
        self.events.append((reason, message))


def test_full_disk_loses_the_longest_unused_images_first(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime("a", "b", "c", used=("a",))
    images = Images(runtime, monkeypatch)
    images.collect()
    runtime.used, images.now = ("b",), 1300.0
    images.disk = FileSystem(capacity=100, available=10)
    images.collect()  # 10 bytes bring the disk to 80 %: c was never used
    assert runtime.ids == ["a", "b"]
    images.now = 1600.0
    images.collect()
    assert runtime.ids == ["b"]


def test_images_in_use_pinned_new_or_of_sandboxes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime("used", "pinned", "pause", "volume", used=("used",), pinned=("pinned",))
    mounts = pod("p", volumes=[{"name": "v", "image": {"reference": "volume:1"}}])
    images = Images(runtime, monkeypatch, mounts)
    images.collect()
    runtime.ids.append("new")
    images.now, images.disk = 1119.0, FileSystem(capacity=100 * GIB, available=10 * GIB)
    with pytest.raises(ImageGcError):
        images.collect()
    assert runtime.ids == ["used", "pinned", "pause", "volume", "new"]
    assert images.events == [
        (
            "FreeDiskSpaceFailed",
            "Insufficient free disk space on the node's image filesystem (90% of 100.0 GiB used). Failed to free "
            "sufficient space by deleting unused images (freed 0 bytes). Investigate disk usage, as it could be used "
            "by active images, logs, volumes, or other data.",
        )
    ]


def test_old_images_go_however_empty_the_disk_is(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime("a", "b", used=("b",))
    images = Images(runtime, monkeypatch, maximum_age=3600.0)
    images.collect()
    images.now += 3600.0
    images.collect()
    assert runtime.ids == ["a", "b"]
    images.now += 1.0
    images.collect()
    assert runtime.ids == ["b"]


def test_image_that_was_used_until_now_may_go_if_it_was_seen_first_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime("long here", used=("long here",))
    images = Images(runtime, monkeypatch)
    for images.now in (1000.0, 1300.0):
        images.collect()
    runtime.used, images.disk = (), FileSystem(capacity=100, available=10)
    images.collect()
    assert runtime.ids == []


def test_maximum_age_counts_from_the_last_use_not_from_when_an_image_was_seen_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = Runtime("long here", used=("long here",))
    images = Images(runtime, monkeypatch, maximum_age=3600.0)
    for images.now in (1000.0, 4000.0):
        images.collect()
    runtime.used = ()
    runtime.ids.append("new, never used")
    images.now = 4601.0
    images.collect()
    assert runtime.ids == ["long here"]
    images.now = 7601.0
    images.collect()
    assert runtime.ids == []


@pytest.mark.parametrize(("available", "freed"), [(16, 0), (15, 5), (0, 20), (200, 0)])
def test_disk_is_freed_from_the_high_to_the_low_threshold(available: int, freed: int) -> None:
    assert bytes_to_free(ImageGcOptions(), available, 100) == freed


@pytest.mark.parametrize(
    ("size", "text"), [(12, "12 B"), (1536, "1.5 KiB"), (3 * GIB, "3.0 GiB"), (1 << 51, "2048.0 TiB")]
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert readable(size) == text
