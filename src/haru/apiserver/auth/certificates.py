"""A certificate authority for one cluster, its server and client certificates, keys, and the kubeconfig that uses them.

Keys are on the curve P-256: quick to make (a few milliseconds, where RSA takes a second) and accepted by every client.
`cryptography` is imported when it is needed.
"""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

EXTENSION = "haru.dev"
VALID_FOR = timedelta(days=365)
AUTHORITY_VALID_FOR = timedelta(days=3650)
_BACKDATED = timedelta(minutes=5)
"""Clocks of clients may be a little behind."""
SERVICE_ADDRESS = "10.96.0.1"
"""Cluster IP of the Service `kubernetes`, by which pods reach the server."""
SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
SERVER_NAMES = ("localhost", *SERVICE_NAMES)
SERVER_ADDRESSES = ("127.0.0.1", "::1", SERVICE_ADDRESS)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


def new_key() -> bytes:
    """A private key on P-256, PEM (PKCS 8)."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return _key_pem(ec.generate_private_key(ec.SECP256R1()))


def _key_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


Extensions = list[tuple[Any, bool]]
"""Extensions of a certificate, each with whether it is critical."""


def new_authority(now: datetime, name: str = "haru") -> Pair:
    """A self-signed authority."""
    from cryptography import x509

    constraints = x509.BasicConstraints(ca=True, path_length=0)
    return _signed(_subject(name), now, AUTHORITY_VALID_FOR, None, [(constraints, True)])


def server_pair(authority: Pair, hosts: Sequence[str], now: datetime) -> Pair:
    """A server certificate for the loopback, the cluster's own names and `hosts` (names or addresses)."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    names: list[Any] = []
    for host in dict.fromkeys((*SERVER_NAMES, *SERVER_ADDRESSES, *hosts)):
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            if host:
                names.append(x509.DNSName(host))
            continue
        if not address.is_unspecified:
            names.append(x509.IPAddress(address))
    extensions: Extensions = [
        (x509.SubjectAlternativeName(names), False),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
    ]
    return _signed(_subject("kube-apiserver"), now, VALID_FOR, authority, extensions)


def client_pair(authority: Pair, user: str, groups: Sequence[str], now: datetime) -> Pair:
    """A client certificate: the user as common name, its groups as organizations."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    extensions: Extensions = [(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)]
    return _signed(_subject(user, groups), now, VALID_FOR, authority, extensions)


def _signed(subject: Any, now: datetime, valid_for: timedelta, authority: Pair | None, extensions: Extensions) -> Pair:
    """A certificate with a fresh key, signed by the authority or, without one, by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

    key = ec.generate_private_key(ec.SECP256R1())
    issuer, signer = subject, key
    if authority is not None:
        issuer = x509.load_pem_x509_certificate(authority.certificate).subject
        loaded = load_pem_private_key(authority.key, None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + valid_for)
        .add_extension(_usage(signs=authority is None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    certificate = builder.sign(signer, hashes.SHA256())
    return Pair(certificate.public_bytes(Encoding.PEM), _key_pem(key))


def _subject(common_name: str, organizations: Sequence[str] = ()) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def kubeconfig(
    server: str, authority_pem: bytes, token: str, *, namespace: str = "", data_dir: Path | None = None
) -> str:
    """A kubeconfig for one cluster and one user with a token; an extension says where `haru up` keeps its data."""
    context = ["    cluster: haru", "    user: haru"]
    if namespace:
        context.append(f"    namespace: {namespace}")
    extensions = ["    extensions:", f"    - name: {EXTENSION}", "      extension:"]
    extensions = [] if data_dir is None else [*extensions, f"        dataDir: {json.dumps(str(data_dir))}"]
    lines = [
        "apiVersion: v1",
        "kind: Config",
        "clusters:",
        "- name: haru",
        "  cluster:",
        f"    server: {server}",
        f"    certificate-authority-data: {base64.b64encode(authority_pem).decode()}",
        *extensions,
        "contexts:",
        "- name: haru",
        "  context:",
        *context,
        "current-context: haru",
        "users:",
        "- name: haru",
        "  user:",
        f"    token: {token}",
    ]
    return "\n".join(lines) + "\n"
