"""Each controller acts under a ServiceAccount of its own in kube-system, as kube-controller-manager lets it.

What a controller reads comes from informers that all share, under the manager's identity; what it writes, it writes
under its own, with the rights of its role `system:controller:NAME` (`haru:NAME` for those that 1.36 does not have).
Source: kube-controller-manager `--use-service-account-credentials`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from haru.client.api import ApiClient
from haru.client.credentials import ExpiringToken
from haru.clock import utc_now
from haru.controllers.objects import SERVICE_ACCOUNTS
from haru.kube.errors import StatusError
from haru.kube.meta import Obj

NAMESPACE = "kube-system"
# Names that 1.36 gave the accounts before the controllers had theirs.
_OLDER: Mapping[str, str] = {
    "certificatesigningrequest-approving-controller": "certificate-controller",
    "certificatesigningrequest-cleaner-controller": "certificate-controller",
    "certificatesigningrequest-signing-controller": "certificate-controller",
    "daemonset-controller": "daemon-set-controller",
    "endpoints-controller": "endpoint-controller",
    "endpointslice-mirroring-controller": "endpointslicemirroring-controller",
    "garbage-collector-controller": "generic-garbage-collector",
    "horizontal-pod-autoscaler-controller": "horizontal-pod-autoscaler",
    "node-lifecycle-controller": "node-controller",
    "persistentvolume-binder-controller": "persistent-volume-binder",
    "persistentvolume-protection-controller": "pv-protection-controller",
    "persistentvolumeclaim-protection-controller": "pvc-protection-controller",
    "pod-garbage-collector-controller": "pod-garbage-collector",
    "replicationcontroller-controller": "replication-controller",
    "resourceclaim-controller": "resource-claim-controller",
    "root-ca-certificate-publisher-controller": "root-ca-cert-publisher",
    "service-cidr-controller": "service-cidrs-controller",
    "serviceaccount-controller": "service-account-controller",
    "taint-eviction-controller": "node-controller",
}
_SECONDS = 3600


def account_of(controller: str) -> str:
    """The name of a controller's ServiceAccount."""
    return _OLDER.get(controller, controller)


def user_of(controller: str) -> str:
    """The user that a controller is by its token."""
    return f"system:serviceaccount:{NAMESPACE}:{account_of(controller)}"


def account_clients(client: ApiClient) -> Callable[[str], ApiClient]:
    """From a controller's name to its own client; `client` must be allowed to create accounts and their tokens."""
    return lambda controller: client.with_token(AccountToken(client, account_of(controller)))


class AccountToken(ExpiringToken):
    """The token of a ServiceAccount; the account is made if it is missing."""

    early = timedelta(seconds=_SECONDS // 5)

    def __init__(self, client: ApiClient, account: str, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(now)
        self._client, self._account = client, account

    async def ask(self) -> tuple[str, str]:
        """Ask the server for one. Raises StatusError."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _SECONDS},
        }
        try:
            answer = await self._request(request)
        except StatusError as error:
            if error.code != 404:
                raise
            await self._create()
            answer = await self._request(request)
        return answer["status"]["token"], answer["status"]["expirationTimestamp"]

    async def _request(self, request: Obj) -> Obj:
        return await self._client.create_subresource(SERVICE_ACCOUNTS, self._account, "token", request, NAMESPACE)

    async def _create(self) -> None:
        account = {
            "apiVersion": SERVICE_ACCOUNTS.api_version,
            "kind": SERVICE_ACCOUNTS.kind,
            "metadata": {"name": self._account, "namespace": NAMESPACE},
        }
        try:
            await self._client.create(SERVICE_ACCOUNTS, account)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
