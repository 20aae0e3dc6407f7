"""certificatesigningrequest-signing-controller: signs approved requests for Kubernetes' own signers.

It runs where somebody says which authority signs. A request that its signer does not accept fails for good.
Source: Kubernetes 1.36, pkg/controller/certificates/signer, as behaviour.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, ClassVar

from haru.controllers.base import Context
from haru.controllers.certificate_authority import OPTION, ClusterSigning
from haru.controllers.signing_request_controller import SigningRequestController
from haru.kube.meta import Obj
from haru.kube.signing_requests import SIGNERS, answers, is_approved, refusal

if TYPE_CHECKING:
    from cryptography import x509


class SigningRequestSignerController(SigningRequestController):
    """Signs CertificateSigningRequests."""

    name: ClassVar[str] = "certificatesigningrequest-signing-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._signing: ClusterSigning = context.options[OPTION]

    @classmethod
    def enabled(cls, context: Context) -> bool:
        """Only where the authority is known."""
        return context.options.get(OPTION) is not None and super().enabled(context)

    def waits(self, request: Obj) -> bool:
        """Whether a request is for this controller, approved, and not answered yet."""
        if (request.get("spec") or {}).get("signerName") not in SIGNERS:
            return False
        signed = (request.get("status") or {}).get("certificate")
        return not signed and is_approved(request) and "Failed" not in answers(request)

    async def answer(self, request: Obj, asked: x509.CertificateSigningRequest) -> float | None:
        """Sign a request, or say why it is not signed."""
        spec, status = request["spec"], request.get("status") or {}
        usages = spec.get("usages") or ()
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
