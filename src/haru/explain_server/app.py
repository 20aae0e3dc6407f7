"""The ASGI application: health for everybody, discovery for whom the aggregation layer names, explanations by RBAC."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import orjson

from haru.errors import InputError
from haru.explain import PendingList
from haru.explain_server.access import ExplainAccess
from haru.explain_server.answers import Answered, Answers, NotThere
from haru.explain_server.discovery import GROUP, KIND, LIST, VERSION, document
from haru.explain_server.kubectl_table import table_of, wants_table
from haru.explain_server.metrics import Metrics
from haru.explain_server.openapi import openapi_document
from haru.explain_server.questions import Question, metadata, parse_path, row_metadata
from haru.explain_server.queue import Busy
from haru.kube.errors import StatusError, no_such_path
from haru.markup import Html, page
from haru.secure_serving.authorization import Forbidden
from haru.secure_serving.component import ComponentApp, Route
from haru.secure_serving.http import (
    Answer,
    HttpError,
    Receive,
    Request,
    Send,
    cleaned,
    send_answer,
    status_answer,
    text_answer,
)
from haru.secure_serving.identity import User
from haru.secure_serving.reviews import ReviewFailed

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1


class ExplainApp:
    """Answers GET and HEAD. `user_of` says who asks; `open_routes` are answered without identity.

    `guarded` answers /metrics to users of tokens: the certificates here are of those who speak for users.
    """

    def __init__(
        self,
        answers: Answers,
        access: ExplainAccess,
        user_of: Callable[[Request], User],
        open_routes: Mapping[str, Route],
        guarded: ComponentApp,
        metrics: Metrics,
    ) -> None:
        self._answers, self._access, self._user_of, self._open = answers, access, user_of, open_routes
        self._guarded, self._metrics = guarded, metrics

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            return
        if scope["path"] == "/metrics":
            await self._guarded({**scope, "extensions": {}}, receive, send)
            return
        request, began = Request(scope, receive), time.monotonic()
        try:
            answer = await self._answer(request)
        except (StatusError, HttpError) as error:
            answer = status_answer(error)
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            answer = status_answer(StatusError(500, "InternalError", "Internal error occurred"))
        if request.path not in self._open:
            self._metrics.observe(request.path, answer.status, time.monotonic() - began)
        await send_answer(answer, send, request.method)

    async def _answer(self, request: Request) -> Answer:
        if request.method not in ("GET", "HEAD"):
            raise StatusError(405, "MethodNotAllowed", f"{request.method} is not supported: explanations are only read")
        if (route := self._open.get(request.path)) is not None:
            return route(request)
        user = self._user_of(request)
        if (found := document(request.path) or openapi_document(request.path)) is not None:
            return Answer(200, orjson.dumps(found), "application/json")
        if cleaned(request.path) != request.path:
            raise no_such_path()
        return await self._explanation(request, user)

    async def _explanation(self, request: Request, user: User) -> Answer:
        question, output = _question(request)
        command = request.param("command") or ""
        try:
            await self._access.require(user, question)
            told = await self._answers.of(user, question)
        except Forbidden as error:
            raise StatusError(403, "Forbidden", str(error), _details(question)) from None
        except NotThere:
            message = f'{question.resource} "{question.name}" not found'
            raise StatusError(404, "NotFound", message, _details(question)) from None
        except InputError as error:
            raise StatusError(400, "BadRequest", str(error), _details(question)) from None
        except Busy:
            message = "too many explanations are being asked for; try again"
            details = {**_details(question), "retryAfterSeconds": _RETRY_SECONDS}
            raise StatusError(429, "TooManyRequests", message, details) from None
        except TimeoutError:
            message = "the explanation took too long; ?remedies=false takes less time"
            raise StatusError(504, "Timeout", message, _details(question)) from None
        except (ReviewFailed, OSError) as error:
            _log.warning("%s: %s", request.path, error)
            message = "the cluster could not be asked; try again"
            details = {**_details(question), "retryAfterSeconds": _RETRY_SECONDS}
            raise StatusError(503, "ServiceUnavailable", message, details) from None
        tabular = not request.param("output") and wants_table(request.header(b"accept") or "")
        return _rendered(told, question, output, command, tabular=tabular)


def _rendered(told: Answered, question: Question, output: str, command: str, *, tabular: bool) -> Answer:
    """The answer in its form; `command` is the one that asks, where a text is to name it; a list may be `tabular`."""
    if output == "html":
        title = told.total if isinstance(told, PendingList) else f"{question.resource}/{question.name}"
        return Answer(200, page(title, Html(told.html())).encode(), "text/html; charset=utf-8")
    if output != "json":
        wide = output == "wide"
        text = told.text(wide=wide) if isinstance(told, PendingList) else str(told) if wide else told.short(command)
        return text_answer(f"{text}\n")
    head: dict[str, Any] = {"metadata": metadata(question.namespace, question.name)}
    body = {**told.as_dict(), "apiVersion": f"{GROUP}/{VERSION}"}
    if isinstance(told, PendingList):
        # As in any list each has a name, by which kubectl prints it.
        names = [row_metadata(row) for row in told.rows]
        if tabular:
            table = table_of(told, names, namespaced=question.resource == LIST)
            return Answer(200, orjson.dumps(table), "application/json")
        body["items"] = [{"metadata": each, **item} for each, item in zip(names, body["items"], strict=True)]
        if question.is_row:
            return Answer(200, orjson.dumps(_as_object(body["items"][0])), "application/json")
    return Answer(200, orjson.dumps({**head, **body}), "application/json")


def _as_object(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, **item}


def _question(request: Request) -> tuple[Question, str]:
    """The object and the form of the answer. Raises StatusError."""
    if (found := parse_path(request.path)) is None:
        raise no_such_path()
    if request.flag("watch"):
        raise StatusError(
            405, "MethodNotAllowed", "watch is not supported: explanations are made when they are asked for"
        )
    output = request.param("output") or "json"
    if output not in ("json", "text", "wide", "html"):
        supported = 'supported values: "html", "json", "text", "wide"'
        raise StatusError(400, "BadRequest", f'output: Unsupported value: "{output}": {supported}')
    remedies = not request.param("remedies") or request.flag("remedies")
    selectors = [request.param(each) or "" for each in ("labelSelector", "fieldSelector")]
    return Question(*found, remedies, *selectors), output


def _details(question: Question) -> dict[str, Any]:
    return {"name": question.name, "group": GROUP, "kind": question.resource}
