"""Define the settings of one API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from haru.apiserver.admission_options import AdmissionOptions
from haru.apiserver.auth.token_options import TokenOptions
from haru.apiserver.auth.user import UserInfo as UserInfo
from haru.clock import utc_now
from haru.kube.gates import FeatureGates
from haru.storage import Sealing, Store

if TYPE_CHECKING:
    from haru.apiserver.aggregation.options import AggregationOptions
    from haru.apiserver.audit_options import AuditOptions
    from haru.apiserver.peers.options import FrontProxyOptions, PeerOptions
    from haru.apiserver.proxy.kubelets.options import KubeletOptions


@dataclass(frozen=True, slots=True)
class AuthenticationOptions:
    """How the server finds the user of a request.

    `service_account_key_pem` is a private key (RSA or EC) that signs ServiceAccount tokens; its public half verifies
    them. `account_tokens` says the rest about these tokens.
    """

    tokens: Mapping[str, UserInfo] = field(default_factory=dict)
    """Static bearer tokens."""
    client_ca_pem: bytes | None = None
    front_proxy: FrontProxyOptions | None = None
    """The front proxies that may name users in headers; None: there is none."""
    service_account_key_pem: bytes = b""
    account_tokens: TokenOptions = field(default_factory=TokenOptions)
    """Issuers, audiences and lifetimes of ServiceAccount tokens, and an external signer."""


@dataclass(frozen=True, slots=True)
class FlowControl:
    """How many requests the server handles at once."""

    max_reads_in_flight: int = 400
    max_writes_in_flight: int = 200


@dataclass(frozen=True, slots=True)
class EncryptionOptions:
    """Encryption at rest."""

    sealing: Sealing | None = None
    """As the store has it; None: nothing is encrypted."""
    reloaded_file: Path | None = None
    """The configuration to load again whenever it changes; None: it is read once."""

    @property
    def reports_health(self) -> bool:
        """Whether `/readyz` and `/healthz` have a check of the KMS plugins."""
        return self.sealing is not None and (bool(self.sealing.outside) or self.reloaded_file is not None)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The settings of one API server.

    `runtime_config` switches API versions as kube-apiserver's `--runtime-config` does: keys are `group/version`,
    `api/all`, `api/beta`, `api/alpha`.
    """

    store: Store
    gates: FeatureGates = field(default_factory=FeatureGates)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    advertise_address: str = "127.0.0.1:6443"
    clock: Callable[[], datetime] = utc_now
    flow_control: FlowControl = field(default_factory=FlowControl)
    encryption: EncryptionOptions = field(default_factory=EncryptionOptions)
    audit: AuditOptions | None = None
    """The audit log; None: there is none."""
    has_controllers: bool = True
    """Whether controllers run with the server. Otherwise they may run elsewhere: then one holds their Lease."""
    admission: AdmissionOptions = field(default_factory=AdmissionOptions)
    """The configuration of admission plugins."""
    peers: PeerOptions | None = None
    """How the server finds its peers and is found; None: it does neither."""
    aggregation: AggregationOptions | None = None
    """How the server reaches extension API servers; None: without a client certificate."""
    kubelets: KubeletOptions | None = None
    """How the server reaches the kubelets of real nodes; None: all nodes are simulated."""
