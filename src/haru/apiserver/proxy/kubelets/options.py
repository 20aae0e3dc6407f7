"""How kubelets are reached, with the names and defaults of kube-apiserver's flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ADDRESS_TYPES = ("Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP")


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """All PEM. Without an authority the kubelets' certificates are not checked, as in 1.36."""

    certificate: bytes = b""
    key: bytes = b""
    authority: bytes = b""
    address_types: Sequence[str] = ADDRESS_TYPES
    seconds: float = 5.0
    """So long a kubelet may take to answer."""
