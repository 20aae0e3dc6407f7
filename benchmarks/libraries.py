"""What libraries would cost in place of Haru's own code: the figures of ADR 15 to 17.

    python -m benchmarks.libraries [tokens metrics patches caches requests cel client]

Each row runs both in one process by turns; shown are the medians and the median ratio. jsonpatch, cel-python and
kubernetes_asyncio are no dependencies: their rows are left out where they are not installed. "was" is the code that a
library replaced, in the few lines that it comes to. `requests` are creations of pods on a server in this process, with
the library put in the place of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import orjson

from benchmarks.tables import plain

Obj = dict[str, Any]
Work = Callable[[], object]
Row = tuple[str, Work, Work, int]
"""A name, ours, the library's, and how often each runs in a round."""

ROUNDS = 21
HEADS = ("what", "ours", "library", "ratio")
LABELS = ("verb", "resource")
BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
LABEL_SETS = 200
POD: Obj = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "b", "uid": "0", "labels": {"app": "x"}, "annotations": {"a": "b"}},
    "spec": {
        "containers": [
            {
                "name": str(number),
                "image": "x",
                "env": [{"name": f"E{place}", "value": "v"} for place in range(10)],
                "resources": {"requests": {"cpu": "1"}},
            }
            for number in range(3)
        ],
        "tolerations": [{"key": "a", "operator": "Exists"}],
    },
    "status": {"conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "PodScheduled", "Initialized")]},
}
OPERATIONS = [
    {"op": "test", "path": "/metadata/labels/app", "value": "x"},
    {"op": "replace", "path": "/spec/containers/0/image", "value": "y"},
    {"op": "add", "path": "/metadata/labels/n", "value": "1"},
    {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "z"}},
]
EXPRESSION = (
    "object.spec.containers.all(c, c.image.startsWith('x') && size(c.env) <= 16) && "
    "object.metadata.labels['app'] in ['x', 'y'] && !has(object.spec.hostNetwork)"
)


def by_turns(ours: Work, library: Work, times: int) -> tuple[float, float, float]:
    """Median microseconds of both, and the median ratio of the rounds."""
    used: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            work = (ours, library)[which]
            began = time.perf_counter()
            for _ in range(times):
                work()
            used[which].append((time.perf_counter() - began) / times * 1e6)
    ratio = median(theirs / own for own, theirs in zip(*used, strict=True))
    return median(used[0]), median(used[1]), ratio


