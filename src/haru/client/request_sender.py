"""Requests of a client on their way: authorized, bounded in time, sent again where that is safe.

An answer 429 or 503 that carries `Retry-After` was not acted upon, and a read that failed on its way may be sent again.
Source: retries as client-go does them.
"""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final, Self

import orjson

from haru.client.credentials import CredentialError, TokenSource, bearer
from haru.client.impersonation import Impersonation
from haru.client.transforms import SharedObjects, without_managed_fields
from haru.client.transport import HeaderValue, Request, RequestHead, Response, Transport, failure, retry_after
from haru.kube.meta import Obj

TIMEOUT_SECONDS: Final = 30.0
_ATTEMPTS: Final = 6
_MAX_RETRY_AFTER_SECONDS: Final = 10.0


class RequestSender:
    """Sends requests to one API server as one user."""

    shared: SharedObjects | None = None
    """What there is in common with others in this process who have the objects that come back as well."""

    def __init__(
        self,
        transport: Transport,
        token: TokenSource | None,
        user_agent: str,
        timeout: float,
        rng: random.Random,
        sleep: Callable[[float], Any],
        *,
        shared: SharedObjects | None,
        impersonated: Impersonation | None,
    ) -> None:
        self._transport = transport
        self._token = token
        self._timeout = timeout
        self._attempts = _ATTEMPTS
        self._rng = rng
        self._sleep = sleep
        self.shared = shared
        self._shape = ""
        self._is_lean = False
        self._identity = impersonated.headers() if impersonated is not None else {}
        self._heads: dict[tuple[str, str, bool, str], RequestHead] = {}
        self.user_agent = user_agent

    async def close(self) -> None:
        """Give back connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def metadata_only(self) -> Self:
        """A view of this client that is answered with metadata alone (PartialObjectMetadata), whatever it asks for."""
        view = copy.copy(self)
        view._shape = ";as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
        return view

    def without_managed_fields(self) -> Self:
        """A view of this client for one who drops managed fields: objects that are answered may lack them."""
        view = copy.copy(self)
        view._is_lean = True
        return view

    def with_token(self, token: TokenSource) -> Self:
        """A view of this client as another user, over the same connections."""
        view = copy.copy(self)
        view._token = token
        if self._identity:
            view._identity, view._heads = {}, {}
        return view

    def hasty(self, timeout: float) -> Self:
        """A view of this client that waits for an answer for so many seconds and sends no request again."""
        view = copy.copy(self)
        view._timeout, view._attempts = timeout, 1
        return view

    async def raw(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Any request: status, headers (names in lower case), body. An error status is not raised."""
        merged = {**self._headers("application/json"), **(headers or {})}
        response = await self._send(Request(method, path, query, merged, body), timeout or self._timeout)
        return response.status, response.headers, response.body

    async def stream_raw(self, path: str, query: Sequence[tuple[str, str]] = ()) -> AsyncGenerator[bytes, None]:
        """The chunks of a long answer (a pod's log, followed)."""
        request = Request("GET", path, query, self._headers("*/*"))
        request, number = await self._authorized(request)
        async with self._transport.stream(request, self._timeout) as stream:
            if stream.status >= 300:
                self._refused(stream.status, number)
                raise failure(Response(stream.status, stream.headers, await stream.read()), request)
            async for chunk in stream.chunks:
                yield chunk

    def _headers(self, accept: str) -> dict[str, HeaderValue]:
        return {"accept": accept, "user-agent": self.user_agent, **self._identity}

    def _head(self, of_list: bool, content_type: str) -> RequestHead:
        """The headers of a request for objects, which are the same for all of a sort."""
        sort = self._shape, self.user_agent, of_list, content_type
        known = self._heads.get(sort)
        if known is None:
            headers = self._headers(self._accept(of_list))
            if content_type:
                headers["content-type"] = content_type
            known = self._heads[sort] = RequestHead(headers)
        return known

    def _accept(self, of_list: bool = False) -> str:
        """What to ask for; unlike `get` and watches, lists of metadata have a name of their own."""
        return "application/json" + self._shape.format("List" if of_list else "")

    async def _authorized(self, request: Request) -> tuple[Request, int]:
        """The request with a token, and the number of this token."""
        if self._token is None:
            return request, 0
        token, number = await self._token.value(), self._token.number
        if not token:
            return request, number
        if isinstance(request.headers, RequestHead):
            request.headers = request.headers.authorized(token)
        else:
            request.headers = {**request.headers, "authorization": bearer(token)}
        return request, number

    def _refused(self, status: int, number: int) -> bool:
        """After a 401 for the token of this number: whether another one may be had."""
        return status == 401 and self._token is not None and self._token.refused(number)

    async def _json(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        body: Any = None,
        content_type: str = "application/json",
        of_list: bool = False,
        shared: bool | None = None,
    ) -> Obj:
        data = orjson.dumps(body) if body is not None else b""
        headers = self._head(of_list, content_type if body is not None else "")
        shared = (self.shared is not None and not of_list) if shared is None else shared
        request = Request(method, path, query, headers, data, shared, encoded_here=True)
        response = await self._send(request, self._timeout)
        if response.obj is not None:
            return response.obj
        if response.status >= 300:
            raise failure(response, request)
        answer = without_managed_fields(response.body) if self._is_lean else response.body
        decoded = orjson.loads(answer) if answer else {}
        if not isinstance(decoded, dict):
            raise failure(response, request)
        return decoded

    async def _send(self, request: Request, timeout: float) -> Response:
        for attempt in range(1, self._attempts + 1):
            try:
                request, number = await self._authorized(request)
                response = await self._transport.send(request, timeout)
            except TimeoutError:
                raise TimeoutError(f"{request.method} {request.path}: no answer within {timeout:g} s") from None
            except CredentialError:
                raise
            except OSError:
                if request.method != "GET" or attempt >= min(3, self._attempts):
                    raise
                delay = 0.1 * 2**attempt
            else:
                if attempt == 1 and self._refused(response.status, number) and attempt < self._attempts:
                    continue
                pause = retry_after(request, response)
                if pause is None or attempt == self._attempts:
                    return response
                delay = min(pause, _MAX_RETRY_AFTER_SECONDS)
            await self._sleep(delay * (1 + 0.2 * self._rng.random()))
        raise AssertionError("unreachable")
