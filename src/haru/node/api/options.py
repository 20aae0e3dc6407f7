"""What the kubelet API is told, with the names and defaults of KubeletConfiguration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Mode = Literal["Webhook", "AlwaysAllow"]


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
    client_ca_file: Path | None = None
    anonymous: bool = False
    webhook_authentication: bool = True
    authentication_cache_seconds: float = 120.0
    audiences: Sequence[str] = ()
    mode: Mode = "Webhook"
    authorized_seconds: float = 300.0
    unauthorized_seconds: float = 30.0
    debugging_handlers: bool = True
    system_logs: bool = True
    flags_handler: bool = True
    require_create_for_streams: bool = False
    """Not of 1.36: ways into containers need `create` of nodes/proxy, by WebSocket too."""
    node_logs: Path = Path("/var/log")
    most_streams: int = 512
