from __future__ import annotations

from haru.cli.main import build_parser
from haru.engine.framework import PROFILES
from haru.kube.gates import FeatureGates
from haru.scheduler.config import scheduler_config


def test_feature_gates_become_engine_options() -> None:
    up = scheduler_config(FeatureGates.accelerator_defaults(), {"default-scheduler"}, seed=7).options(3)
    plain = scheduler_config(FeatureGates.parse("DRADeviceTaints=false"), {"haru"}).options(1)
    assert (up.seed, up.gates.gang_scheduling, up.gates.workload_claims, up.features.ListTypeAttributes) == (
        10,
        True,
        True,
        True,
    )
    assert (plain.gates.gang_scheduling, plain.gates.workload_claims, plain.features.DeviceTaints) == (
        False,
        False,
        False,
    )
    assert up.new_share_id() != up.new_share_id()


def test_profile_object_is_shared_by_all_decisions() -> None:
    """What decisions have learnt is kept under it."""
    config = scheduler_config(FeatureGates(), {"haru"}, profile=PROFILES["HaruPacking"])
    assert config.options(1).profile is config.options(2).profile is PROFILES["HaruPacking"]
    assert scheduler_config(FeatureGates(), {"haru"}).options(1).profile is PROFILES["Default"]


def test_scheduler_profile_flag_offers_every_profile() -> None:
    for command in ("up", "scheduler"):
        for name in PROFILES:
            assert build_parser().parse_args([command, "--scheduler-profile", name]).scheduler_profile == name


def test_workload_api_off_schedules_pods_separately() -> None:
    assert not scheduler_config(FeatureGates(), {"haru"}).groups
    assert scheduler_config(FeatureGates.accelerator_defaults(), {"haru"}).groups