def tokens() -> Iterator[Row]:
    """A token verified: haru.jose (PyJWT's signatures, its own parsing), and PyJWT alone, which refuses less."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    from haru.jose import is_signed_by, public_key, split

    claims = {
        "iss": "https://kubernetes.default.svc",
        "aud": ["https://kubernetes.default.svc"],
        "sub": "system:serviceaccount:a:b",
        "exp": 4_000_000_000,
        "iat": 1,
        "kubernetes.io": {"namespace": "a", "serviceaccount": {"name": "b", "uid": "c"}},
    }
    for algorithm, private in (
        ("RS256", rsa.generate_private_key(65537, 2048)),
        ("ES256", ec.generate_private_key(ec.SECP256R1())),
    ):
        token = jwt.encode(claims, private, algorithm, headers={"kid": "k"})
        public: Any = private.public_key()
        key = public_key("k", public)

        def ours(token: str = token, key: Any = key) -> None:
            parts = split(token)
            assert is_signed_by(key, parts.algorithm, parts.signed, parts.signature)

        def library(token: str = token, public: Any = public, algorithm: str = algorithm) -> None:
            jwt.decode(token, public, algorithms=[algorithm], options={"verify_aud": False})

        yield f"verify a token, {algorithm}", ours, library, 200


def metrics() -> Iterator[Row]:
    """Observations, and the text of a scrape."""
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

    from haru.exposition import CounterOf, HistogramOf

    registry = CollectorRegistry()
    theirs = Histogram("a", "b", LABELS, buckets=BUCKETS, registry=registry)
    own = HistogramOf("a", "b", LABELS, BUCKETS)
    child = theirs.labels("GET", "pods")
    yield (
        "observe",
        lambda: own.observe(0.001, "GET", "pods"),
        lambda: theirs.labels("GET", "pods").observe(0.001),
        5000,
    )
    yield "observe, child at hand", lambda: own.observe(0.001, "GET", "pods"), lambda: child.observe(0.001), 5000
    counted, their_count = CounterOf("c", "d", LABELS), Counter("c", "d", LABELS, registry=registry)
    yield "count", lambda: counted.add("GET", "pods"), lambda: their_count.labels("GET", "pods").inc(), 5000
    for number in range(LABEL_SETS):
        own.observe(1.0, "GET", str(number))
        theirs.labels("GET", str(number)).observe(1.0)
    yield (
        f"scrape {LABEL_SETS} histograms",
        lambda: "\n".join(own.lines()).encode(),
        lambda: generate_latest(registry),
        2,
    )


def patches() -> Iterator[Row]:
    """A JSON patch of four operations, and of one."""
    if importlib.util.find_spec("jsonpatch") is None:
        return
    import jsonpatch

    from haru.kube.cloning import clone
    from haru.kube.patch.json_patch import apply_json_patch

    label = [{"op": "add", "path": "/metadata/labels/n", "value": "1"}]
    slice_of = {**POD, "spec": {"devices": POD["spec"]["containers"] * 42}}
    for name, obj, operations in (
        ("4 operations", POD, OPERATIONS),
        ("1 operation", POD, label),
        ("1 operation on a slice of 126 devices", slice_of, label),
    ):

        def library(obj: Obj = obj, operations: list[Obj] = operations) -> object:
            return jsonpatch.JsonPatch(operations).apply(clone(obj), in_place=True)

        def ours(obj: Obj = obj, operations: list[Obj] = operations) -> object:
            return apply_json_patch(obj, operations)

        def shared(obj: Obj = obj, operations: list[Obj] = operations) -> object:
            return apply_json_patch(obj, operations, shared=True)

        yield f"PATCH, {name}", ours, library, 200
        yield f"admission policy, {name}", shared, library, 200


def caches() -> Iterator[Row]:
    """Look-ups, and stores that push the oldest out."""
    from cachetools import FIFOCache, LRUCache

    size = 1000
    was: OrderedDict[str, int] = OrderedDict()
    fifo: FIFOCache[str, int] = FIFOCache(size)
    lru: LRUCache[str, int] = LRUCache(size)
    for number in range(size):
        was[str(number)] = fifo[str(number)] = lru[str(number)] = number
    names = [str(number) for number in range(2 * size)]
    place = 0

    def name() -> str:
        nonlocal place
        place = (place + 1) % len(names)
        return names[place]

    def store_was() -> None:
        was[name()] = 1
        if len(was) > size:
            was.popitem(last=False)

    def store_fifo() -> None:
        fifo[name()] = 1

    def find_was() -> None:
        if was.get("999") is not None:
            was.move_to_end("999")

    plain_dict = dict(was)
    yield "find (FIFO; was: dict)", lambda: plain_dict.get("999"), lambda: fifo.get("999"), 5000
    yield "find (LRU; was: OrderedDict)", find_was, lambda: lru.get("999"), 5000
    yield "store, one goes (FIFO; was: OrderedDict)", store_was, store_fifo, 5000
    yield "empty an empty one", {}.clear, FIFOCache(size).clear, 5000


def requests() -> Iterator[Row]:
    """Creations of pods, with a JSON patch policy, and with all that they observe."""
    from prometheus_client import CollectorRegistry, Histogram

    from benchmarks.mutating_policy import Server
    from haru.exposition import HistogramOf

    loop = asyncio.new_event_loop()

    def started(policy: str) -> Server:
        server = Server(policy)
        loop.run_until_complete(server.start())
        return server

    if importlib.util.find_spec("jsonpatch") is not None:
        import jsonpatch

        from haru.kube.cloning import clone

        patched = started("that is a JSON patch of two operations")
        mutation_patches: Any = sys.modules["haru.apiserver.admission.dynamic.mutation_patches"]
        own_patch: Any = mutation_patches.apply_json_patch

        def their_patch(obj: Obj, operations: list[Obj], **_: Any) -> Any:
            return jsonpatch.JsonPatch(operations).apply(clone(obj), in_place=True)

        def create(apply: Any) -> None:
            mutation_patches.apply_json_patch = apply
            loop.run_until_complete(patched.round())

        yield "15 creations, JSON patch policy", lambda: create(own_patch), lambda: create(their_patch), 1
        mutation_patches.apply_json_patch = own_patch
        loop.run_until_complete(patched.stop())
    observed = started("")
    theirs: dict[HistogramOf, Histogram] = {}
    own_observe = HistogramOf.observe

    def their_observe(self: Any, seconds: float, *values: str) -> None:
        histogram = theirs.get(self)
        if histogram is None:
            histogram = theirs[self] = Histogram(
                self._name, self._text, self._labels, buckets=self._bounds, registry=CollectorRegistry()
            )
        (histogram.labels(*values) if values else histogram).observe(seconds)

    def count(observe: Any) -> None:
        HistogramOf.observe = observe  # type: ignore[method-assign]
        loop.run_until_complete(observed.round())

    yield "15 creations, histograms", lambda: count(own_observe), lambda: count(their_observe), 1
    HistogramOf.observe = own_observe  # type: ignore[method-assign]
    loop.run_until_complete(observed.stop())


def cel() -> Iterator[Row]:
    """An expression on a pod, compiled and evaluated. The libraries convert the object first, as each request would."""
    from haru.cel.environment import KUBERNETES, Environment
    from haru.cel.libraries import BASE
    from haru.cel.program import Program, parse_and_check
    from haru.cel.types import DYN

    environment = Environment(BASE, {"object": DYN}, KUBERNETES)

    def compiled() -> Program:
        return Program(parse_and_check(EXPRESSION, environment), environment, ("object",))

    program = compiled()
    assert program.evaluate(POD) is True
    if importlib.util.find_spec("cel_expr_python") is not None:
        from cel_expr_python import cel as google

        there = google.NewEnv(variables={"object": google.Type.DYN})
        their_program = there.compile(EXPRESSION)
        assert their_program.eval(data={"object": POD}).value() is True
        yield "CEL: compile (cel-expr-python)", compiled, lambda: there.compile(EXPRESSION), 20
        yield (
            "CEL: evaluate (cel-expr-python)",
            lambda: program.evaluate(POD),
            lambda: their_program.eval(data={"object": POD}).value(),
            200,
        )
    if importlib.util.find_spec("celpy") is not None:
        import celpy

        python = celpy.Environment()

        def compiled_there() -> Any:
            return python.program(python.compile(EXPRESSION))

        runner = compiled_there()
        assert runner.evaluate({"object": celpy.json_to_cel(POD)})
        yield "CEL: compile (cel-python)", compiled, compiled_there, 1
        yield (
            "CEL: evaluate (cel-python)",
            lambda: program.evaluate(POD),
            lambda: runner.evaluate({"object": celpy.json_to_cel(POD)}),
            5,
        )


def client() -> Iterator[Row]:
    """A list of 200 pods, decoded, and the start of a process that imports the client."""
    pods = [{**POD, "metadata": {**POD["metadata"], "name": str(number)}} for number in range(200)]
    data = json.dumps({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods}).encode()

    class Answer:
        def __init__(self) -> None:
            self.data = data.decode()

    if importlib.util.find_spec("kubernetes") is not None:
        from kubernetes import client as official

        api = official.ApiClient()
        yield (
            "decode 200 pods (kubernetes)",
            lambda: orjson.loads(data),
            lambda: api.deserialize(data.decode(), "V1PodList", "application/json"),
            1,
        )
        yield "import (kubernetes)", _importing("haru.client.api"), _importing("kubernetes.client"), 1
    if importlib.util.find_spec("kubernetes_asyncio") is not None:
        from kubernetes_asyncio import client as other

        # Its constructor wants a running loop; decoding does not.
        asynchronous = other.ApiClient.__new__(other.ApiClient)
        asynchronous.configuration = other.Configuration()
        yield (
            "decode 200 pods (kubernetes_asyncio)",
            lambda: orjson.loads(data),
            lambda: asynchronous.deserialize(Answer(), "V1PodList"),
            1,
        )
        yield "import (kubernetes_asyncio)", _importing("haru.client.api"), _importing("kubernetes_asyncio.client"), 1


def _importing(module: str) -> Work:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run() -> None:
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True, env=environment)

    return run


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "tokens": tokens,
    "metrics": metrics,
    "patches": patches,
    "caches": caches,
    "requests": requests,
    "cel": cel,
    "client": client,
}


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    lines = []
    for part in parser.parse_args().parts or PARTS:
        for name, ours, library, times in PARTS[part]():
            own, theirs, ratio = by_turns(ours, library, times)
            lines.append((name, f"{own:.3g} µs", f"{theirs:.3g} µs", f"{ratio:.2f}"))
    print(plain(HEADS, lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
