"""What a mutating admission policy of typical size costs a request at the server.

    python -m benchmarks.mutating_policy [--document docs/performance-api.md]

Pods are created on servers in this process, without HTTP: one has no policies, each of the others has one. They take
turns in rounds of a few requests, and a fixed piece of work takes its turn, too: what counts is the processor time of
the thread that serves, each round against its own round without policies, in the quarter of the rounds in which all
requests together went fastest. Bar: 200 µs.

The garbage collector runs at the end of each round, within its time: left alone it runs where most is alive at once,
and so nearly always in a policy, which would pay for what all the other requests have left.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
from collections.abc import Iterator
from operator import sub, truediv
from pathlib import Path
from statistics import median, quantiles
from time import thread_time
from typing import Any

from benchmarks.api_speed import POD, PODS, Figure, table
from benchmarks.calibrate import work
from benchmarks.results import CALIBRATION_SECONDS
from benchmarks.tables import write_section
from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore

Obj = dict[str, Any]

BAR = 200
"""Microseconds a request."""
ROUNDS, WARM_UP, BATCH = 80, 4, 15
"""Rounds, rounds before them, and requests of each server in one round."""
QUIETEST = 4
"""Of the rounds one in so many counts."""
PARTS = 50
"""Which part of the fixed piece of work is done in a round."""
GROUP = "/apis/admissionregistration.k8s.io/v1"
_TOKEN = "benchmark"
TYPICAL = 'Object{metadata: Object.metadata{labels: {"team": variables.team}}, spec: Object.spec{hostname: "h"}}'
APPLY = """Object{
  metadata: Object.metadata{
    labels: {"cost-center": variables.team, "scheduled-by": "haru"},
    annotations: {"example.com/changed-by": request.userInfo.username}
  },
  spec: Object.spec{
    terminationGracePeriodSeconds: 10,
    containers: object.spec.containers.map(c, Object.spec.containers{
      name: c.name, env: [Object.spec.containers.env{name: "TEAM", value: variables.team}]
    })
  }
}"""
PATCH = """[
  JSONPatch{op: "add", path: "/spec/tolerations/-", value: Object.spec.tolerations{key: "gpu", operator: "Exists"}},
  JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/team"), value: variables.team}
]"""


def _policy(condition: str, mutation: Obj) -> Obj:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "wanted", "expression": condition}],
        "variables": [{"name": "team", "expression": "string(object.metadata.?labels.?team.orValue('none'))"}],
        "reinvocationPolicy": "Never",
        "mutations": [mutation],
    }


_TYPICAL = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": TYPICAL}}
_APPLY = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": APPLY}}
_PATCH = {"patchType": "JSONPatch", "jsonPatch": {"expression": PATCH}}
_WANTED = "object.spec.schedulerName == 'nobody'"
POLICIES: dict[str, Obj] = {
    "whose condition does not hold": _policy("object.spec.schedulerName == 'else'", _APPLY),
    "of typical size (a condition, a variable, a label, a field)": _policy(_WANTED, _TYPICAL),
    "that changes every container, labels and annotations": _policy(_WANTED, _APPLY),
    "that is a JSON patch of two operations": _policy(_WANTED, _PATCH),
}


class Server:
    """An API server with one policy, or none, and its administrator."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._made = 0
        self.used: list[float] = []
        """Seconds of processor time a request, by rounds."""

    async def start(self) -> None:
        """With its policy and the binding."""
        self._store = store = SqliteStore(":memory:")
        await store.start()
        self._app = ApiServer(
            ServerConfig(
                store,
                authentication=AuthenticationOptions(tokens={_TOKEN: UserInfo("admin", ("system:masters",), "1")}),
            )
        )
        await self._app.start()
        if self.name:
            named = {"metadata": {"name": "benchmark"}}
            await self._post(f"{GROUP}/mutatingadmissionpolicies", {**named, "spec": POLICIES[self.name]})
            await self._post(f"{GROUP}/mutatingadmissionpolicybindings", {**named, "spec": {"policyName": "benchmark"}})

    async def stop(self) -> None:
        """With its store."""
        await self._app.stop()
        await self._store.stop()

    async def _post(self, path: str, body: Obj) -> None:
        await self._send(path, json.dumps(body).encode())

    async def _send(self, path: str, body: bytes) -> None:
        status = 0

        async def receive() -> Obj:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        headers = [
            (b"authorization", f"Bearer {_TOKEN}".encode()),
            (b"content-type", b"application/json"),
            (b"user-agent", b"haru-benchmark"),
        ]
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
        await self._app(scope, receive, send)
        if status != 201:
            raise RuntimeError(f"POST {path} was answered with {status}")

    async def round(self) -> None:
        """Some pods."""
        bodies = [POD.replace("{n}", str(self._made + number)).encode() for number in range(BATCH)]
        self._made += BATCH
        start = thread_time()
        for body in bodies:
            await self._send(PODS, body)
        gc.collect(0)
        self.used.append((thread_time() - start) / BATCH)


async def measure() -> tuple[list[Server], list[float]]:
    """The servers, and how much slower than the machine of the bar this one was in each round."""
    servers = [Server(name) for name in ("", *POLICIES)]
    for server in servers:
        await server.start()
    gc.collect()  # as `haru up` has it
    gc.freeze()
    gc.disable()
    slower: list[float] = []
    for number in range(ROUNDS + WARM_UP):
        for place in range(len(servers)):
            await servers[(number + place) % len(servers)].round()
        start = thread_time()
        work(PARTS)
        slower.append((thread_time() - start) * PARTS / CALIBRATION_SECONDS)
    for server in servers:
        del server.used[:WARM_UP]
    return servers, slower[WARM_UP:]


def costs() -> Iterator[Figure]:
    """Creations of pods by turns."""
    servers, slower = asyncio.run(measure())
    # Neighbours empty the processor's caches: what counts are the rounds in which nobody was slow.
    together = [sum(used) for used in zip(*(server.used for server in servers), strict=True)]
    quiet = sorted(range(ROUNDS), key=together.__getitem__)[: ROUNDS // QUIETEST]
    slowness = [slower[number] for number in quiet]
    without = [servers[0].used[number] * 1e6 for number in quiet]
    told = f"{median(without):.0f} µs ({median(map(truediv, without, slowness)):.0f} scaled)"
    yield Figure("create a pod without policies, processor time of the server", told, "", None)
    for server in servers[1:]:
        used = [server.used[number] * 1e6 for number in quiet]
        more = list(map(sub, used, without))
        scaled = list(map(truediv, more, slowness))
        low, _, high = quantiles(scaled, n=4)
        share = median(map(truediv, more, without))
        told = (
            f"{median(more):.0f} µs more ({median(scaled):.0f} scaled, half of the rounds {low:.0f} to {high:.0f}), "
            f"{share:.0%} of the creation"
        )
        typical = "typical" in server.name
        bar, met = (f"at most {BAR} µs", median(scaled) <= BAR) if typical else ("", None)
        yield Figure(f"the same with a mutating policy {server.name}", told, bar, met)


def main() -> int:
    """Prints the table; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the table into this document")
    options = parser.parse_args()
    found = list(costs())
    print(table(found, False))
    if options.document is not None:
        write_section(options.document, "mutating", table(found, True))
    return int(any(one.met is False for one in found))


if __name__ == "__main__":
    sys.exit(main())
