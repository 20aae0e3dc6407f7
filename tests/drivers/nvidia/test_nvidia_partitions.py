"""Partitions over random prepares, unprepares, crashes and reboots: none leaks, none overlaps, notes and NVML agree."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from nvidia_bench import Written, claim, options, played, recorded

from haru.drivers.checkpoint import Checkpoint, CheckpointError
from haru.drivers.library import ClaimError, DeviceError, Entry
from haru.drivers.nvidia.nvml import Event, Instance, NvmlError
from haru.drivers.nvidia.partitions import Partitions
from haru.drivers.nvidia.plugin import NvidiaCards
from haru.drivers.nvidia.process import assemble
from haru.drivers.nvidia.simulated_nvml import SimulatedNvml

T = TypeVar("T")


class Crash(BaseException):
    """The process is gone."""


class CrashingNvml(SimulatedNvml):
    """Ends the process before or after one of the next calls that change something."""

    calls_left: int | None = None

    def _crashing(self, call: Callable[..., T], *arguments: Any) -> T:
        if self.calls_left is None:
            return call(*arguments)
        self.calls_left -= 1
        if self.calls_left == 0:
            raise Crash
        done = call(*arguments)
        self.calls_left -= 1
        if self.calls_left == 0:
            raise Crash
        return done

    def set_mig_mode(self, uuid: str, enabled: bool) -> bool:
        return self._crashing(super().set_mig_mode, uuid, enabled)

    def create_instance(self, uuid: str, profile: int, start: int) -> Instance:
        return self._crashing(super().create_instance, uuid, profile, start)

    def create_compute_instance(self, uuid: str, instance: int) -> Instance:
        return self._crashing(super().create_compute_instance, uuid, instance)

    def destroy_compute_instance(self, uuid: str, instance: int) -> None:
        return self._crashing(super().destroy_compute_instance, uuid, instance)

    def destroy_instance(self, uuid: str, instance: int) -> None:
        return self._crashing(super().destroy_instance, uuid, instance)


DEVICES = (
    *("gpu-0", "gpu-1", "gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-1", "gpu-0-mig-1g10gb-me-20-1"),
    *("gpu-0-mig-1g10gb-me-20-6", "gpu-0-mig-2g20gb-14-0", "gpu-0-mig-3g40gb-9-0", "gpu-0-mig-3g40gb-9-4"),
    *("gpu-0-mig-7g80gb-0-0", "gpu-1-mig-1g20gb-15-2", "gpu-1-mig-3g40gb-9-0", "gpu-1-mig-4g40gb-5-0"),
)
CLAIMS = st.sampled_from("abcd")
CRASHES = st.none() | st.integers(1, 9)


class Node(RuleBasedStateMachine):
    """The driver as its library uses it: the book has a claim before prepare and until unprepare has succeeded."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="haru-nvidia-"))
        self.nvml = CrashingNvml(recorded("dgx-h100-mig"))
        self.book: dict[str, tuple[str, ...]] = {}
        self.ready: set[str] = set()

    @initialize()
    def begin(self) -> None:
        self.start()

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def start(self) -> None:
        self.nvml.calls_left = None
        given = options(self.root, "DynamicMIG", command=Written())
        _, self.partitions, self.cards = assemble(self.nvml, given, self.root / "data")
        self.cards.recover(list(self.book))

    def attempt(self, work: Callable[[], Any], crash: int | None) -> bool:
        """Whether it was done; after a crash the driver runs again."""
        self.nvml.calls_left = crash
        try:
            work()
        except Crash:
            self.start()
            return False
        except ClaimError:
            return False
        finally:
            self.nvml.calls_left = None
        return True

    @rule(uid=CLAIMS, devices=st.lists(st.sampled_from(DEVICES), min_size=1, max_size=3, unique=True), crash=CRASHES)
    def prepare(self, uid: str, devices: list[str], crash: int | None) -> None:
        if uid in self.ready:
            return
        given = self.book.setdefault(uid, tuple(devices))
        if self.attempt(lambda: self.cards._prepare(claim(uid, *given)), crash):
            self.ready.add(uid)

    @rule(uid=CLAIMS, crash=CRASHES)
    def unprepare(self, uid: str, crash: int | None) -> None:
        if uid not in self.book:
            return
        self.ready.discard(uid)
        if self.attempt(lambda: self.cards._unprepare(uid), crash):
            del self.book[uid]

    @rule(reboot=st.booleans())
    def restart(self, reboot: bool) -> None:
        if reboot:
            self.nvml.reboot()
        self.start()

    @rule(uid=CLAIMS)
    def forget(self, uid: str) -> None:
        """Somebody removed the checkpoint of claims."""
        if self.book.pop(uid, None):
            self.ready.discard(uid)
            self.start()

    @invariant()
    def partitions_are_those_of_claims(self) -> None:
        if not hasattr(self, "partitions"):
            return
        notes = self.partitions.notes()
        assert {note.claim for note in notes} <= set(self.book), "a claim that is gone has something"
        whole = {note.card for note in notes if note.profile < 0}
        for card in self.nvml.cards():
            instances = self.nvml.instances(card.uuid)
            taken = [number for each in instances for number in range(each.start, each.start + each.size)]
            assert len(taken) == len(set(taken)), "partitions overlap"
            mine = [note for note in notes if note.card == card.uuid]
            for each in instances:
                assert any(note.is_of(each) for note in mine), "a partition that no claim has"
            if card.uuid in whole and any(note.claim in self.ready for note in mine):
                assert not instances
            if not mine:
                assert card.mig_mode is False, "MIG stays on"
        self.ready_claims_have_their_devices()

    def ready_claims_have_their_devices(self) -> None:
        stored = Checkpoint(self.root / "data" / "partitions.json", "partitions of gpu.nvidia.com").load()
        notes = self.partitions.notes()
        assert len((stored or {"notes": []})["notes"]) == len(notes)
        for uid in self.ready:
            for device in self.book[uid]:
                (note,) = [each for each in notes if (each.claim, each.device) == (uid, device)]
                made = [each for each in self.nvml.instances(note.card) if note.is_of(each)]
                if note.profile >= 0 and device not in self.partitions.changed:
                    assert [(each.id, bool(each.uuid)) for each in made] == [(note.instance, True)]


