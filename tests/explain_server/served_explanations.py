"""An explain server over real sockets before a cluster in the process, as the aggregation layer asks it."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from fake_api import FakeApi

from haru.apiserver.auth import Pair, client_pair, new_authority
from haru.explain_server import (
    explanation_path,
)
from waiting import until

Obj = dict[str, Any]
NOW = datetime.now(UTC)
FRONT, OTHER = new_authority(NOW, "front-proxy"), new_authority(NOW, "other")
PATH = explanation_path("default", "pods", "waits")


class ReviewingApi(FakeApi):
    """A cluster whose reviews go by `allowed`: user, namespace and resource."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: set[tuple[str, str, str]] = set()
        self.reviews: list[Obj] = []

    async def _answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, Obj]:
        if path.endswith("/tokenreviews"):
            name = json.loads(body)["spec"]["token"]
            return 201, {"status": {"authenticated": name == "prometheus", "user": {"username": name}}}
        if not path.endswith("/subjectaccessreviews"):
            return await super()._answer(method, path, query, body)
        spec = json.loads(body)["spec"]
        if (about := spec.get("nonResourceAttributes")) is not None:
            what = (spec["user"], about["verb"], about["path"])
            return 201, {"status": {"allowed": what == ("prometheus", "get", "/metrics")}}
        self.reviews.append(spec)
        about = spec["resourceAttributes"]
        what = (spec["user"], about.get("namespace", ""), about["resource"])
        verb = "list" if about["resource"].endswith("explanations") and "name" not in about else "get"
        return 201, {"status": {"allowed": what in self.allowed and about["verb"] == verb}}


@dataclass
class Served:
    api: ReviewingApi
    url: str
    directory: Path

    async def get(
        self,
        path: str = PATH,
        user: str = "jane",
        pair: Pair | None = None,
        method: str = "GET",
        token: str = "",
        accept: str = "*/*",
    ) -> tuple[int, str, dict[str, str]]:
        """Ask as the aggregation layer does, or with another certificate."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        shown = client_pair(FRONT, "proxy", (), NOW) if pair is None else pair
        if shown.certificate:
            file = self.directory / "client.pem"
            file.write_bytes(shown.certificate + b"\n" + shown.key)
            context.load_cert_chain(file)
        headers = {"Accept": accept}
        headers |= {"X-Remote-User": user, "X-Remote-Group": "devs"} if user else {}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        connector = aiohttp.TCPConnector(ssl=context)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, f"{self.url}{path}", headers=headers) as found,
        ):
            return found.status, await found.text(), {k.lower(): v for k, v in found.headers.items()}


async def until_told(served: Served, path: str, right: tuple[str, str, str]) -> str:
    """The answer for who has a right, once the cache has what was written."""
    served.api.allowed.add(right)
    told: list[str] = []

    async def is_told() -> bool:
        status, body, _ = await served.get(path, user=right[0])
        told.append(body)
        return status == 200

    await until(is_told)
    return told[-1]
