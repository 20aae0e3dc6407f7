"""Options of the kubelet API, with the names and defaults of KubeletConfiguration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Mode = Literal["Webhook", "AlwaysAllow"]


@dataclass(frozen=True, slots=True)
class AuthenticationOptions:
    """Who may call."""

    client_ca_file: Path | None = None
    anonymous: bool = False
    webhook: bool = True
    cache_seconds: float = 120.0
    audiences: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AuthorizationOptions:
    """What a caller may do, and how long the API server's answer is kept."""

    mode: Mode = "Webhook"
    allowed_seconds: float = 300.0
    denied_seconds: float = 30.0
    require_create_for_streams: bool = False
    """Not of 1.36: ways into containers need `create` of nodes/proxy, by WebSocket too."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The kubelet API of one node. Durations are seconds."""

    address: str = "0.0.0.0"
    port: int = 10250
    healthz_address: str = "127.0.0.1"
    healthz_port: int = 10248
    """-1: none; 0: any that is free."""
    cert_file: Path | None = None
    key_file: Path | None = None
    """Without both a certificate is made in `cert_dir`."""
    cert_dir: Path | None = None
    certificate_check_seconds: float = 10.0
    """Between two looks whether a file of a certificate changed."""
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)
    debugging_handlers: bool = True
    system_logs: bool = True
    flags_handler: bool = True
    node_logs: Path = Path("/var/log")
    most_streams: int = 512
