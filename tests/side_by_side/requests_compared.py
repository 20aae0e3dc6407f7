"""Random requests, the same to kube-apiserver and to Haru's API server, and how their answers differ.

    export PYTHONPATH=.:tests:tests/side_by_side:tests/apiserver
    python -m requests_compared --kubernetes FOLDER [--seed 0] [--count 20] [--kind KIND]

The folder holds kube-apiserver; `etcd` is on PATH. A seed is a namespace, three kinds and forty requests about objects
of them: creates, updates, patches, applies, deletions, lists and subresources, valid and odd. Status codes, objects,
Status bodies, warnings and content types are compared, and in the end what watches saw. A seed ends with a write that
one server took and the other did not. Exit code 1 if more than --allowed answers differ in
something that is not known (`request_verdicts`).
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import ssl
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from benchmarks.control_planes import Server, serving
from custom_objects import definition
from request_answers import UUID, Answer, Versions, counts, differences, plain, told, unequal
from request_custom import DEFINITIONS
from request_draw import RequestDraw
from request_parts import PARTIAL, TABLE, Request, chosen
from request_policies import of_params
from request_users import TOKEN
from request_verdicts import LASTING, known_cause
from request_webhooks import HOOK, HookServer

from haru.kube import yaml

Obj = dict[str, Any]
STEPS = 40
WATCHES = (
    ("", ""),
    (f"&labelSelector={quote('a=b')}", ""),
    ("&allowWatchBookmarks=true", ""),
    ("", TABLE),
    ("&includeObject=Object", TABLE),
    ("", PARTIAL),
)
"""Parameters of watches, and the form in which they are asked for."""
GATES = (
    "GenericWorkload GangScheduling TopologyAwareWorkloadScheduling WorkloadAwarePreemption WorkloadWithJob "
    "DRAWorkloadResourceClaims DRADeviceTaints DRADeviceTaintRules DRAConsumableCapacity DRADeviceBindingConditions "
    "DRAResourceClaimDeviceStatus DRAExtendedResource DRAListTypeAttributes DRAPartitionableDevices "
    "DRANodeAllocatableResources DRAResourcePoolStatus"
)
_FLAGS = [
    "--feature-gates=" + ",".join(f"{gate}=true" for gate in GATES.split()),
    "--runtime-config=api/all=true",
]
_OF_KUBE = ["--disable-admission-plugins=StorageObjectInUseProtection", "--service-cluster-ip-range=10.96.0.0/16"]
_OF_KUBE += ["--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction"]
"""What Haru leaves out where no controllers run, its network of Services, and that it knows nodes (beside RBAC)."""
_OF_HARU = ["--no-explain-api", "--no-metrics-api", "--service-account-issuer=https://kubernetes.default.svc"]
_USER = {"Impersonate-User": "jane", "Impersonate-Group": "system:masters", "User-Agent": "compared/1.0"}
_MARK = re.compile(r"\"«#(?P<number>\w+) (?P<of>[^»]*)»\"|«#?(?P<text>\w+) (?P<path>[^»]*)»")
_SLOW = re.compile(
    r"/(roles|rolebindings|clusterroles|clusterrolebindings|limitranges|resourcequotas|priorityclasses|runtimeclasses|"
    r"storageclasses|ingressclasses|customresourcedefinitions|apiservices|nodes|persistentvolumes|servicecidrs)\b"
)
"""What kube-apiserver hears of by a watch of its own, some milliseconds later."""


class Side:
    """A server, and what it was seen to answer."""

    def __init__(self, server: Server) -> None:
        config = yaml.load(server.kubeconfig.read_text())
        self.address = urlsplit(config["clusters"][0]["cluster"]["server"])
        self.token = config["users"][0]["user"]["token"]
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._connection = self.connection()
        self.versions = Versions()
        self.marks: dict[tuple[str, str], str] = {}
        self.objects: dict[str, Obj] = {}

    def connection(self) -> http.client.HTTPSConnection:
        """A new connection."""
        assert self.address.hostname
        return http.client.HTTPSConnection(self.address.hostname, self.address.port, timeout=70, context=self._tls)

    def close(self) -> None:
        """End the connection; the next request makes another one."""
        self._connection.close()

    def send(self, request: Request) -> None:
        """Send a request; `receive` has its answer."""
        body = request.body
        if body is not None and not isinstance(body, bytes):
            body = self.filled(json.dumps(body, ensure_ascii=False, separators=(",", ":"))).encode()
        query = quote(self.filled(request.query), safe="=&%,+:")
        headers = {"Authorization": f"Bearer {self.token}", **_USER, **request.headers}
        headers = {name: self.filled(value) for name, value in headers.items() if value}
        url = request.path + (f"?{query}" if query else "")
        try:
            self._connection.request(request.method, quote(url, safe="/?=&%,+:.-_~"), body, headers)
        except (OSError, http.client.HTTPException):
            self.close()
            self._connection.request(request.method, quote(url, safe="/?=&%,+:.-_~"), body, headers)

    def receive(self) -> Answer:
        """The answer to what was sent last; 0 where the connection ended without one."""
        try:
            answered = self._connection.getresponse()
        except (OSError, http.client.HTTPException):
            self.close()
            return Answer(0, {}, [], b"")
        body = answered.read()
        headers = {name.lower(): value for name, value in answered.getheaders()}
        return Answer(answered.status, headers, answered.msg.get_all("Warning") or [], body)

    def ask(self, request: Request) -> Answer:
        """Send a request and wait for its answer."""
        self.send(request)
        return self.receive()

    def filled(self, text: str) -> str:
        return _MARK.sub(self._mark, text)

    def _mark(self, found: re.Match[str]) -> str:
        if found["number"]:
            return self.marks.get((found["number"], found["of"]), "0")
        return self.marks.get((found["text"], found["path"]), "none")

    def learn(self, request: Request, answer: Answer) -> None:
        """Keep what the answer tells about objects."""
        value = answer.value
        if answer.status >= 300 or not isinstance(value, dict) or "dryRun" in request.query:
            return
        metadata = value.get("metadata") or {}
        if metadata.get("continue"):
            self.marks["continue", request.path] = metadata["continue"]
        if (
            request.resource.partition("/")[2]
            or not (metadata.get("uid") and metadata.get("resourceVersion"))
            or value.get("kind") == "PartialObjectMetadata"
        ):
            return
        if (metadata.get("generateName") and request.method == "POST") or UUID.fullmatch(metadata["name"]):
            return  # each server has another name for it
        path = f"{request.path}/{metadata['name']}" if request.method == "POST" else request.path
        self.objects[path] = value
        for key in ("resourceVersion", "creationTimestamp"):
            self.marks[key, path] = metadata[key]
        for key, one in chosen(value):
            self.marks[key, path] = str(one)
        self.marks.setdefault(("old", path), metadata["resourceVersion"])


class Comparison:
    """Both servers, and what differed."""

    def __init__(self, kube: Side, haru: Side, verbose: bool = False) -> None:
        self.kube, self.haru = kube, haru
        self.hooks = (HookServer(), HookServer())
        self.counted = Counter[str]()
        self._verbose = verbose

    def close(self) -> None:
        """End both connections."""
        for one in (self.kube, self.haru, *self.hooks):
            one.close()

    def ask(self, request: Request) -> tuple[Answer, Answer]:
        """The answers of both."""
        self.kube.send(request)
        self.haru.send(request)
        answers = self.kube.receive(), self.haru.receive()
        for _ in range(20):
            if answers[0].status != 429 or b"(re)initializing" not in answers[0].body:
                break
            time.sleep(0.3)  # a definition has changed
            answers = self.kube.ask(request), answers[1]
        return answers

    def step(self, seed: int, number: int, request: Request) -> bool:
        """Compare one request; whether both are in the same state afterwards, as far as can be told."""
        answers = self.ask(request)
        found = differences(request, *answers, (self.kube.versions, self.haru.versions)) + self._reviewed()
        self.counted["requests"] += 1
        self.counted[f"{answers[0].status // 100}xx"] += 1
        unknown = self.judged(request, answers, found)
        lasting = not LASTING.isdisjoint(known_cause(request, answers, line) for line in found)
        if self._verbose:
            print(f"answered {answers[0].status} | {answers[1].status}", flush=True)
        if unknown or self._verbose:
            print(f"seed {seed} step {number}: {request}\n   body {request.body_text[:1500]}", flush=True)
            for line in unknown:
                print(f"   {request.method} {request.resource} {line[:2500]}", flush=True)
        for side, answer in zip((self.kube, self.haru), answers, strict=True):
            side.learn(request, answer)
        if request.method != "GET" and _SLOW.search(request.path) and answers[0].status < 300:
            is_definition = request.resource.startswith("customresourcedefinitions")
            time.sleep(1 if is_definition else 0.3 if request.method == "DELETE" else 0.1)
        same = request.method == "GET" or len({answer.status < 300 for answer in answers}) == 1
        return same and not lasting

    def _reviewed(self) -> list[str]:
        """In what the reviews differ that webhooks were sent."""
        sides = zip((self.kube, self.haru), self.hooks, strict=True)
        asked = [plain(hook.taken(), side.versions) for side, hook in sides]
        return unequal(asked[0], asked[1], "review")

    def judged(self, request: Request, answers: tuple[Answer, Answer], found: Sequence[str]) -> list[str]:
        """Count differences, and return those that are not known."""
        unknown = []
        for line in found:
            cause = known_cause(request, answers, line)
            self.counted[f"known: {cause}" if cause else "unknown"] += 1
            if not cause:
                unknown.append(line)
        self.counted["unknown answers"] += bool(unknown)
        return unknown

    # -- a seed -------------------------------------------------------------------------------------------------------

    def play(self, seed: int, steps: int, only: str) -> None:
        """Play a seed, and clean up."""
        for side in (self.kube, self.haru):
            side.objects.clear()
            side.marks.clear()
        for side, hook in zip((self.kube, self.haru), self.hooks, strict=True):
            side.marks[HOOK, "url"] = hook.url
        draw = RequestDraw(seed, self.kube.objects, only)
        named = {"name": draw.namespace, "labels": draw.devices.labels}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": named}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        headers = {"Content-Type": "application/json"}
        self.ask(Request("POST", "/api/v1/namespaces", "", headers, namespace))
        self.ask(Request("POST", f"/api/v1/namespaces/{draw.namespace}/serviceaccounts", "", headers, account))
        created = {draw.scenes.signing} | self._admit(draw) | self._define(seed, draw)
        begun = self.ask(Request("GET", f"/api/v1/namespaces/{draw.namespace}/configmaps"))
        for number in range(steps):
            request = draw.next()
            goes_on = self.step(seed, number, request)
            created |= self.kube.objects.keys() | self.haru.objects.keys()
            if request.method != "GET":
                self._look_again(request.path)
            if not goes_on:
                self.counted["seeds ended early"] += 1
                break
        else:
            self._watch(seed, draw, [one.value["metadata"]["resourceVersion"] for one in begun])
        self._clean(draw, created)

    def _admit(self, draw: RequestDraw) -> set[str]:
        """Give the users of a seed their rights, and put its policies to work; the paths of what does so."""
        made, headers = set[str](), {"Content-Type": "application/json"}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        account = f"/api/v1/namespaces/{draw.namespace}/serviceaccounts/default"
        given = self.ask(Request("POST", f"{account}/token", "", headers, body))
        for side, answer in zip((self.kube, self.haru), given, strict=True):
            side.marks[TOKEN, draw.namespace] = answer.value["status"]["token"]
        for path, obj in [
            *draw.users.roles(), *draw.policies.objects(), *draw.webhooks.objects(), *draw.conversions.objects(),
        ]:  # fmt: skip
            request = Request("POST", path, "", headers, obj)
            answers = self.ask(request)
            for _ in range(20):  # kube-apiserver hears late that the policy of the seed before is gone
                if answers[0].status < 300 or answers[1].status >= 300:
                    break
                time.sleep(0.3)
                answers = (self.kube.ask(request), answers[1])
            if answers[0].status != answers[1].status:
                raise AssertionError(f"{obj}: {[answer.value for answer in answers]}")
            made.add(f"{path}/{obj['metadata']['name']}")
        time.sleep(
            3 if draw.policies.are_at_work or draw.conversions.is_drawn else 1.2 if draw.webhooks.are_at_work else 0.15
        )
        self._reviewed()
        return made

    def _define(self, seed: int, draw: RequestDraw) -> set[str]:
        """Define the custom kind of a seed, and compare what is told of it; the path of its definition."""
        headers = {"Content-Type": "application/json"}
        for tried in range(4 if draw.custom.is_drawn else 0):
            definition = draw.custom.definition(tried)
            asked = Request("POST", DEFINITIONS, "", headers, definition, "customresourcedefinitions")
            self.step(seed, tried - 4, asked)
            path = f"{DEFINITIONS}/{draw.custom.name}"
            if {path} & (self.kube.objects.keys() ^ self.haru.objects.keys()):  # one of them refuses it, as is known
                self.ask(Request("DELETE", path))
                self.kube.objects.pop(path, None)
                self.haru.objects.pop(path, None)
                time.sleep(1)
            if {path} <= self.kube.objects.keys() & self.haru.objects.keys():
                told = draw.custom.told(definition)
                self._wait_for(told)
                for request in told:
                    self.step(seed, -1, request)
                draw.define(definition)
                for one in draw.resources:  # kube-apiserver begins to watch a new kind when somebody asks for it
                    self.ask(Request("GET", one.path))
                for side in (self.kube, self.haru):
                    del side.objects[path]
                return {path}
        return set()

    def _wait_for(self, requests: Sequence[Request]) -> None:
        """Wait until kube-apiserver, too, tells of a new kind."""
        until = time.monotonic() + 15
        while any(self.kube.ask(one).status != 200 for one in requests if one.resource == "openapi"):
            if time.monotonic() > until:
                break
            time.sleep(0.3)
        time.sleep(1)

    def _look_again(self, changed: str) -> None:
        """Learn what became of the objects that a request was about, and forget those that are gone."""
        for path in [path for path in self.kube.objects if changed.startswith(path) or path.startswith(changed)]:
            answers = self.ask(Request("GET", path))
            if answers[0].status == 404:
                del self.kube.objects[path]
                self.haru.objects.pop(path, None)
                continue
            for side, answer in zip((self.kube, self.haru), answers, strict=True):
                side.learn(Request("GET", path), answer)

    def _watch(self, seed: int, draw: RequestDraw, versions: Sequence[str]) -> None:
        """Compare what watches from the beginning of a seed see."""
        seen = [one for one in draw.resources if one.is_namespaced and not one.is_virtual]
        if draw.custom.has_changed:  # kube-apiserver tells nothing of before: it has begun anew
            seen = [one for one in seen if one.group != draw.custom.group]
        paths = dict.fromkeys(one.path for one in seen)
        asked = [(path, *form) for path in paths for form in WATCHES]
        common = "?watch=1&timeoutSeconds=1&resourceVersion="
        begun = [
            [watch(side, f"{path}{common}{version}{query}", accept) for path, query, accept in asked]
            for side, version in zip((self.kube, self.haru), versions, strict=True)
        ]
        for (path, query, accept), *watches in zip(asked, *begun, strict=True):
            self.counted["watches"] += 1
            request = Request(
                "GET", path, f"watch=1{query}", {"Accept": accept}, None, f"watch {path.rpartition('/')[2]}"
            )
            seen = [
                plain(events_of(one), side.versions) for one, side in zip(watches, (self.kube, self.haru), strict=True)
            ]
            unknown = self.judged(request, (Answer(200, {}, [], b""),) * 2, unequal(*seen))
            if unknown:
                print(f"seed {seed}: {request}", *(f"\n   {line[:2500]}" for line in unknown), flush=True)

    def _clean(self, draw: RequestDraw, created: set[str]) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        for path in sorted(created, key=lambda path: "policybindings" not in path):
            if f"/{draw.namespace}/" not in path:
                self.ask(Request("PATCH", path, "", headers, {"metadata": {"finalizers": None}}))
                self.ask(Request("DELETE", path, "gracePeriodSeconds=0"))


def watch(side: Side, url: str, accept: str = "") -> http.client.HTTPConnection:
    """A connection on which a watch has been asked for."""
    connection = side.connection()
    headers = {"Authorization": f"Bearer {side.token}", **_USER} | ({"Accept": accept} if accept else {})
    connection.request("GET", url, None, headers)
    return connection


def events_of(connection: http.client.HTTPConnection) -> list[Obj]:
    """The events of a watch until it ends."""
    body = connection.getresponse().read()
    connection.close()
    events = [json.loads(line) for line in body.splitlines() if line.strip()]
    return [told(one) for one in events if counts(one)]


@contextmanager
def both(programs: Path, verbose: bool = False) -> Iterator[Comparison]:
    """A kube-apiserver and Haru's API server, each with the custom kind, until the block is left."""
    with (
        serving(str(programs / "kube-apiserver"), [*_FLAGS, *_OF_KUBE]) as kube,
        serving("haru", [*_FLAGS, *_OF_HARU]) as haru,
        ExitStack() as ending,
    ):
        comparison = Comparison(Side(kube), Side(haru), verbose)
        ending.callback(comparison.close)
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        comparison.ask(Request("POST", path, "", {"Content-Type": "application/json"}, definition()))
        for kept, obj in of_params():
            comparison.ask(Request("POST", kept, "", {"Content-Type": "application/json"}, obj))
        comparison.haru.ask(Request("DELETE", "/apis/storage.k8s.io/v1/storageclasses/simulated"))
        classes = "/apis/resource.k8s.io/v1/deviceclasses"
        for one in comparison.haru.ask(Request("GET", classes)).value["items"]:
            comparison.haru.ask(Request("DELETE", f"{classes}/{one['metadata']['name']}"))
        served = Request("GET", "/apis/ml.example.com/v1/trainings")
        while any(one.status != 200 for one in comparison.ask(served)):
            time.sleep(0.2)
        yield comparison


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences; 1 if there are any that are not known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubernetes", type=Path, required=True, help="folder with Kubernetes' programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="how many seeds")
    parser.add_argument("--steps", type=int, default=STEPS, help="requests of a seed")
    parser.add_argument("--kind", default="", help="this kind alone")
    parser.add_argument("--allowed", type=int, default=0, help="how many answers may differ in something unknown")
    parser.add_argument("--verbose", action="store_true", help="print every request")
    options = parser.parse_args(arguments)
    with both(options.kubernetes, options.verbose) as comparison:
        for seed in range(options.seed, options.seed + options.count):
            comparison.play(seed, options.steps, options.kind)
    for name, count in sorted(comparison.counted.items()):
        print(f"{count:6} {name}")
    return 1 if comparison.counted["unknown answers"] > options.allowed else 0


if __name__ == "__main__":
    sys.exit(main())
