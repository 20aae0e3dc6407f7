from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from haru.kube.gates import FeatureGates


def test_gate_defaults_equal_kubernetes_1_36() -> None:
    gates = FeatureGates()
    on = {"DynamicResourceAllocation", "DRAPartitionableDevices", "DRADeviceTaints", "DRAConsumableCapacity"}
    off = {"GenericWorkload", "GangScheduling", "DRADeviceTaintRules", "DRAListTypeAttributes", "MemoryQoS"}
    assert {name: gates.enabled(name) for name in on | off} == {name: name in on for name in on | off}


def test_gate_table_is_consistent() -> None:
    names = [gate.name for gate in FeatureGates.known()]
    assert names == sorted(names)
    for gate in FeatureGates.known():
        assert set(gate.requires) <= set(names)
        assert gate.default or gate.stage != "GA"
        assert not (gate.stage == "ALPHA" and gate.default)


@pytest.mark.parametrize(
    ("text", "gate", "enabled"),
    [
        ("GenericWorkload=true", "GenericWorkload", True),
        ("GenericWorkload=T, GangScheduling=1,", "GangScheduling", True),
        ("AllAlpha=true", "WorkloadAwarePreemption", True),
        ("AllAlpha=true,GenericWorkload=false", "GangScheduling", False),
        ("GenericWorkload=false,AllAlpha=true", "GenericWorkload", False),
        ("AllBeta=false", "DRADeviceTaints", False),
        ("AllBeta=true", "DRADeviceTaintRules", True),
        ("DRAResourceClaimDeviceStatus=false", "DRADeviceBindingConditions", False),
        ("DynamicResourceAllocation=true", "DynamicResourceAllocation", True),
        ("DRAPrioritizedList=false", "DRAPrioritizedList", False),
    ],
)
def test_feature_gates_text_sets_gates(text: str, gate: str, enabled: bool) -> None:
    assert FeatureGates.parse(text).enabled(gate) is enabled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GangScheduing=true", "unrecognized feature gate: GangScheduing (did you mean GangScheduling?)"),
        ("gangscheduling=true", "unrecognized feature gate: gangscheduling (did you mean GangScheduling?)"),
        ("Zzz=true", "unrecognized feature gate: Zzz"),
        ("GangScheduling", "missing bool value for feature gate GangScheduling: write GangScheduling=true or"),
        ("GangScheduling=yes", "invalid value of GangScheduling=yes: write GangScheduling=true or"),
        ("KubeletPSI=false", "cannot set feature gate KubeletPSI to false, feature is locked to true"),
        ("GangScheduling=true", "feature gate GangScheduling needs GenericWorkload, which is off: add"),
        ("WorkloadAwarePreemption=true,GenericWorkload=true", "needs GangScheduling, which is off"),
    ],
)
def test_invalid_feature_gates_text_names_gate_and_fix(text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        FeatureGates.parse(text)
    assert message in str(error.value)


def test_accelerator_defaults_enable_accelerator_gates() -> None:
    gates = FeatureGates.accelerator_defaults()
    assert gates.enabled("WorkloadAwarePreemption")
    assert gates.enabled("DRADeviceTaintRules")
    assert not gates.enabled("MemoryQoS")
    without = FeatureGates.accelerator_defaults({"GenericWorkload": False})
    assert not without.enabled("WorkloadAwarePreemption")
    assert not without.enabled("WorkloadWithJob")
    assert without.enabled("DRAListTypeAttributes")


def test_unknown_gate_name_raises_key_error() -> None:
    with pytest.raises(KeyError):
        FeatureGates().enabled("NoSuchGate")


def test_feature_gates_with_equal_effect_are_equal() -> None:
    assert FeatureGates.parse("DRADeviceTaints=true") == FeatureGates()
    assert hash(FeatureGates.parse("DRADeviceTaints=true")) == hash(FeatureGates())
    assert FeatureGates.parse("MemoryQoS=true") != FeatureGates()


@pytest.mark.parametrize(
    ("gate", "before", "now"),
    [
        ("UnknownVersionInteroperabilityProxy", ("ALPHA", False, False), ("BETA", True, False)),
        ("DRAAdminAccess", ("BETA", True, False), ("GA", True, True)),
        ("DRADeviceTaints", ("ALPHA", False, False), ("BETA", True, False)),
        ("DynamicResourceAllocation", ("GA", True, True), ("GA", True, True)),
        ("MutatingAdmissionPolicy", ("BETA", False, False), ("GA", True, False)),
        ("WorkloadWithJob", None, ("ALPHA", False, False)),
    ],
)
def test_stage_and_default_depend_on_version(
    gate: str, before: tuple[str, bool, bool] | None, now: tuple[str, bool, bool]
) -> None:
    def seen(minor: int) -> tuple[str, bool, bool] | None:
        found = {each.name: each for each in FeatureGates.known(minor)}.get(gate)
        return (found.stage, found.default, found.locked) if found else None

    assert (seen(35), seen(36)) == (before, now)
    assert FeatureGates(minor=35).enabled(gate) is bool(before and before[1])
    assert FeatureGates(minor=36).enabled(gate) is now[1]


def test_gate_of_later_version_cannot_be_set() -> None:
    with pytest.raises(ValueError, match=r"cannot set feature gate WorkloadWithJob to true, feature is PreAlpha at em"):
        FeatureGates.parse("WorkloadWithJob=true", 35)
    # What is locked now was not then.
    assert not FeatureGates.parse("KubeletPSI=false", 35).enabled("KubeletPSI")
    assert not FeatureGates.parse("AllAlpha=true", 35).enabled("WorkloadWithJob")
    with pytest.raises(ValueError, match=r"version 1\.31 is not between \[1\.32, 1\.36\.0\]"):
        FeatureGates(minor=31)


def test_gate_metrics_list_every_gate() -> None:
    told = FeatureGates.parse("AllAlpha=true,MemoryQoS=false").told()
    assert told == sorted(told)
    assert ("AllAlpha", "ALPHA", True) in told and ("AllBeta", "BETA", False) in told
    assert ("KubeletPSI", "", True) in told and ("MemoryQoS", "ALPHA", False) in told
    assert "WorkloadWithJob" not in {name for name, _, _ in FeatureGates(minor=35).told()}
    assert FeatureGates(minor=35) != FeatureGates()
    lines = FeatureGates().exposition()
    assert lines[1] == "# TYPE kubernetes_feature_enabled gauge" and len(lines) == 2 + len(FeatureGates().told())
    assert 'kubernetes_feature_enabled{name="KubeletPSI",stage=""} 1' in lines


def test_gates_reference_equals_gate_table() -> None:
    root = Path(__file__).parents[2]
    spec = importlib.util.spec_from_file_location("write_gates_reference", root / "tools" / "write_gates_reference.py")
    assert spec is not None and spec.loader is not None
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    told = (root / "docs" / "reference" / "feature-gates.md").read_text()
    assert told == writer.page(), "run: python tools/write_gates_reference.py"
    assert all(f"| `{gate.name}` |" in told for gate in FeatureGates.known())
