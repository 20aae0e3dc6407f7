"""What a CertificateSigningRequest may ask for, and who may answer where."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from signing_request_objects import REQUEST, encoded_request

from haru.kube.signing_requests import LEGACY_UNKNOWN, SIGNERS, parsed, refusal, with_condition_times, with_kept_answers
from haru.kube.validation.signing_requests import (
    validate_signing_request,
    validate_signing_request_approval,
    validate_signing_request_status,
)

Obj = dict[str, Any]
CLIENT, KUBELET, SERVING, _ = SIGNERS
NODE, NODES = "system:node:n1", ("system:nodes",)
NOT_LEGACY = "the legacy signerName is not allowed via this API version"
NO_CERTIFICATE = (
    'status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block'
)
OF_CLIENT = ("digital signature", "key encipherment", "client auth")
OF_SERVER = ("digital signature", "server auth")


def request(*conditions: str, certificate: str = "", **spec: Any) -> Obj:
    given = {"request": REQUEST, "signerName": "example.com/a", "usages": ["client auth"], **spec}
    listed = [{"type": type_, "status": "True", "reason": "r"} for type_ in conditions]
    return {"spec": given, "status": {"conditions": listed, **({"certificate": certificate} if certificate else {})}}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, []),
        ({"request": "eA=="}, ['spec.request: Invalid value: "eA==": PEM block type must be CERTIFICATE REQUEST']),
        ({"usages": []}, ["spec.usages: Required value"]),
        ({"usages": ["client auth", "client auth"]}, ['spec.usages[1]: Duplicate value: "client auth"']),
        (
            {"signerName": LEGACY_UNKNOWN},
            [f'spec.signerName: Invalid value: "{LEGACY_UNKNOWN}": {NOT_LEGACY}'],
        ),
        (
            {"expirationSeconds": 599},
            [
                "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds "
                "(10 minutes)"
            ],
        ),
        ({"expirationSeconds": 600}, []),
    ],
)
def test_new_request_is_judged(spec: Obj, found: list[str]) -> None:
    assert [str(error) for error in validate_signing_request(request(**spec))] == found


@pytest.mark.parametrize(("signer", "label"), [("a.B.C/x", "B"), ("a.b/x..y", "")])
def test_first_wrong_label_of_a_signer_is_named(signer: str, label: str) -> None:
    (error,) = validate_signing_request(request(signerName=signer))
    assert error.detail.startswith(f'validating label "{label}": a lowercase RFC 1123 ')


def test_unknown_usage_and_damaged_request_are_refused() -> None:
    (error,) = validate_signing_request(request(usages=["client auth", "fun"]))
    assert str(error).startswith('spec.usages[1]: Unsupported value: "fun": supported values: "any", "cert sign"')
    der = bytearray(pem_body(REQUEST))
    der[-1] ^= 1  # in the signature
    text = base64.b64encode(der).decode()
    forged = f"-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n"
    (error,) = validate_signing_request(request(request=base64.b64encode(forged.encode()).decode()))
    assert (error.field, error.detail) == ("spec.request", "x509: Ed25519 verification failure")


def pem_body(encoded: str) -> bytes:
    """The DER in a PEM block in base64."""
    return base64.b64decode("".join(base64.b64decode(encoded).decode().splitlines()[1:-1]))


@pytest.mark.parametrize(
    ("new", "old", "found"),
    [
        (
            request("Approved"),
            request(),
            ['status.conditions: Forbidden: updates may not add a condition of type "Approved"'],
        ),
        (
            request(),
            request("Denied"),
            ['status.conditions: Forbidden: updates may not remove a condition of type "Denied"'],
        ),
        (request("Approved", "Failed"), request("Approved"), []),
        (
            request("Approved", certificate="eA=="),
            request("Approved"),
            [NO_CERTIFICATE],
        ),
        (
            request("Approved", certificate="eA=="),
            request("Approved", certificate="eQ=="),
            [
                NO_CERTIFICATE,
                "status.certificate: Forbidden: updates may not modify existing certificate content",
            ],
        ),
    ],
)
def test_status_takes_a_certificate_once_and_no_answer(new: Obj, old: Obj, found: list[str]) -> None:
    assert [str(error) for error in validate_signing_request_status(new, old)] == found


@pytest.mark.parametrize(
    ("new", "old", "found"),
    [
        (request("Approved"), request(), []),
        (
            request("Approved", "Denied"),
            request("Approved"),
            ['status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive'],
        ),
        (
            request(),
            request("Approved"),
            ['status.conditions: Forbidden: updates may not remove a condition of type "Approved"'],
        ),
        (request("Approved", "Approved"), request(), ['status.conditions[1].type: Duplicate value: "Approved"']),
        (request("Approved", "Denied"), request("Approved", "Denied"), []),
    ],
)
def test_approval_takes_one_answer_and_keeps_it(new: Obj, old: Obj, found: list[str]) -> None:
    assert [str(error) for error in validate_signing_request_approval(new, old)] == found


def test_answer_has_to_be_true() -> None:
    new = request("Approved", "Mine")
    new["status"]["conditions"][0]["status"] = "False"
    del new["status"]["conditions"][1]["status"]
    assert [str(error) for error in validate_signing_request_approval(new, request())] == [
        'status.conditions[0].status: Unsupported value: "False": supported values: "True"',
        "status.conditions[1].status: Required value",
    ]


def test_conditions_get_times_and_answers_stay_as_they_were_given() -> None:
    old = with_condition_times(request("Approved"), request(), "2026-01-01T00:00:00Z")
    new = request("Approved", "Failed")
    new["status"]["conditions"][0]["reason"] = "forged"
    kept = with_condition_times(with_kept_answers(new, old), old, "2026-01-02T00:00:00Z")
    approved, failed = kept["status"]["conditions"]
    assert approved == old["status"]["conditions"][0]
    assert (failed["lastUpdateTime"], failed["lastTransitionTime"]) == ("2026-01-02T00:00:00Z",) * 2


@pytest.mark.parametrize(
    ("signer", "name", "groups", "names", "usages", "why"),
    [
        (CLIENT, "jane", ("devs",), {}, ("client auth",), ""),
        (CLIENT, "jane", (), {}, ("client auth", "server auth"), "invalid usage for client certificate: server auth"),
        (CLIENT, "jane", (), {}, ("digital signature",), "missing required usage for client certificate: client auth"),
        (KUBELET, NODE, NODES, {}, OF_CLIENT, ""),
        (KUBELET, NODE, NODES, {}, ("digital signature", "client auth"), ""),
        (KUBELET, "jane", NODES, {}, OF_CLIENT, "subject common name does not begin with system:node:"),
        (KUBELET, NODE, ("a", *NODES), {}, OF_CLIENT, "subject organization is not system:nodes"),
        (KUBELET, NODE, NODES, {"dns": ["n1"]}, OF_CLIENT, "DNS subjectAltNames are not allowed"),
        (KUBELET, NODE, NODES, {"addresses": ["10.0.0.1"]}, OF_CLIENT, "IP subjectAltNames are not allowed"),
        (
            KUBELET,
            NODE,
            NODES,
            {},
            ("client auth",),
            "usages did not match [client auth digital signature key encipherment]",
        ),
        (SERVING, NODE, NODES, {"dns": ["n1"], "addresses": ["10.0.0.1"]}, OF_SERVER, ""),
        (SERVING, NODE, NODES, {}, OF_SERVER, "DNS or IP subjectAltName is required"),
        (
            SERVING,
            NODE,
            NODES,
            {"dns": ["n1"], "email": ["a@example.com"]},
            OF_SERVER,
            "Email subjectAltNames are not allowed",
        ),
        (LEGACY_UNKNOWN, "anybody", (), {"dns": ["n1"]}, ("server auth", "client auth"), ""),
    ],
)
def test_signers_refuse_what_is_not_for_them(
    signer: str, name: str, groups: tuple[str, ...], names: Obj, usages: tuple[str, ...], why: str
) -> None:
    assert refusal(parsed(encoded_request(name, groups, **names)), usages, signer) == why
