"""Hold the server context and the components that the handlers of requests use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from haru.apiserver.admission.pod_security_state import PodSecurityState
from haru.apiserver.auth.static_tokens import StaticTokens
from haru.apiserver.auth.tokens.issuer import AccountTokens
from haru.apiserver.config import ServerConfig
from haru.apiserver.context import Obj as Obj
from haru.apiserver.context import ServerContext

if TYPE_CHECKING:
    from haru.apiserver.admission.quota_index import LimitsOfNamespaces
    from haru.apiserver.auth.authorization import Authorizer
    from haru.apiserver.proxy.kubelets.client import Kubelets

EnsureObject = Callable[["Core", Obj], Awaitable[bool]]
"""Creates an object in the server's own name, with admission; False: the object exists."""


class Core(ServerContext):
    """Add tokens, authorizer, quota index, PodSecurity and kubelet client to the server context.

    `ApiServer` creates the components; a component gets the `ServerContext`, never another component's module.
    """

    def __init__(self, config: ServerConfig, ensure_object: EnsureObject) -> None:
        super().__init__(config)
        self.tokens = StaticTokens(config.tokens)
        self.account_tokens = AccountTokens(self)
        self.authorizer: Authorizer | None = None
        """None before the server has started."""
        self.limits: LimitsOfNamespaces | None = None
        """The quotas and limit ranges; None before the server has started."""
        self.pod_security = PodSecurityState(config.admission, config.gates.minor)
        self.kubelets: Kubelets | None = None
        """The client of the kubelets of real nodes; None: all nodes are simulated."""
        self._ensure_object = ensure_object

    async def ensure_object(self, obj: Obj) -> bool:
        """Create an object in the server's own name unless it exists; False if it exists."""
        return await self._ensure_object(self, obj)
