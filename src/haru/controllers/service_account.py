"""serviceaccount-controller: every active namespace has the service account `default`.

Source: Kubernetes `serviceaccount-controller`.
"""

from __future__ import annotations

from typing import ClassVar

from haru.controllers.base import Context, Controller
from haru.controllers.objects import NAMESPACES, SERVICE_ACCOUNTS
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, is_being_deleted, name_of, namespace_of

_DEFAULT = "default"


class ServiceAccountController(Controller):
    """Creates the default service accounts."""

    name: ClassVar[str] = "serviceaccount-controller"
    needs: ClassVar[tuple[Kind, ...]] = (SERVICE_ACCOUNTS, NAMESPACES)
    workers: ClassVar[int] = 2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.namespaces = self.informer(NAMESPACES)
        self.accounts = self.informer(SERVICE_ACCOUNTS)
        self.namespaces.add_handler(self._changed, lambda _, new: self._changed(new))
        self.accounts.add_handler(on_delete=self._account_deleted)

    def _changed(self, namespace: Obj) -> None:
        if not is_being_deleted(namespace):
            self.queue.add(name_of(namespace))

    def _account_deleted(self, account: Obj) -> None:
        if name_of(account) == _DEFAULT:
            self.queue.add(namespace_of(account))

    async def sync(self, key: str) -> float | None:
        """Create the account of one namespace if it is missing."""
        namespace = self.namespaces.get(key)
        if namespace is None or is_being_deleted(namespace) or self.accounts.get(_DEFAULT, key) is not None:
            return None
        kind = SERVICE_ACCOUNTS
        body: Obj = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": _DEFAULT, "namespace": key},
        }
        try:
            await self.create(self.accounts, body)
        except StatusError as error:
            # Somebody else made it, or the namespace began to go meanwhile.
            if error.reason != "AlreadyExists" and error.code not in (403, 404):
                raise
        return None
