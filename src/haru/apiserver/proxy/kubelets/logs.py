"""A pod's log, from the kubelet of its node to the client, piece by piece."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import quote, urlencode

import aiohttp

from haru.apiserver.proxy.kubelets.client import Endpoint, Kubelets
from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, bad_request_error

OPTIONS = ("follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream")
_ERROR_BYTES = 2048


async def log_of(call: Call, kubelets: Kubelets, endpoint: Endpoint, container: str) -> aiohttp.ClientResponse:
    """The kubelet's answer for the log of a container of the call's pod. Raises StatusError."""
    request = call.request
    given = [(name, request.param(name)) for name in OPTIONS if request.param(name)]
    path = "/".join(quote(part, safe="") for part in (call.namespace, call.name, container))
    target = f"/containerLogs/{path}" + (f"?{urlencode(given)}" if given else "")
    endpoint = replace(endpoint, is_verified=not request.flag("insecureSkipTLSVerifyBackend"))
    answer: aiohttp.ClientResponse | None = None
    try:
        async with asyncio.timeout(kubelets.seconds):
            sent = await kubelets.request(endpoint, "GET", target)
            answer = sent
            said = b"" if sent.status == 200 else await sent.content.read(_ERROR_BYTES)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        if answer is not None:
            answer.close()
        why = str(error) or f"no answer within {kubelets.seconds:g} s"
        raise StatusError(500, "InternalError", f'Get "https://{endpoint.netloc}{target}": {why}') from error
    assert answer is not None
    if answer.status != 200:
        answer.close()
        raise _refused(call, answer.status, said.decode("utf-8", "replace").strip())
    return answer


def _refused(call: Call, status: int, text: str) -> StatusError:
    """A kubelet's error as the API tells it."""
    if status == 400:
        return bad_request_error(text)
    if status == 500:
        return StatusError(500, "InternalError", f"Internal error occurred: {text}")
    reasons = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 422: "Invalid", 503: "ServiceUnavailable"}
    details = {"name": call.name, "kind": "pods", "causes": [{"reason": "UnexpectedServerResponse", "message": text}]}
    return StatusError(status, reasons.get(status, "InternalError"), f"{text} (get pods {call.name})", details)
