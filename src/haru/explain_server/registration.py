"""The APIService that leads to the server, with the certificates by which the aggregation layer knows it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import datetime

from haru.client.api import ApiClient
from haru.explain_server.discovery import API_SERVICE, GROUP, VERSION
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.secure_serving.certificates import certificates_in

MOST_CERTIFICATES = 8
"""Replicas, and processes before them, whose certificates stay in the bundle."""
_ATTEMPTS = 5
API_SERVICES: Kind = known_kind("apiregistration.k8s.io/v1", "APIService")


def api_service(namespace: str, service: str, port: int = 443, bundle: bytes = b"") -> Obj:
    """The APIService for a Service; `bundle` (PEM) are its serving certificates or their authority."""
    spec: Obj = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 1000,
        "versionPriority": 10,
        "service": {"namespace": namespace, "name": service, "port": port},
    }
    if bundle:
        spec["caBundle"] = base64.b64encode(bundle).decode()
    head = {"apiVersion": API_SERVICES.api_version, "kind": "APIService"}
    return {**head, "metadata": {"name": API_SERVICE}, "spec": spec}


def registered_bundle(before: str, own: bytes, is_valid: Callable[[bytes], bool]) -> bytes:
    """Add a certificate to a bundle (base64), and leave out what has expired; the newest come last."""
    try:
        known = certificates_in(base64.b64decode(before, validate=True))
    except (binascii.Error, ValueError):
        known = []
    [mine] = certificates_in(own)[:1]
    kept = [pem for pem in known if pem != mine and is_valid(pem)]
    return b"\n".join([*kept[-(MOST_CERTIFICATES - 1) :], mine]) + b"\n"


async def register(client: ApiClient, namespace: str, service: str, port: int, own: bytes, now: datetime) -> None:
    """Have the APIService lead to the Service and know the certificate. Raises StatusError and OSError."""
    for attempt in range(_ATTEMPTS):
        try:
            live = await client.get(API_SERVICES, API_SERVICE)
        except StatusError as error:
            if error.code != 404:
                raise
            live = None
        spec = (live or {}).get("spec") or {}
        bundle = registered_bundle(str(spec.get("caBundle") or ""), own, lambda pem: _is_valid(pem, now))
        wanted = api_service(namespace, service, port, bundle)
        if live is not None and {**wanted["spec"], **spec} == {**spec, **wanted["spec"]}:
            return
        try:
            if live is None:
                await client.create(API_SERVICES, wanted)
            else:
                body = {"metadata": {"resourceVersion": live["metadata"]["resourceVersion"]}, "spec": wanted["spec"]}
                await client.patch(API_SERVICES, API_SERVICE, body)
        except StatusError as error:
            if error.code != 409 or attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def _is_valid(pem: bytes, now: datetime) -> bool:
    from cryptography import x509

    try:
        return now < x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except ValueError:
        return False
