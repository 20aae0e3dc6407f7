"""certificatesigningrequest-approving-controller: approves the client certificates that kubelets ask for.

Who asks needs the right to create `certificatesigningrequests/nodeclient`, or `selfnodeclient` for its own certificate.
Source: Kubernetes 1.36, pkg/controller/certificates/approver, as behaviour.
"""

from __future__ import annotations

from typing import ClassVar, Final

from haru.controllers.base import Context, Controller, log
from haru.controllers.signing_request_cleaner import SIGNING_REQUESTS
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.signing_requests import KUBELET_CLIENT, answers, common_name, decoded, is_kubelet_client

ACCESS_REVIEWS = known_kind("authorization.k8s.io/v1", "SubjectAccessReview")
_SELF: Final = ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.")
_NODE: Final = ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.")
_SOONEST, _LATEST = 0.2, 1000.0


class SigningRequestApproverController(Controller):
    """Approves CertificateSigningRequests of kubelets."""

    name: ClassVar[str] = "certificatesigningrequest-approving-controller"
    needs: ClassVar[tuple[Kind, ...]] = (SIGNING_REQUESTS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.requests = self.informer(SIGNING_REQUESTS)
        self.requests.add_handler(self._changed, lambda _, new: self._changed(new))

    def _changed(self, request: Obj) -> None:
        if _waits(request):
            self.enqueue(request)

    async def sync(self, key: str) -> float | None:
        """Approve one request if it is a kubelet's and allowed; else look again when it is twice as old."""
        request = self.requests.get(key)
        if request is None or not _waits(request):
            return None
        spec = request["spec"]
        try:
            asked = decoded(request)
        except ValueError as error:
            log.warning("%s: %s: %s", self.name, key, error)
            return None
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


def _waits(request: Obj) -> bool:
    """Whether nobody has answered a request for a kubelet's client certificate."""
    if (request.get("spec") or {}).get("signerName") != KUBELET_CLIENT:
        return False
    return not (request.get("status") or {}).get("certificate") and answers(request).isdisjoint({"Approved", "Denied"})
