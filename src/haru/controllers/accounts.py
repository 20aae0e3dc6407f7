"""Each controller acts under a ServiceAccount of its own in kube-system, as kube-controller-manager lets it.

What a controller reads comes from informers that all share, under the manager's identity; what it writes, it writes
under its own, with the rights of its role `system:controller:NAME` (`haru:NAME` for those that 1.36 does not have).
Source: kube-controller-manager `--use-service-account-credentials`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from haru.client.api import ApiClient
from haru.clock import utc_now
from haru.controllers.objects import SERVICE_ACCOUNTS
from haru.kube.errors import StatusError
from haru.kube.names import parse_time

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
    "serviceaccount-controller": "service-account-controller",
}
_SECONDS = 3600
_EARLY = timedelta(seconds=_SECONDS // 5)


def account_of(controller: str) -> str:
    """The name of a controller's ServiceAccount."""
    return _OLDER.get(controller, controller)


def user_of(controller: str) -> str:
    """The user that a controller is by its token."""
    return f"system:serviceaccount:{NAMESPACE}:{account_of(controller)}"


def account_clients(client: ApiClient) -> Callable[[str], ApiClient]:
    """From a controller's name to its own client; `client` must be allowed to create accounts and their tokens."""
    return lambda controller: client.with_token(AccountToken(client, account_of(controller)))


class AccountToken:
    """The token of a ServiceAccount, asked for anew well before it expires; the account is made if it is missing."""

    def __init__(self, client: ApiClient, account: str, now: Callable[[], datetime] = utc_now) -> None:
        self._client = client
        self._account = account
        self._now = now
        self._token = ""
        self._expires: datetime | None = None
        self._lock = asyncio.Lock()

    async def value(self) -> str:
        """The token to send now."""
        async with self._lock:
            if not self._token or self._expires is None or self._now() >= self._expires - _EARLY:
                await self._ask()
            return self._token

    def refused(self) -> bool:
        """Ask for another one."""
        again, self._token = bool(self._token), ""
        return again

    async def _ask(self) -> None:
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _SECONDS},
        }
        for attempt in (0, 1):
            try:
                answer = await self._client.create_subresource(
                    SERVICE_ACCOUNTS, self._account, "token", request, NAMESPACE
                )
            except StatusError as error:
                if error.code != 404 or attempt:
                    raise
                await self._create()
            else:
                self._token = answer["status"]["token"]
                self._expires = parse_time(answer["status"]["expirationTimestamp"])
                return

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