def test_random_prepares_and_crashes_leave_no_leaked_or_overlapping_partition() -> None:
    given = settings(max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=[*HealthCheck])
    run_state_machine_as_test(Node, settings=given)


@pytest.mark.nightly
def test_random_prepares_and_crashes_leave_no_leak_in_500_runs() -> None:
    run_state_machine_as_test(Node, settings=settings(max_examples=500, stateful_step_count=40, deadline=None))


def driver(root: Path, nvml: SimulatedNvml, *gates: str) -> tuple[Partitions, NvidiaCards]:
    _, partitions, cards = assemble(nvml, options(root, *gates, command=Written()), root / "data")
    return partitions, cards


def entry(uid: str) -> Entry:
    return Entry("default", f"claim-{uid}", uid)


async def test_partition_is_created_with_its_claim_and_destroyed_with_it(tmp_path: Path) -> None:
    nvml = played("dgx-h100-mig", 1)
    _, cards = driver(tmp_path, nvml, "DynamicMIG")
    (card,) = nvml.cards()
    (ready,) = await cards.prepare(claim("a", "gpu-0-mig-3g40gb-9-4"))
    (made,) = nvml.instances(card.uuid)
    assert (made.profile, made.start, made.size, made.compute_instance) == (9, 4, 4, 0)
    assert ready.attributes["uuid"] == {"string": made.uuid}
    assert ready.attributes["profile"] == {"string": "3g.40gb"}
    assert nvml.cards()[0].mig_mode is True
    again = await cards.prepare(claim("a", "gpu-0-mig-3g40gb-9-4"))
    assert again == [ready]
    await cards.unprepare(entry("a"))
    await cards.unprepare(entry("a"))
    assert nvml.instances(card.uuid) == []
    assert nvml.cards()[0].mig_mode is False


async def test_partition_without_space_is_refused_with_reason(tmp_path: Path) -> None:
    nvml = played("dgx-h100-mig", 1)
    _, cards = driver(tmp_path, nvml, "DynamicMIG")
    await cards.prepare(claim("a", "gpu-0-mig-3g40gb-9-4"))
    for device, told in (
        ("gpu-0-mig-1g10gb-19-5", "device gpu-0-mig-1g10gb-19-5: claim a still has gpu-0-mig-3g40gb-9-4"),
        ("gpu-0", "claim a still has gpu-0-mig-3g40gb-9-4"),
        ("gpu-0-mig-3g40gb-9-2", "the card has no such kind of partition at that place"),
        ("gpu-7", "this node has none of that name"),
    ):
        with pytest.raises(DeviceError, match=told):
            await cards.prepare(claim("b", device))
    assert len(nvml.instances(nvml.cards()[0].uuid)) == 1


