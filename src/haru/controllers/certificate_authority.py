"""The cluster's certificate authority, as its signing controller uses it.

A certificate has the subject, the key and the alternative names of its request, and the usages that the object names;
of the request's other extensions it has none. Its life is counted from five minutes ago, and ends before the
authority's.
Source: Kubernetes 1.36, pkg/controller/certificates/authority and signer, as behaviour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from haru.kube.signing_requests import EXTENDED_USAGES, KEY_USAGES, alternative_names

OPTION: Final = "cluster-signing"
"""The context's option with the `ClusterSigning`."""
VALID_FOR: Final = timedelta(days=365)
_BACKDATED: Final = timedelta(minutes=5)
_SHORT: Final = timedelta(hours=8)
"""The end of a shorter life is not dated back."""
_SHORTEST: Final = timedelta(minutes=10)


class SigningError(OSError):
    """The authority cannot sign now; the text says why."""


@dataclass(frozen=True, slots=True)
class ClusterSigning:
    """The files of the authority, and for how long its certificates are valid at most."""

    certificate: Path
    key: Path
    valid_for: timedelta = VALID_FOR

    def authority(self) -> Authority:
        """The authority as its files are now. Raises SigningError."""
        try:
            certificates = x509.load_pem_x509_certificates(self.certificate.read_bytes())
            key = load_pem_private_key(self.key.read_bytes(), None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise SigningError(f"error reading the authority {self.certificate}, {self.key}: {error}") from error
        if len(certificates) != 1:
            found = len(certificates)
            raise SigningError(f"error reading CA cert file {self.certificate}: expected 1 certificate, found {found}")
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey):
            raise SigningError(f"error reading CA key file {self.key}: its kind signs no certificates")
        return Authority(certificates[0], key)

    def lifetime(self, asked: int | None) -> timedelta:
        """How long a certificate lives, whose request asks for so many seconds."""
        if asked is None:
            return self.valid_for
        return min(max(timedelta(seconds=asked), _SHORTEST), self.valid_for)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey

    def sign(
        self, request: x509.CertificateSigningRequest, usages: Collection[str], lifetime: timedelta, now: datetime
    ) -> bytes:
        """Sign a request: the certificate, PEM. Raises SigningError."""
        if not request.is_signature_valid:
            raise SigningError("unable to verify certificate request signature")
        start, end = now - _BACKDATED, now + lifetime - (_BACKDATED if lifetime >= _SHORT else timedelta())
        last = self.certificate.not_valid_after_utc
        if now >= last:
            raise SigningError(f"refusing to sign a certificate that expired in the past: NotAfter={last}")
        public: Any = request.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(self.certificate.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(min(end, last))
        )
        for extension, critical in self._extensions(request, usages):
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, self._hash()).public_bytes(Encoding.PEM)

    def _extensions(
        self, request: x509.CertificateSigningRequest, usages: Collection[str]
    ) -> Iterable[tuple[x509.ExtensionType, bool]]:
        """The extensions of a certificate, each with whether it is critical."""
        yield x509.BasicConstraints(ca=False, path_length=None), True
        of_key = {KEY_USAGES[usage] for usage in usages if usage in KEY_USAGES}
        if of_key:
            yield _key_usage(of_key), True
        extended = {EXTENDED_USAGES[usage] for usage in usages if usage in EXTENDED_USAGES}
        if extended:
            yield x509.ExtendedKeyUsage([x509.ObjectIdentifier(one) for one in sorted(extended)]), False
        try:
            own = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            yield x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), False
        except x509.ExtensionNotFound:
            pass
        names = _general_names(request)
        if names:
            yield x509.SubjectAlternativeName(names), not list(request.subject)

    def _hash(self) -> hashes.SHA256 | hashes.SHA384 | hashes.SHA512 | None:
        if isinstance(self.key, ed25519.Ed25519PrivateKey):
            return None
        size = self.key.curve.key_size if isinstance(self.key, ec.EllipticCurvePrivateKey) else 0
        return hashes.SHA512() if size > 384 else hashes.SHA384() if size > 256 else hashes.SHA256()


def _key_usage(names: set[str]) -> x509.KeyUsage:
    given = {name: name in names for name in KEY_USAGES.values()}
    if not given["key_agreement"]:
        # Without a key that agrees on others these two have no meaning.
        given |= {"encipher_only": False, "decipher_only": False}
    return x509.KeyUsage(**given)


def _general_names(request: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    found = alternative_names(request)
    return [
        *map(x509.DNSName, found["DNS"]),
        *map(x509.RFC822Name, found["Email"]),
        *map(x509.IPAddress, found["IP"]),
        *map(x509.UniformResourceIdentifier, found["URI"]),
    ]
