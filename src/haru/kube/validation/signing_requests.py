"""CertificateSigningRequests (certificates.k8s.io/v1): what may be asked for, and who may answer where.

Source: Kubernetes 1.36, pkg/apis/certificates/validation, as behaviour.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from typing import Final

from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.signing_requests import EXTENDED_USAGES, KEY_USAGES, LEGACY_UNKNOWN, parsed
from haru.kube.validation.common import items, part
from haru.kube.validation.signers import signer_name

_USAGES: Final = tuple(sorted({*KEY_USAGES, *EXTENDED_USAGES}))
_CONDITIONS, _CERTIFICATE = "status.conditions", "status.certificate"
_TRUE_ONLY: Final = ("Approved", "Denied", "Failed")
_ANSWERS: Final = ("Approved", "Denied")
_SHORTEST: Final = 600
_FORGED: Final = {
    "ECPublicKey": "x509: ECDSA verification failure",
    "Ed25519PublicKey": "x509: Ed25519 verification failure",
    "RSAPublicKey": "crypto/rsa: verification error",
}
"""What 1.36 says of a signature that is not of the request's key, by the kind of key."""
_BLOCK: Final = re.compile(rb"-----BEGIN ([^-\n]*)-----\n(.*?)-----END \1-----", re.DOTALL)


def validate_signing_request(request: Obj) -> list[FieldError]:
    """A request when it is created."""
    return [*_spec(request, None), *_status(request, None)]


def validate_signing_request_update(new: Obj, old: Obj) -> list[FieldError]:
    """Validate an update; it changes metadata alone."""
    return [*_spec(new, old), *_status(new, old)]


def validate_signing_request_status(new: Obj, old: Obj) -> list[FieldError]:
    """Validate a write to `/status`: a certificate, once; conditions, but no answer."""
    return [*_spec(new, old), *_status(new, old), *_kept_answers(new, old), *_certificate_once(new, old)]


def validate_signing_request_approval(new: Obj, old: Obj) -> list[FieldError]:
    """Validate a write to `/approval`: conditions."""
    return [*_spec(new, old), *_status(new, old), *_kept(new, old)]


def _spec(request: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec, before = part(request, "spec"), part(old, "spec") if old is not None else {}
    try:
        asked = parsed(str(spec.get("request") or ""))
        if not asked.is_signature_valid:
            raise ValueError(_FORGED.get(type(asked.public_key()).__name__, "x509: cannot verify signature"))
    except ValueError as error:
        yield invalid("spec.request", spec.get("request"), str(error))
    usages = spec.get("usages") or []
    if not usages:
        yield required("spec.usages")
    if usages != before.get("usages"):
        yield from _usages(usages)
    signer = str(spec.get("signerName") or "")
    if signer != LEGACY_UNKNOWN:
        yield from signer_name("spec.signerName", signer)
    elif before.get("signerName") != LEGACY_UNKNOWN:
        yield invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _SHORTEST:
        why = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", seconds, why)


def _usages(usages: Sequence[str]) -> Iterator[FieldError]:
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            yield not_supported(f"spec.usages[{index}]", usage, _USAGES)
    for index, usage in enumerate(usages):
        if usage in usages[:index]:
            yield duplicate(f"spec.usages[{index}]", usage)


def _status(request: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Conditions and certificate; what was stored wrong may stay so."""
    before = _types(old) if old is not None else []
    yield from _conditions(request, before)
    certificate = part(request, "status").get("certificate")
    if certificate and certificate != part(old or {}, "status").get("certificate") and (why := _damage(certificate)):
        yield invalid(_CERTIFICATE, "<certificate data>", why)


def _conditions(request: Obj, before: Sequence[str]) -> Iterator[FieldError]:
    seen: list[str] = []
    exclusive = not set(_ANSWERS) <= set(before)
    for index, condition in enumerate(items(part(request, "status"), "conditions")):
        place = f"{_CONDITIONS}[{index}]"
        type_, status = str(condition.get("type") or ""), str(condition.get("status") or "")
        if not type_ and "" not in before:
            yield required(f"{place}.type")
        allowed = ("True",) if type_ in _TRUE_ONLY else ("False", "True", "Unknown")
        if not status:
            yield required(f"{place}.status")
        elif status not in allowed:
            yield not_supported(f"{place}.status", status, allowed)
        if exclusive and type_ in _ANSWERS and set(_ANSWERS) - {type_} <= set(seen):
            yield invalid(_CONDITIONS, type_, "Approved and Denied conditions are mutually exclusive")
        if type_ in seen and len(before) == len(set(before)):
            yield duplicate(f"{place}.type", type_)
        seen.append(type_)


def _kept(new: Obj, old: Obj) -> Iterator[FieldError]:
    """No answer is taken back."""
    now, before = _types(new), _types(old)
    for type_ in _TRUE_ONLY:
        if now.count(type_) < before.count(type_):
            yield forbidden(_CONDITIONS, f'updates may not remove a condition of type "{type_}"')


def _kept_answers(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Whoever writes the status does not approve or deny."""
    yield from _kept(new, old)
    now, before = _types(new), _types(old)
    for type_ in _ANSWERS:
        if now.count(type_) > before.count(type_):
            yield forbidden(_CONDITIONS, f'updates may not add a condition of type "{type_}"')


def _certificate_once(new: Obj, old: Obj) -> Iterator[FieldError]:
    before = part(old, "status").get("certificate")
    if before and part(new, "status").get("certificate") != before:
        yield forbidden(_CERTIFICATE, "updates may not modify existing certificate content")


def _types(request: Obj) -> list[str]:
    return [str(one.get("type") or "") for one in items(part(request, "status"), "conditions")]


def _damage(certificate: str) -> str:
    """What is wrong with the certificates of a status, in base64; empty if nothing is."""
    from cryptography import x509

    try:
        pem = base64.b64decode(certificate)
    except binascii.Error as error:
        return str(error)
    blocks = _BLOCK.findall(pem)
    for kind, content in blocks:
        if kind != b"CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{kind.decode(errors="replace")}"'
        if b":" in content:
            return "no PEM block headers are permitted"
    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        return str(error) if blocks else "must contain at least one CERTIFICATE PEM block"
    return ""
