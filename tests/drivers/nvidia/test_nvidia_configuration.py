"""GpuConfig and MigDeviceConfig: which one counts, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from nvidia_bench import GROUP

from haru.drivers.library import Allocated, ClaimToPrepare, ConfigError
from haru.drivers.nvidia.configuration import MpsSettings, Sharing, limits_of, sharing_of

Obj = dict[str, Any]
GATES = ("TimeSlicingSettings", "MPSSupport")


def config(sharing: Any = None, kind: str = "GpuConfig", **more: Any) -> Obj:
    return {"apiVersion": GROUP, "kind": kind, **({"sharing": sharing} if sharing is not None else {}), **more}


def slices(interval: str) -> Obj:
    return {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}


def mps(**settings: Any) -> Obj:
    return {"strategy": "MPS", "mpsConfig": settings}


def resolved(*parameters: Obj, named: tuple[bool, ...] = (), partition: bool = False) -> Sharing | None:
    device = Allocated("r", "n", "gpu-0", parameters=parameters, named=named or (False,) * len(parameters))
    return sharing_of(device, partition, GATES)


def test_claim_configuration_overrides_class_and_defaults() -> None:
    of_class, of_claim = config(slices("Short")), config(slices("Long"))
    assert resolved() is None
    assert resolved(of_class, of_claim) == Sharing("TimeSlicing", 3)
    assert resolved(of_class, config(mps(), "MigDeviceConfig")) == Sharing("TimeSlicing", 1), "does not fit: skipped"
    assert resolved(of_class, config()) is None, "the claim's own says: not shared"
    assert resolved(config(mps(), "MigDeviceConfig"), of_claim, partition=True) == Sharing("MPS")
    assert resolved(config({"strategy": "TimeSlicing"})) == Sharing("TimeSlicing", 0)
    with pytest.raises(ConfigError, match=r"kind.*MigDeviceConfig.*gpu-0 is a whole card: write GpuConfig"):
        resolved(of_class, config(mps(), "MigDeviceConfig"), named=(False, True))
    with pytest.raises(ConfigError, match="gpu-0 is a partition: write MigDeviceConfig"):
        resolved(of_class, named=(True,), partition=True)


def test_parameters_are_collected_from_class_and_claim_in_order() -> None:
    def entry(source: str, parameters: Obj, *requests: str) -> Obj:
        opaque = {"driver": "gpu.nvidia.com", "parameters": parameters}
        return {"source": source, "opaque": opaque, **({"requests": list(requests)} if requests else {})}

    allocation = {
        "results": [{"request": "a/b", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}],
        "config": [
            entry("FromClaim", {"n": 1}),
            entry("FromClass", {"n": 2}, "a"),
            entry("FromClaim", {"n": 3}, "a/b"),
            entry("FromClaim", {"n": 4}, "a/c"),
        ],
    }
    metadata = {"name": "c", "namespace": "default", "uid": "u"}
    claim = {"metadata": metadata, "status": {"allocation": {"devices": allocation}}}
    (device,) = ClaimToPrepare.of(claim, "gpu.nvidia.com").devices
    assert device.parameters == ({"n": 2}, {"n": 1}, {"n": 3})
    assert device.named == (True, False, True)


def test_mps_settings_are_validated_and_give_limits() -> None:
    given = mps(
        defaultActiveThreadPercentage=50,
        defaultPinnedDeviceMemoryLimit="2Gi",
        defaultPerDevicePinnedMemoryLimit={"0": "512Mi", "GPU-b": "1G"},
        multiUser=True,
    )
    sharing = resolved(config(given))
    assert sharing == Sharing("MPS", 0, MpsSettings(50, "2048M", (("0", "512M"), ("GPU-b", "953M")), True))
    assert limits_of(sharing.mps, ["GPU-a", "GPU-b", "GPU-c"]) == {"GPU-a": "512M", "GPU-b": "953M", "GPU-c": "2048M"}
    assert limits_of(MpsSettings(memory_limits=(("0", "1M"),)), ["x", "y"]) == {"x": "1M"}
    with pytest.raises(ConfigError, match=r"defaultPerDevicePinnedMemoryLimit.*\"2\".*below 2"):
        limits_of(MpsSettings(memory_limits=(("2", "1M"),)), ["x", "y"])


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"apiVersion": "gpu.nvidia.com/v1", "kind": "GpuConfig"}, 'apiVersion: Invalid value: "gpu.nvidia.com/v1"'),
        (config(kind="VfioDeviceConfig"), "kind: .*knows GpuConfig and MigDeviceConfig"),
        (config(more=1), "opaque.parameters.more: .*unknown field: write apiVersion, kind, sharing"),
        (config([]), "sharing: .*write an object"),
        (config({"strategy": "Fair"}), "strategy: .*write TimeSlicing or MPS"),
        (config({}), "strategy: .*write TimeSlicing or MPS"),
        (config({**slices("Long"), "mpsConfig": {}}), "mpsConfig: .*cannot stand beside the strategy TimeSlicing"),
        (config({**mps(), "timeSlicingConfig": {}}), "timeSlicingConfig: .*cannot stand beside the strategy MPS"),
        (config(slices("Longer")), "interval: .*write one of Default, Short, Medium, Long"),
        (config({"strategy": "TimeSlicing", "timeSlicingConfig": {"period": 1}}), "timeSlicingConfig.period"),
        (config(slices("Long"), "MigDeviceConfig"), "a partition has no time slices of its own"),
        (config(mps(defaultActiveThreadPercentage=101)), "from 0 to 100"),
        (config(mps(defaultActiveThreadPercentage=True)), "from 0 to 100"),
        (config(mps(defaultPinnedDeviceMemoryLimit="some")), "defaultPinnedDeviceMemoryLimit"),
        (config(mps(defaultPinnedDeviceMemoryLimit="1k")), "at least 1Mi"),
        (config(mps(defaultPerDevicePinnedMemoryLimit=["1Gi"])), "write an object"),
        (config(mps(multiUser="yes")), "write true or false"),
    ],
)
def test_invalid_configuration_is_refused_with_message(parameters: Obj, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        resolved(parameters)


@pytest.mark.parametrize(("sharing", "gate"), [(slices("Long"), GATES[0]), (mps(), GATES[1])])
def test_sharing_without_its_gate_is_refused(sharing: Obj, gate: str) -> None:
    device = Allocated("r", "n", "gpu-0", parameters=(config(sharing),), named=(False,))
    with pytest.raises(ConfigError, match=f"the driver runs without {gate}"):
        sharing_of(device, False, [other for other in GATES if other != gate])
