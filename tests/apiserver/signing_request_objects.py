"""Certificate signing requests for tests."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

Obj = dict[str, Any]
REQUEST = (
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlHTE1EOENBUUF3RERFS01BZ0dBMVVFQXd3QllUQXFNQVVHQXl0"
    "bGNBTWhBSEoyaUNlR3B3RjgybGhvVUFyagpHZVgxaGQ1WURqTFRmTUhIM0JkN2FKeW1vQUF3QlFZREsyVndBMEVBSkhmS1RHVVk1"
    "YlZVdEVTMzJvc3p5L0dHCnE0aGJ1UWM3bUhvdGhBRERWVThZbkI5azhrM255ZkRvWWJIMTNYbVRvUGZqWkthbkh0NW55SVhlSUd6"
    "aUJRPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg=="
)
"""A request of the subject `CN=a`, as `spec.request` has it."""


def encoded_request(
    common_name: str,
    groups: Sequence[str] = (),
    *,
    dns: Sequence[str] = (),
    addresses: Sequence[str] = (),
    email: Sequence[str] = (),
    key: ec.EllipticCurvePrivateKey | None = None,
) -> str:
    """A request with a key of its own, as `spec.request` has it."""
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    names: list[x509.GeneralName] = [
        *map(x509.DNSName, dns),
        *(x509.IPAddress(ipaddress.ip_address(one)) for one in addresses),
        *map(x509.RFC822Name, email),
    ]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(made.public_bytes(Encoding.PEM)).decode()
