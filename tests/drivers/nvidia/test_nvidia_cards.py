"""What the driver publishes is what the simulated profile of the same node publishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nvidia_bench import NODE, played, recorded

from haru.drivers.library.pools import Publisher, slices_of
from haru.drivers.nvidia.cards import take_inventory, version
from haru.drivers.nvidia.nvml import CardFacts, SystemFacts
from haru.drivers.nvidia.recording import RecordedCard, Recording, load
from haru.drivers.nvidia.simulated_nvml import SimulatedNvml, recording_of
from haru.drivers.simulated.plugin import pool_of
from haru.drivers.simulated.profiles import load_profile, profile_names

CARDS = [
    name for name in profile_names()
    if load_profile(name).driver == "gpu.nvidia.com" and load_profile(name).layout != "shared"
]  # fmt: skip
RECORDINGS = Path(__file__).parents[2] / "data" / "nvml"
_NEEDS_RESET = ("dgx-a100-40gb-mig", "dgx-a100-80gb-mig", "a30-mig")


@pytest.mark.parametrize("name", [name for name in CARDS if name not in _NEEDS_RESET])
def test_slices_equal_those_of_simulated_profile(name: str) -> None:
    profile = load_profile(name)
    inventory = take_inventory(SimulatedNvml(recording_of(profile, NODE)), dynamic=name.endswith("-mig"))
    who = Publisher("gpu.nvidia.com", NODE, "uid")
    mine, simulated = (slices_of(who, NODE, pool, {}, 1) for pool in (inventory.pool, pool_of(profile, NODE)))
    assert [obj["spec"] for obj in mine] == [obj["spec"] for obj in simulated]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("card", "profile"), [("h100", "dgx-h100"), ("h200", "hgx-h200")])
def test_recorded_card_is_published_as_its_profile(card: str, profile: str, dynamic: bool) -> None:
    """Recorded from one card of each kind by kernel driver 580.159.04.

    NVIDIA's own driver (of May 2026) published the devices of the H100 on its machine as this driver did, with and
    without DynamicMIG.
    """
    mine, simulated = (
        take_inventory(SimulatedNvml(recording), dynamic).pool
        for recording in (load(RECORDINGS / f"{card}.json"), recorded(profile, 1))
    )
    assert mine.devices() == simulated.devices()
    assert len(mine.devices()) == (26 if dynamic else 1)
    for one, other in zip(mine.slices, simulated.slices, strict=True):
        assert one.shared_counters == other.shared_counters
        assert [_without_place(device) for device in one.devices] == [
            _without_place(device) for device in other.devices
        ]


def _without_place(device: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is of this card, its place on the machine, and the versions and mode of that machine's driver."""
    own = {"uuid", "parentUUID", "driverVersion", "cudaDriverVersion", "addressingMode"}
    kept = {key: value for key, value in device["attributes"].items() if key not in own and "/" not in key}
    return {**device, "attributes": kept}


@pytest.mark.parametrize("name", _NEEDS_RESET)
def test_card_needing_reset_is_published_in_its_current_mig_mode(name: str) -> None:
    """Nothing is published that a claim could not get: no partition with MIG off, no whole card with MIG on."""
    recording = recorded(name, 1)
    off = take_inventory(SimulatedNvml(recording), dynamic=True)
    assert off.pool.devices() == ["gpu-0"]
    (card,) = recording.cards
    card.facts = replace(card.facts, mig_mode=True)
    on = take_inventory(SimulatedNvml(recording), dynamic=True)
    (simulated,) = [
        one for one in pool_of(load_profile(name), NODE).slices if "gpu-0" in [d["name"] for d in one.devices]
    ]
    assert list(on.pool.slices[1].devices) == list(simulated.devices)[1:]


def test_vgpu_is_published_as_it_is() -> None:
    """Nobody but its hypervisor can divide it."""
    recording = recorded("dgx-h100", 1)
    (card,) = recording.cards
    card.facts = replace(card.facts, is_vgpu=True)
    assert take_inventory(SimulatedNvml(recording), dynamic=True).pool.devices() == ["gpu-0"]


def test_static_mig_card_publishes_its_partitions() -> None:
    nvml = played("dgx-h100", 2)
    first, second = nvml.cards()
    nvml.set_mig_mode(first.uuid, True)
    made = nvml.create_instance(first.uuid, 9, 4)
    assert take_inventory(nvml, dynamic=False).pool.devices() == ["gpu-1"], "no compute instance: nothing can run in it"
    made = nvml.create_compute_instance(first.uuid, made.id)
    (partition, card) = take_inventory(nvml, dynamic=False).pool.slices[0].devices
    assert partition["name"] == "gpu-0-mig-3g40gb-9-4"
    assert partition["attributes"]["uuid"] == {"string": made.uuid}
    assert partition["capacity"]["memorySlice7"] == {"value": "1"}
    assert "memorySlice3" not in partition["capacity"]
    assert "consumesCounters" not in partition
    assert card["attributes"]["uuid"] == {"string": second.uuid}


def test_unknown_card_facts_are_not_published() -> None:
    facts = CardFacts(3, "GPU-x", "NVIDIA L4", "Nvidia", "Ada Lovelace", "8.9", (23034 << 20) + 1, "0000:01:00.0")
    nvml = SimulatedNvml(Recording(SystemFacts("550.54", 12040), [RecordedCard(facts)]))
    (device,) = take_inventory(nvml, dynamic=True).pool.slices[0].devices
    assert device == {
        "name": "gpu-3",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": "GPU-x"},
            "productName": {"string": "NVIDIA L4"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Ada Lovelace"},
            "cudaComputeCapability": {"version": "8.9.0"},
            "driverVersion": {"version": "550.54.0"},
            "cudaDriverVersion": {"version": "12.4.0"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"},
        },
        "capacity": {"memory": {"value": str((23034 << 20) + 1)}},
    }


@pytest.mark.parametrize(
    ("text", "told"), [("580.65.06", "580.65.6"), ("9.0", "9.0.0"), ("13", "13.0.0"), ("470.0.0.7", "470.0.0")]
)
def test_driver_version_is_converted_to_semantic_version(text: str, told: str) -> None:
    assert version(text) == told
