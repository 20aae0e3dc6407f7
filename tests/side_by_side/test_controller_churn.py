"""The churn for real controllers: what is counted in their logs, and that its objects are valid."""

from __future__ import annotations

from pathlib import Path

from controller_churn import messages, population

LOG = """\
I1124 15:02:10.468024   12976 endpointslice_controller.go:358] "Error syncing" key="churn-5/svc"
E1124 15:02:10.468024   12976 daemon_controller.go:422] "Unhandled" err="churn-3/ds failed: read version: 5656"
E1124 15:02:11.468024   12976 daemon_controller.go:422] "Unhandled" err="churn-41/ds failed: read version: 5670"
F1124 15:02:12.468024   12977 replica_set.go:9] "Unhandled" err="churn-4/d-7f9c4d5b6c failed"
not a line of klog
"""


def test_errors_of_a_log_are_counted_without_names_and_numbers(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    assert messages(tmp_path / "log") == {
        'daemon_controller.go "Unhandled" err="NAMESPACE/ds failed: read version: N"': 2,
        'replica_set.go "Unhandled" err="NAMESPACE/d-X failed"': 1,
    }


def test_each_namespace_of_the_churn_holds_an_object_of_each_kind() -> None:
    kinds = [manifest["kind"] for manifest in population(0)]
    assert len(kinds) == 14
    assert {"Deployment", "HorizontalPodAutoscaler", "PersistentVolumeClaim", "ResourceClaimTemplate"} < set(kinds)
