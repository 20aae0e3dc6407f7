"""Claims on a whole cluster: what drivers say of devices does not keep them from being given back."""

from __future__ import annotations

import pytest

from haru.testing import Cluster

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: card}
spec:
  devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: trainer}
spec:
  containers: [{name: main, image: busybox, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: card}]
"""


@pytest.mark.haru(profiles="dgx-h100:1")
def test_claim_with_device_status_is_deallocated_and_namespace_deleted(haru_cluster: Cluster) -> None:
    haru_cluster.apply(NAMESPACE)
    haru_cluster.apply(CLAIM, namespace="team")
    haru_cluster.wait("Pod", "trainer", namespace="team")
    claim = haru_cluster.get("ResourceClaim", "card", "team")
    assert claim is not None
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    device = {name: result[name] for name in ("driver", "pool", "device")}
    ready = {"type": "Ready", "status": "True", "reason": "Up", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    patched = {"status": {"devices": [{**device, "conditions": [ready]}]}}
    haru_cluster.patch("ResourceClaim", "card", patched, "team", subresource="status")
    haru_cluster.delete("Pod", "trainer", "team", wait=30)

    def is_free(claim: dict[str, dict[str, object]]) -> bool:
        return not claim.get("status")

    haru_cluster.wait_for("ResourceClaim", "card", is_free, "team", timeout=60, what="is deallocated")
    haru_cluster.delete("Namespace", "team", wait=30)
