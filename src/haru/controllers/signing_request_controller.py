"""What the controllers that answer CertificateSigningRequests share: which requests they look at, and reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from haru.controllers.base import Context, Controller, log
from haru.controllers.signing_request_cleaner import SIGNING_REQUESTS
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.signing_requests import decoded

if TYPE_CHECKING:
    from cryptography import x509


class SigningRequestController(Controller):
    """Answers CertificateSigningRequests that wait for it."""

    needs: ClassVar[tuple[Kind, ...]] = (SIGNING_REQUESTS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.requests = self.informer(SIGNING_REQUESTS)
        self.requests.add_handler(self._changed, lambda _, new: self._changed(new))

    def waits(self, request: Obj) -> bool:
        """Whether a request is for this controller and not answered yet."""
        raise NotImplementedError

    async def answer(self, request: Obj, asked: x509.CertificateSigningRequest) -> float | None:
        """Answer a request; says after how many seconds to look again, if it is to."""
        raise NotImplementedError

    def _changed(self, request: Obj) -> None:
        if self.waits(request):
            self.enqueue(request)

    async def sync(self, key: str) -> float | None:
        """Answer one request; what cannot be read gets no answer."""
        request = self.requests.get(key)
        if request is None or not self.waits(request):
            return None
        try:
            asked = decoded(request)
        except ValueError as error:
            log.warning("%s: %s: %s", self.name, key, error)
            return None
        return await self.answer(request, asked)