@pytest.mark.parametrize(
    ("profile", "gates", "device", "told"),
    [
        ("t4", ["DynamicMIG"], "gpu-0-mig-1g10gb-19-0", r"Tesla T4 cannot be divided \(MIG\)"),
        ("dgx-h100", [], "gpu-0-mig-1g10gb-19-0", "no such partition, and the driver runs without DynamicMIG"),
        ("dgx-h100-mig-balanced", [], "gpu-0", "the card is divided"),
    ],
)
async def test_unknown_device_of_card_is_refused_with_reason(
    profile: str, gates: list[str], device: str, told: str, tmp_path: Path
) -> None:
    _, cards = driver(tmp_path, played(profile, 1), *gates)
    with pytest.raises(DeviceError, match=told):
        await cards.prepare(claim("a", device))


async def test_partly_prepared_claim_can_be_unprepared(tmp_path: Path) -> None:
    nvml = played("dgx-h100-mig", 1)
    partitions, cards = driver(tmp_path, nvml, "DynamicMIG")
    with pytest.raises(DeviceError, match="still has"):
        await cards.prepare(claim("a", "gpu-0-mig-3g40gb-9-0", "gpu-0-mig-2g20gb-14-2"))
    assert len(partitions.notes()) == 1
    await cards.unprepare(entry("a"))
    assert nvml.instances(nvml.cards()[0].uuid) == []


async def test_static_partition_is_used_and_not_destroyed(tmp_path: Path) -> None:
    nvml = played("dgx-h100-mig-balanced", 1)
    _, cards = driver(tmp_path, nvml)
    before = nvml.instances(nvml.cards()[0].uuid)
    (ready,) = await cards.prepare(claim("a", "gpu-0-mig-2g20gb-14-0"))
    assert ready.attributes["uuid"]["string"].startswith("MIG-")
    await cards.unprepare(entry("a"))
    assert nvml.instances(nvml.cards()[0].uuid) == before


async def test_partition_recreated_with_other_ids_after_reboot_is_reported(tmp_path: Path) -> None:
    """After a restart of the machine the second of two partitions is the first that is made again."""
    nvml = played("dgx-h100-mig", 1)
    _, cards = driver(tmp_path, nvml, "DynamicMIG")
    await cards.prepare(claim("a", "gpu-0-mig-1g10gb-19-0"))
    await cards.prepare(claim("b", "gpu-0-mig-1g10gb-19-1"))
    await cards.unprepare(entry("a"))
    nvml.reboot()
    partitions, cards = driver(tmp_path, nvml, "DynamicMIG")
    await asyncio.to_thread(cards.recover, ["b"])
    (made,) = nvml.instances(nvml.cards()[0].uuid)
    assert (made.profile, made.start) == (19, 1)
    assert partitions.changed == {"gpu-0-mig-1g10gb-19-1"}


async def test_orphaned_dynamic_partitions_are_destroyed_at_start(tmp_path: Path) -> None:
    for gates, left in (((), 4), (("DynamicMIG",), 0)):
        nvml = played("dgx-h100-mig-balanced", 1)
        _, cards = driver(tmp_path / str(left), nvml, *gates)
        await asyncio.to_thread(cards.recover, [])
        assert len(nvml.instances(nvml.cards()[0].uuid)) == left


def test_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "partitions.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"partitions\.json"):
        driver(tmp_path, played("dgx-h100-mig", 1), "DynamicMIG")


def test_played_nvml_refuses_what_hardware_refuses() -> None:
    nvml = played("dgx-h100-mig", 1)
    (card,) = nvml.cards()
    with pytest.raises(NvmlError, match="Not Supported"):
        nvml.create_instance(card.uuid, 19, 0)
    assert nvml.set_mig_mode(card.uuid, True)
    made = nvml.create_instance(card.uuid, 20, 0)
    for profile, start, told in ((20, 1, "Insufficient"), (9, 0, "Insufficient"), (9, 1, "Not Found")):
        with pytest.raises(NvmlError, match=told):
            nvml.create_instance(card.uuid, profile, start)
    nvml.create_compute_instance(card.uuid, made.id)
    for refused in (lambda: nvml.destroy_instance(card.uuid, made.id), lambda: nvml.set_mig_mode(card.uuid, False)):
        with pytest.raises(NvmlError, match="In use"):
            refused()
    nvml.lose(card.uuid)
    with pytest.raises(NvmlError, match="GPU is lost"):
        nvml.readings(card.uuid)
    nvml.happen(Event(card.uuid, 79))
    assert nvml.wait(0) is None, "not watched"
