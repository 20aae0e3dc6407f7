"""What `haru install` finds out before it writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haru.client.server_version import ServerVersion
from haru.install.checks import check_leader, check_served, check_version, left_over

NOW = datetime(2026, 5, 1, tzinfo=UTC)
CLAIMS = [("resource.k8s.io", "v1beta1", "resourceclaims")]


@pytest.mark.parametrize(
    ("minor", "expected"),
    [
        (31, "error: Kubernetes 1.31 is older than 1.32: upgrade the cluster"),
        (32, "ok: Kubernetes 1.32"),
        (36, "ok: Kubernetes 1.36"),
        (99, "warning: Kubernetes 1.99 is newer than 1.37, the newest that Haru knows"),
        (0, "warning: the server does not tell its version"),
    ],
)
def test_version_is_checked(minor: int, expected: str) -> None:
    assert [str(finding) for finding in check_version(ServerVersion.of(minor, ()))] == [expected]


def test_kinds_that_are_not_served_are_named_with_what_is_lost() -> None:
    found = [str(finding) for finding in check_served(ServerVersion.of(32, CLAIMS))]
    assert found[0] == "ok: ResourceClaim is served as resource.k8s.io/v1beta1"
    lost = "warning: PodGroup is not served: no gangs by PodGroups of scheduling.k8s.io; "
    assert found[1] == f"{lost}they come with 1.36"
    found = [str(finding) for finding in check_served(ServerVersion.of(36, CLAIMS))]
    assert found[1] == f"{lost}turn on scheduling.k8s.io with --runtime-config"


def lease(age: float) -> dict[str, Any]:
    renewed = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"spec": {"holderIdentity": "node-1_x", "renewTime": renewed, "leaseDurationSeconds": 15}}


@pytest.mark.parametrize(
    ("mode", "age", "part"),
    [
        ("default-scheduler", 3, "node-1_x leads as kube-scheduler: Haru waits until it is stopped"),
        ("second-scheduler", 3, "devices may be allocated twice"),
        ("default-scheduler", 60, ""),
    ],
)
def test_leading_kube_scheduler_is_warned_of(mode: str, age: float, part: str) -> None:
    found = [finding.text for finding in check_leader(mode, lease(age), NOW)]
    assert len(found) == bool(part)
    assert all(part in text for text in found)
    assert list(check_leader(mode, None, NOW)) == []


def test_objects_of_another_mode_are_left_over() -> None:
    def obj(name: str) -> dict[str, Any]:
        return {"kind": "Role", "metadata": {"name": name}}

    assert left_over([obj("a"), obj("b")], [obj("b"), obj("c")]) == [obj("a")]
