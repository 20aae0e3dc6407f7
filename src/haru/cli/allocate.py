"""Say which devices ResourceClaims would get, or why they would get none.

The manifests hold ResourceSlices, DeviceClasses and ResourceClaims (Nodes where labels matter). Claims that have an
allocation hold their devices; the others are allocated together, as the claims of one pod, and so is a claim of each
ResourceClaimTemplate. Without --node every node is asked, and the first on which all fits is shown. Exit status: 0 if
they fit, 1 if not, 2 for bad input. With --cases, every line of a file is an allocation problem; one JSON line per
case holds its outcome and what it took.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from haru.cli.main import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from haru.engine.cluster import Snapshot
    from haru.engine.devices import NodeFunnel, NodeView, Question
    from haru.engine.devices.question import Refusal

Obj = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru allocate`."""
    parser.add_argument("-f", "--filename", action="extend", nargs="+", metavar="FILE", help="manifests (- is stdin)")
    parser.add_argument("--node", metavar="NAME", help="ask this node only")
    parser.add_argument("-n", "--namespace", default="default", metavar="NAMESPACE", help="of claims that name none")
    parser.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="give up after so long")
    parser.add_argument(
        "--device-scoring",
        action="store_true",
        help="prefer small devices and fragments and keep whole cards whole, instead of the order of 1.36",
    )
    parser.add_argument("--cases", metavar="FILE", help="cases, one JSON object a line, plain or .gz (- is stdin)")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="form of the answer")
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,…", help="gates that differ from those of haru up"
    )


def run(options: argparse.Namespace) -> int:
    """Prints what would be allocated."""
    if options.cases:
        if options.filename:
            raise UsageError("--cases brings its own objects: leave -f out")
        from haru.cli.allocate_cases import answer_case, settled_heap
        from haru.cli.cases import answer_cases

        with settled_heap():
            return answer_cases(options.cases, lambda case: answer_case(case, options.timeout, options.device_scoring))
    if not options.filename:
        raise UsageError("name the manifests with -f FILE, or cases with --cases FILE")
    return _allocate(options)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text}: give a number of seconds above 0")
    return value


def _allocate(options: argparse.Namespace) -> int:
    from haru.cli.allocate_text import show
    from haru.cli.reading import read_objects

    answer = _answer(options, list(read_objects(options.filename, options.namespace)))
    if options.output == "text":
        print(show(answer))
    elif options.output == "json":
        print(json.dumps(answer, indent=2))
    else:
        from haru.kube.yaml import dump

        print(dump(answer), end="")
    return 0 if answer["fits"] else 1


def _answer(options: argparse.Namespace, objects: list[Obj]) -> Obj:
    import time
    from uuid import uuid4

    from haru.cli.reading import cluster_of, file_gates
    from haru.engine.devices import Features, Fleet, Question
    from haru.engine.devices.allocate import DEFAULT_BUDGET

    snapshot = cluster_of(objects).snapshot()
    features = Features.from_gates(file_gates(options.feature_gates).all())
    claims = _claims(objects)
    nodes = _nodes(snapshot, options.node)
    fleet = Fleet(snapshot.devices, snapshot.allocated, nodes, partitionable=features.PartitionableDevices)
    deadline = time.monotonic() + options.timeout if options.timeout else None
    question = Question(
        fleet,
        claims,
        features,
        step_budget=DEFAULT_BUDGET if deadline is None else 1 << 60,
        expired=None if deadline is None else lambda: time.monotonic() > deadline,
        scoring=options.device_scoring,
    )
    fitting = question.fits(fleet)
    answer: Obj = {
        "apiVersion": "haru.dev/v1alpha1",
        "kind": "DeviceAllocation",
        "fits": bool(fitting),
        "asked": len(nodes),
        "nodes": [nodes[number].name for number in fitting],
    }
    if fitting:
        results = question.results(fleet, fitting[0], lambda: str(uuid4()))
        assert isinstance(results, tuple)
        named = [_reference(claim) for claim in claims]
        answer["node"] = nodes[fitting[0]].name
        answer["claims"] = [{**name, "allocation": result} for name, result in zip(named, results, strict=True)]
    answer["refusals"] = _refusals(question, fleet, fitting, features)
    return answer


def _claims(objects: list[Obj]) -> list[Obj]:
    """The claims to allocate, in the order of the files: those without allocation, and one for each template."""
    claims = []
    for obj in objects:
        if obj["kind"] == "ResourceClaim" and not (obj.get("status") or {}).get("allocation"):
            claims.append(obj)
        elif obj["kind"] == "ResourceClaimTemplate":
            claims.append({"metadata": obj["metadata"], "spec": (obj.get("spec") or {}).get("spec") or {}})
    if not claims:
        raise UsageError("the files hold no ResourceClaim without allocation and no ResourceClaimTemplate")
    return claims


def _reference(claim: Obj) -> Obj:
    metadata = claim["metadata"]
    return {"namespace": metadata.get("namespace") or "default", "name": metadata["name"]}


def _nodes(snapshot: Snapshot, only: str | None) -> list[NodeView]:
    """The nodes to ask: those in the files and those that slices name."""
    from haru.engine.devices import NodeView

    views = {name: NodeView(name, snapshot.nodes[name].labels) for name in snapshot.node_names}
    for name in snapshot.devices.by_node:
        views.setdefault(name, NodeView(name, {}))
    if only is not None:
        if only not in views:
            raise UsageError(f'--node: no Node "{only}" in the files, and no ResourceSlice of it')
        return [views[only]]
    if not views:
        raise UsageError("the files name no node: add a Node, or ResourceSlices with nodeName")
    return [views[name] for name in sorted(views)]


def _refusals(question: Question, fleet: Any, fitting: Sequence[int], features: Any) -> list[Obj]:
    """Why the other nodes cannot serve the claims, one entry for all nodes that are alike."""
    refused = []
    fits = set(fitting)
    for peers in fleet.peers.values():
        numbers = sorted(peers.nodes)
        if numbers[0] in fits:
            continue
        found = question.answer(fleet, peers)
        names = [fleet.nodes[number].name for number in numbers]
        refused.append({"nodes": names, **_reason(question, fleet, numbers[0], found, features)})
    return sorted(refused, key=lambda entry: str(entry["nodes"][0]))


def _reason(question: Question, fleet: Any, number: int, found: Refusal | Any, features: Any) -> Obj:
    from haru.engine.devices import AllocationError, DoesNotFit, GaveUp, explain_requests

    if isinstance(found, GaveUp):
        return {"error": str(found), "reasons": [], "requests": []}
    entry: Obj = {"error": str(found)} if isinstance(found, AllocationError) else {}
    try:
        funnel = explain_requests(fleet.snapshot, fleet.allocated, fleet.nodes[number], question.claims, features)
    except AllocationError as error:
        return {"error": str(error), "reasons": [], "requests": []}
    refusals = list(funnel.refusals) or (list(found.reasons) if isinstance(found, DoesNotFit) else [])
    entry["reasons"] = [{"type": refusal.type, "message": refusal.message} for refusal in refusals]
    entry["requests"] = _funnels(funnel)
    return entry


def _funnels(funnel: NodeFunnel) -> list[Obj]:
    return [
        {
            "claim": request.claim,
            "request": request.request,
            "deviceClass": request.device_class,
            "needed": request.needed,
            "funnel": [{"condition": stage.name, "left": stage.left} for stage in request.stages],
        }
        for request in funnel.requests
    ]
