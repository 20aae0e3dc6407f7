"""Prepare the claims of pods on simulated nodes, as a kubelet does before a pod's containers start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from haru.client.api import ApiClient
from haru.client.informer import Informer
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, namespace_of, uid_of
from haru.kube.pod_claims import NotPrepared, check_claim, pod_claims
from haru.simulated_nodes.claims import PreparedClaims, preparation_problem
from haru.simulated_nodes.nodes import SimulatedNode

CLAIMS: Final = known_kind("resource.k8s.io/v1", "ResourceClaim")


class ClaimPreparation:
    """Prepares claims, and knows which are; `as_node(name)` reads for one node."""

    def __init__(self, client: ApiClient, as_node: Callable[[str], ApiClient]) -> None:
        self.claims = Informer(client, CLAIMS)
        self.prepared = PreparedClaims()
        self._as_node = as_node

    async def prepare(self, pod: Obj, node: SimulatedNode) -> None:
        """NodePrepareResources for all claims of the pod: first every check, then the effect. Raises NotPrepared."""
        claims = []
        for use in pod_claims(pod):
            claim = self.claims.get(use.name, namespace_of(pod))
            try:
                check_claim(pod, use, claim)
            except NotPrepared:
                # The watch may be behind the scheduler's write: the server has the last word.
                claim = await self._read(use.name, namespace_of(pod), node)
                check_claim(pod, use, claim)
            if claim is not None:
                claims.append(claim)
        if ((pod.get("status") or {}).get("phase") or "Pending") == "Pending":
            for claim in claims:
                problem = preparation_problem(claim, node.failing_devices)
                if problem and not self.prepared.is_prepared(node.name, claim):
                    raise NotPrepared(problem)
        for claim in claims:
            self.prepared.prepare(node.name, claim, uid_of(pod))

    async def _read(self, name: str, namespace: str, node: SimulatedNode) -> Obj | None:
        try:
            return await self._as_node(node.name).get(CLAIMS, name, namespace)
        except StatusError as error:
            if error.code == 404:
                return None
            raise
