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
class ServerConfig:
    """The settings of one API server.

    `runtime_config` switches API versions as kube-apiserver's `--runtime-config` does: keys are `group/version`,
    `api/all`, `api/beta`, `api/alpha`. `tokens` are static bearer tokens. `service_account_key_pem` is a private
    key (RSA or EC): it signs ServiceAccount tokens and, its public half, checks them; `account_tokens` says the rest.
    """

    store: Store
    gates: FeatureGates = field(default_factory=FeatureGates)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    tokens: Mapping[str, UserInfo] = field(default_factory=dict)
    client_ca_pem: bytes | None = None
    service_account_key_pem: bytes = b""
    advertise_address: str = "127.0.0.1:6443"
    clock: Callable[[], datetime] = utc_now
    max_reads_in_flight: int = 400
    max_writes_in_flight: int = 200
    sealing: Sealing | None = None
    """Encryption at rest, as the store has it; None: there is none."""
    encryption_file: Path | None = None
    """The configuration of `sealing`, if it is to be taken over whenever it changes."""
    audit: AuditOptions | None = None
    """The audit log; None: there is none."""
    admission: AdmissionOptions = field(default_factory=AdmissionOptions)
    """What admission plugins are told."""
    account_tokens: TokenOptions = field(default_factory=TokenOptions)
    """ServiceAccount tokens: issuers, audiences, lives, and a signer outside."""
    peers: PeerOptions | None = None
    """What the server is to its peers; None: it does not tell of itself, nor look for others."""
    front_proxy: FrontProxyOptions | None = None
    """Who may speak for users in headers; None: nobody."""
    aggregation: AggregationOptions | None = None
    """What the server is to extension API servers; None: they are shown and told nothing."""
    kubelets: KubeletOptions | None = None
    """How kubelets of real nodes are reached; None: all nodes are simulated."""
