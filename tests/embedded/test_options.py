from __future__ import annotations

from pathlib import Path

import pytest

from haru.api.connection import find_kubeconfig
from haru.embedded.data_directory import default_data_dir
from haru.embedded.options import (
    OptionError,
    ProfileCount,
    UpOptions,
    UsageOptions,
    parse_listen,
    parse_profiles,
    parse_runtime_config,
    read_config,
)
from haru.errors import ClusterError
from haru.kube.yaml import load


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dgx-h100:2", [("dgx-h100", 2)]),
        ("dgx-h100", [("dgx-h100", 1)]),
        ("a:1, b:2 ,a:3", [("a", 4), ("b", 2)]),
        ("lab/box.yaml:3", [("lab/box.yaml", 3)]),
        ("cpu:0", [("cpu", 0)]),
    ],
)
def test_profiles_flag_is_parsed(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_profiles(text) == tuple(ProfileCount(*e) for e in expected)


@pytest.mark.parametrize("text", ["", ":3", "dgx-h100:x", "dgx-h100:-1", ","])
def test_invalid_profiles_flag_names_the_value(text: str) -> None:
    with pytest.raises(OptionError, match="--profile: Invalid value"):
        parse_profiles(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:6443", ("::1", 6443)), ("localhost:1", ("localhost", 1))],
)
def test_listen_flag_is_parsed(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["6443", "127.0.0.1:", "127.0.0.1:70000", "host.example:1", "127.0.0.1:x"])
def test_invalid_listen_flag_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="--listen: Invalid value"):
        parse_listen(text)


def test_runtime_config_flag_is_parsed() -> None:
    text = "api/all=true,resource.k8s.io/v1beta1=false,api/beta"
    assert parse_runtime_config(text) == {"api/all": True, "resource.k8s.io/v1beta1": False, "api/beta": True}
    with pytest.raises(OptionError, match="maybe"):
        parse_runtime_config("api/all=maybe")


def test_default_data_dir_is_below_xdg_state_home() -> None:
    assert default_data_dir({"XDG_STATE_HOME": "/s"}) == Path("/s/haru/default")
    assert default_data_dir({"HOME": "/h"}) == Path("/h/.local/state/haru/default")


@pytest.fixture
def unknown_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container under a user that its /etc/passwd does not have, without HOME."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)


@pytest.mark.usefixtures("unknown_user")
def test_user_without_home_has_no_data_directory_and_no_cluster() -> None:
    with pytest.raises(OptionError, match="set HOME or XDG_STATE_HOME"):
        default_data_dir({})
    with pytest.raises(ClusterError, match="no cluster found"):
        find_kubeconfig(None)


CONFIG = {
    "apiVersion": "haru.dev/v1alpha1",
    "kind": "UpConfiguration",
    "profiles": ["dgx-h100:2", {"name": "cpu", "count": 3}, {"name": "t4"}],
    "listen": "127.0.0.1:0",
    "dataDir": "/tmp/x",
    "featureGates": {"GangScheduling": True},
    "runtimeConfig": {"resource.k8s.io/v1beta1": True},
    "staleGangAfter": "10m",
    "staleGangPolicy": "Evict",
    "schedulerProfile": "HaruPacking",
}


def test_configuration_file_sets_options(tmp_path: Path) -> None:
    file = tmp_path / "up.yaml"
    file.write_text("x")
    options = read_config(file, lambda text: CONFIG)
    assert [(p.profile, p.count) for p in options.profiles] == [("dgx-h100", 2), ("cpu", 3), ("t4", 1)]
    assert (options.listen, options.state.data_dir) == (("127.0.0.1", 0), Path("/tmp/x"))
    assert options.feature_gates == "GangScheduling=true"
    assert (options.controllers.stale_gang_after, options.controllers.stale_gang_policy) == ("10m", "Evict")
    assert options.scheduler.profile == "HaruPacking"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Cluster"}, "kind: Invalid value"),
        ({"processes": "two"}, 'processes: Invalid value: "two": must be auto, one or split'),
        ({"profile": []}, "profile: Invalid value: .*unknown field; known are profiles"),
        ({"profiles": "dgx-h100:2"}, "profiles: Invalid value"),
        ({"profiles": [{"name": "x", "count": -1}]}, r"profiles\[0\].count: Invalid value: -1"),
        ({"profiles": [{"name": "x", "cnt": 1}]}, r"profiles\[0\].cnt: unknown field"),
        ({"listen": "nowhere"}, "listen: Invalid value"),
        ({"featureGates": {"A": "yes"}}, "featureGates.A: Invalid value"),
        ({"schedulerProfile": "Packing"}, 'schedulerProfile: Invalid value: "Packing": there are Default, HaruPacking'),
        ({"staleGangAfter": 10}, "staleGangAfter: Invalid value: 10: must be a duration, for example 10m"),
    ],
)
def test_invalid_configuration_field_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    file = tmp_path / "up.yaml"
    file.write_text("x")
    with pytest.raises(OptionError, match=message):
        read_config(file, lambda text: {**CONFIG, **change})


def test_missing_configuration_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"absent\.yaml: No such file"):
        read_config(tmp_path / "absent.yaml", lambda text: {})


def test_usage_metrics_address_must_be_loopback(tmp_path: Path) -> None:
    file = tmp_path / "up.yaml"
    head = "apiVersion: haru.dev/v1alpha1\nkind: UpConfiguration\n"
    file.write_text(head + "usageHistory: false\nusageMetrics: localhost:9095\n")
    options = read_config(file, load)
    assert options.usage == UsageOptions(False, ("localhost", 9095))
    assert UpOptions().usage == UsageOptions(True, None)
    file.write_text(head + "usageMetrics: 0.0.0.0:9095\n")
    with pytest.raises(OptionError, match=r"usageMetrics: Invalid value: .*loopback only; take 127\.0\.0\.1:9095"):
        read_config(file, load)
