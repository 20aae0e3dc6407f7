"""A certificate and an authority of one name, as operators make them for their webhooks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from haru.apiserver.auth import certificates


def namesakes(issuer: str = "authority", host: str = "") -> tuple[certificates.Pair, certificates.Pair]:
    """An authority, and a certificate of the same name without key identifiers, for a host or the loopback.

    The `authority` has issued it, or the `certificate` has signed itself.
    """
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hooks")])
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("authority", "certificate")}
    names = x509.SubjectAlternativeName([x509.DNSName(host) if host else x509.IPAddress(ip_address("127.0.0.1"))])

    def pair(name: str, signer: str, extension: x509.ExtensionType) -> certificates.Pair:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder(subject, subject, keys[name].public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(extension, critical=False)
            .sign(keys[signer], hashes.SHA256())
        )
        key = keys[name].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return certificates.Pair(made.public_bytes(Encoding.PEM), key)

    authority = pair("authority", "authority", x509.BasicConstraints(ca=True, path_length=None))
    return authority, pair("certificate", issuer, names)
