"""serviceaccount-token-controller: fills Secrets that are to hold a token of a ServiceAccount, which does not expire.

Such a Secret has the type `kubernetes.io/service-account-token` and names its account in an annotation. It gets the
token, which is good while the Secret holds it, the authority and its namespace, and goes with the account. The
controller runs where somebody says how tokens are signed.
Source: Kubernetes `serviceaccount-token-controller`, and the claims of its tokens.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable
from typing import ClassVar

from haru.controllers.base import Context, Controller
from haru.controllers.objects import SERVICE_ACCOUNTS
from haru.controllers.root_ca import OPTION as AUTHORITY
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj, annotations_of, is_being_deleted, name_of, namespace_of, uid_of

OPTION = "secret-tokens"
"""The context's option with what makes a token of claims."""
SECRETS = known_kind("v1", "Secret")
_TYPE = "kubernetes.io/service-account-token"
_NAME = "kubernetes.io/service-account.name"
_UID = "kubernetes.io/service-account.uid"
_ISSUER = "kubernetes/serviceaccount"


class ServiceAccountTokenController(Controller):
    """Fills Secrets with tokens; keys are `namespace/name` of Secrets."""

    name: ClassVar[str] = "serviceaccount-token-controller"
    needs: ClassVar[tuple[Kind, ...]] = (SECRETS, SERVICE_ACCOUNTS)
    has_account: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._sign: Callable[[Obj], Awaitable[str]] = context.options[OPTION]
        self._authority = _encoded(str(context.options.get(AUTHORITY) or ""))
        self.accounts = self.informer(SERVICE_ACCOUNTS)
        self.accounts.add_index("secret", _secrets_of)
        self.secrets = context.informers.get(SECRETS, field_selector=f"type={_TYPE}")
        self.secrets.add_index("account", lambda secret: [_account_key(secret)])
        self._used.append(self.secrets)
        self.accounts.add_handler(on_delete=self._account_gone)
        self.secrets.add_handler(self.enqueue, lambda _, new: self.enqueue(new), self.enqueue)

    @classmethod
    def enabled(cls, context: Context) -> bool:
        """Only where tokens can be signed."""
        return context.options.get(OPTION) is not None and super().enabled(context)

    def _account_gone(self, account: Obj) -> None:
        for secret in self.secrets.by_index("account", f"{namespace_of(account)}/{name_of(account)}"):
            self.enqueue(secret)

    async def sync(self, key: str) -> float | None:
        """Fill a Secret, remove one whose account is gone, or have no account name one that is gone."""
        namespace, _, name = key.partition("/")
        secret = self.secrets.get(name, namespace)
        if secret is None:
            for account in self.accounts.by_index("secret", key):
                left = [each for each in account["secrets"] if each.get("name") != name]
                await self.update(self.accounts, {**account, "secrets": left})
        elif not is_being_deleted(secret):
            owner = await self._account_of(secret)
            if owner is None:
                await self.delete(self.secrets, secret)
            else:
                await self._fill(secret, owner)
        return None

    async def _account_of(self, secret: Obj) -> Obj | None:
        """The account that a Secret names, if there is one."""
        name, uid = annotations_of(secret).get(_NAME, ""), annotations_of(secret).get(_UID)
        account = self.accounts.get(name, namespace_of(secret))
        if account is None or uid not in (None, "", uid_of(account)):
            account = await self.live(SERVICE_ACCOUNTS, name, namespace_of(secret)) if name else None
        return account if account is not None and uid in (None, "", uid_of(account)) else None

    async def _fill(self, secret: Obj, account: Obj) -> None:
        data = dict(secret.get("data") or {})
        if self._authority:
            data["ca.crt"] = self._authority
        data["namespace"] = data.get("namespace") or _encoded(namespace_of(secret))
        if not data.get("token"):
            data["token"] = _encoded(await self._sign(_claims(secret, account)))
        if data == secret.get("data"):
            return
        annotations = {**annotations_of(secret), _NAME: name_of(account), _UID: uid_of(account)}
        filled = {**secret, "data": data, "metadata": {**secret["metadata"], "annotations": annotations}}
        try:
            await self.update(self.secrets, filled)
        except StatusError as error:
            # Changed meanwhile, of which the watch tells, or gone.
            if error.code not in (404, 409):
                raise


def _claims(secret: Obj, account: Obj) -> Obj:
    namespace, name = namespace_of(account), name_of(account)
    return {
        "iss": _ISSUER,
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": name_of(secret),
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": uid_of(account),
        "sub": f"system:serviceaccount:{namespace}:{name}",
    }


def _account_key(secret: Obj) -> str:
    return f"{namespace_of(secret)}/{annotations_of(secret).get(_NAME, '')}"


def _secrets_of(account: Obj) -> Iterable[str]:
    return [f"{namespace_of(account)}/{each.get('name')}" for each in account.get("secrets") or ()]


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
