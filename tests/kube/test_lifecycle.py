from __future__ import annotations

import pytest

from haru.apiserver.config import ServerConfig
from haru.apiserver.registry import Served
from haru.apiserver.server import ApiServer
from haru.kube.gates import FeatureGates
from haru.kube.kinds import all_kinds
from haru.kube.lifecycle import is_in
from haru.storage import SqliteStore

GATES = "AllAlpha=true,AllBeta=true"


def served(minor: int, **runtime_config: bool) -> set[str]:
    config = {name.replace("_", "/"): on for name, on in runtime_config.items()}
    return {str(kind) for kind in Served(FeatureGates.parse(GATES, minor), config).kinds}


def test_version_1_35_serves_exactly_what_existed_then() -> None:
    missing = served(36, api_all=True) - served(35, api_all=True)
    assert missing == {
        "admissionregistration.k8s.io/v1 MutatingAdmissionPolicy",
        "admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding",
        "resource.k8s.io/v1alpha3 ResourcePoolStatusRequest",
        "resource.k8s.io/v1beta2 DeviceTaintRule",
        "scheduling.k8s.io/v1alpha2 PodGroup",
        "scheduling.k8s.io/v1alpha2 Workload",
    }
    assert not served(35, api_all=True) - served(36, api_all=True)
    assert served(36, api_all=True) == {str(kind) for kind in all_kinds()}


def test_group_version_without_resources_is_not_served() -> None:
    older = Served(FeatureGates.parse(GATES, 35), {"api/all": True})
    newer = Served(FeatureGates.parse(GATES, 36), {"api/all": True})
    assert set(newer.group_versions) - set(older.group_versions) == {("scheduling.k8s.io", "v1alpha2")}
    assert ("scheduling.k8s.io", "v1alpha1") not in newer.group_versions


@pytest.mark.parametrize("minor", [35, 36])
def test_stable_kinds_are_served_in_every_version(minor: int) -> None:
    stable = [kind for kind in all_kinds() if kind.version in ("v1", "v2") and "Mutating" not in kind.kind]
    assert stable and all(is_in(kind, minor) for kind in stable)


@pytest.mark.parametrize("minor", [35, 36])
async def test_server_of_each_version_starts_with_its_defaults(minor: int) -> None:
    store = SqliteStore(":memory:")
    await store.start()
    server = ApiServer(ServerConfig(store, FeatureGates(minor=minor)))
    try:
        await server.start()
        served = server.objects.served
        assert (served.find("admissionregistration.k8s.io", "mutatingadmissionpolicies") is None) is (minor == 35)
        assert served.find("scheduling.k8s.io", "podgroups") is None and served.find("", "pods") is not None
    finally:
        await server.stop()
        await store.stop()
