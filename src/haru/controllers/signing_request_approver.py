"""certificatesigningrequest-approving-controller: approves the client certificates that kubelets ask for.

Who asks needs the right to create `certificatesigningrequests/nodeclient`, or `selfnodeclient` for its own certificate.
Source: Kubernetes 1.36, pkg/controller/certificates/approver, as behaviour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from haru.controllers.signing_request_cleaner import SIGNING_REQUESTS
from haru.controllers.signing_request_controller import SigningRequestController
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.signing_requests import KUBELET_CLIENT, answers, common_name, is_kubelet_client

if TYPE_CHECKING:
    from cryptography import x509

ACCESS_REVIEWS = known_kind("authorization.k8s.io/v1", "SubjectAccessReview")
_SELF: Final = ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.")
_NODE: Final = ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.")
_SOONEST, _LATEST = 0.2, 1000.0


class SigningRequestApproverController(SigningRequestController):
    """Approves CertificateSigningRequests of kubelets."""

    name: ClassVar[str] = "certificatesigningrequest-approving-controller"

    def waits(self, request: Obj) -> bool:
        """Whether nobody has answered a request for a kubelet's client certificate."""
        if (request.get("spec") or {}).get("signerName") != KUBELET_CLIENT:
            return False
        signed = (request.get("status") or {}).get("certificate")
        return not signed and answers(request).isdisjoint({"Approved", "Denied"})

    async def answer(self, request: Obj, asked: x509.CertificateSigningRequest) -> float | None:
        """Approve a request if it is a kubelet's and allowed; else look again when it is twice as old."""
        spec = request["spec"]
        if not is_kubelet_client(asked, spec.get("usages") or ()):
            return None
        of_itself = spec.get("username") == common_name(asked)
        for subresource, message in (_SELF, _NODE) if of_itself else (_NODE,):
            if await self._allowed(request, subresource):
                await self._approve(request, message)
                return None
        age = (self.now() - parse_time(request["metadata"]["creationTimestamp"])).total_seconds()
        return min(max(age, _SOONEST), _LATEST)

    async def _allowed(self, request: Obj, subresource: str) -> bool:
        spec = request["spec"]
        attributes = {
            "group": SIGNING_REQUESTS.group,
            "resource": SIGNING_REQUESTS.plural,
            "subresource": subresource,
            "version": "*",
            "verb": "create",
        }
        user = {
            "user": spec.get("username"),
            **{name: spec[name] for name in ("uid", "groups", "extra") if name in spec},
        }
        review = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "spec": {**user, "resourceAttributes": attributes},
        }
        answer = await self.client.create(ACCESS_REVIEWS, review)
        return bool((answer.get("status") or {}).get("allowed"))

    async def _approve(self, request: Obj, message: str) -> None:
        approved = {"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message}
        status = request.get("status") or {}
        conditions = [*(status.get("conditions") or ()), approved]
        await self.update(self.requests, {**request, "status": {**status, "conditions": conditions}}, "approval")
