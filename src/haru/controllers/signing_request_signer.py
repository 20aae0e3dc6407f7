"""certificatesigningrequest-signing-controller: signs approved requests for Kubernetes' own signers.

It runs where somebody says which authority signs. A request that its signer does not accept fails for good.
Source: Kubernetes 1.36, pkg/controller/certificates/signer, as behaviour.
"""

from __future__ import annotations

import base64
from typing import ClassVar

from haru.controllers.base import Context, Controller, log
from haru.controllers.certificate_authority import OPTION, ClusterSigning
from haru.controllers.signing_request_cleaner import SIGNING_REQUESTS
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.signing_requests import SIGNERS, answers, decoded, is_approved, refusal


class SigningRequestSignerController(Controller):
    """Signs CertificateSigningRequests."""

    name: ClassVar[str] = "certificatesigningrequest-signing-controller"
    needs: ClassVar[tuple[Kind, ...]] = (SIGNING_REQUESTS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._signing: ClusterSigning = context.options[OPTION]
        self.requests = self.informer(SIGNING_REQUESTS)
        self.requests.add_handler(self._changed, lambda _, new: self._changed(new))

    @classmethod
    def enabled(cls, context: Context) -> bool:
        """Only where the authority is known."""
        return context.options.get(OPTION) is not None and super().enabled(context)

    def _changed(self, request: Obj) -> None:
        if _waits(request):
            self.enqueue(request)

    async def sync(self, key: str) -> float | None:
        """Sign one request, or say why it is not signed."""
        request = self.requests.get(key)
        if request is None or not _waits(request):
            return None
        spec, status = request["spec"], request.get("status") or {}
        try:
            asked, usages = decoded(request), spec.get("usages") or ()
        except ValueError as error:
            log.warning("%s: %s: %s", self.name, key, error)
            return None
        if why := refusal(asked, usages, spec["signerName"]):
            failed = {
                "type": "Failed",
                "status": "True",
                "reason": "SignerValidationFailure",
                "message": why,
                "lastUpdateTime": self.timestamp(),
            }
            new = {**status, "conditions": [*status["conditions"], failed]}
        else:
            lifetime = self._signing.lifetime(spec.get("expirationSeconds"))
            certificate = self._signing.authority().sign(asked, usages, lifetime, self.now())
            new = {**status, "certificate": base64.b64encode(certificate).decode()}
        await self.update_status(self.requests, request, new)
        return None


def _waits(request: Obj) -> bool:
    """Whether a request is for this controller, approved, and not answered yet."""
    if (request.get("spec") or {}).get("signerName") not in SIGNERS:
        return False
    signed = (request.get("status") or {}).get("certificate")
    return not signed and is_approved(request) and "Failed" not in answers(request)
