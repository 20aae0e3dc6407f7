"""XIDs, errors of the memory, heat and cards that are gone, as health and as taints."""

from __future__ import annotations

from typing import Any

import pytest
from nvidia_bench import NODE, played

from haru.drivers.library import Health
from haru.drivers.nvidia.cards import take_inventory
from haru.drivers.nvidia.health import HARMLESS, Condition
from haru.drivers.nvidia.nvml import Event, Readings


def condition(profile: str = "dgx-h100-mig") -> tuple[Condition, list[str]]:
    nvml = played(profile)
    return Condition(take_inventory(nvml, True), HARMLESS | {94}), [card.uuid for card in nvml.cards()]


def told(found: Condition, device: str) -> tuple[str, str, list[str]]:
    health = found.health(NODE)[NODE, device]
    return health.state, health.message, [f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in health.taints]


def test_devices_without_problem_are_healthy() -> None:
    found, _ = condition()
    assert set(found.health(NODE).values()) == {Health()}
    assert len(found.health(NODE)) == 2 * 26


def test_xid_of_card_affects_its_partitions() -> None:
    found, (uuid, _) = condition()
    found.take_event(Event(uuid, 79), None)
    for device in ("gpu-0", "gpu-0-mig-1g10gb-19-3"):
        assert told(found, device) == ("Unhealthy", "XID 79", ["gpu.nvidia.com/xid=79:NoSchedule"])
    assert told(found, "gpu-1") == ("Healthy", "", [])


def test_xid_of_partition_affects_only_that_partition() -> None:
    found, (uuid, _) = condition()
    found.take_event(Event(uuid, 63, 1), "gpu-0-mig-1g10gb-19-3")
    assert told(found, "gpu-0-mig-1g10gb-19-3")[0] == "Unhealthy"
    assert told(found, "gpu-0")[0] == "Healthy"


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 94, 109])
def test_application_xid_has_no_effect(xid: int) -> None:
    found, (uuid, _) = condition()
    found.take_event(Event(uuid, xid), None)
    assert told(found, "gpu-0") == ("Healthy", "", [f"gpu.nvidia.com/xid={xid}:None"])
    found.take_event(Event(uuid, 79), None)
    found.take_event(Event(uuid, xid), None)
    assert told(found, "gpu-0")[2] == ["gpu.nvidia.com/xid=79:NoSchedule"], "it does not hide the other"


@pytest.mark.parametrize(
    ("readings", "message", "taints"),
    [
        (Readings(uncorrected_errors=2), "2 uncorrected errors of its memory", ["gpu.nvidia.com/ecc=:NoSchedule"]),
        (Readings(0, 92, True), "slowed down by heat (92 degrees Celsius)", ["gpu.nvidia.com/thermal=:NoSchedule"]),
        (Readings(100, 80, False, 0), "", []),
        (Readings(), "", []),
    ],
)
def test_sensor_readings_give_health_and_taints(readings: Readings, message: str, taints: list[str]) -> None:
    found, (uuid, _) = condition()
    found.take_readings(uuid, readings)
    assert told(found, "gpu-0") == ("Unhealthy" if taints else "Healthy", message, taints)
    found.take_readings(uuid, Readings(0, 40, False, 0))
    assert told(found, "gpu-0")[0] == "Healthy", "it passes"


def test_lost_card_is_unhealthy_and_unmonitored_card_unknown() -> None:
    found, (first, second) = condition()
    found.lost.add(first)
    found.unmonitored.add(second)
    assert told(found, "gpu-0") == ("Unhealthy", "the card is lost", ["gpu.nvidia.com/gpu-lost=:NoSchedule"])
    assert told(found, "gpu-1") == ("Unknown", "", ["gpu.nvidia.com/unmonitored=:None"])


def test_taints_of_one_device_have_unique_key_and_effect() -> None:
    """At most sixteen, of one key and effect once."""
    found, (uuid, _) = condition()
    found.lost.add(uuid)
    found.unmonitored.add(uuid)
    found.take_event(Event(uuid, 79), None)
    found.take_readings(uuid, Readings(0, 99, True, 1))
    taints: Any = found.health(NODE)[NODE, "gpu-0"].taints
    assert len({(taint["key"], taint["effect"]) for taint in taints}) == len(taints) == 5
