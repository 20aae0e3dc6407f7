"""What a mutating admission policy of typical size costs a request at the server.

    python -m benchmarks.mutating_policy [--document docs/performance-api.md]

Pods are created by turns on one server without policies, with one that leaves them alone, and with one that changes
them. What counts is the processor time of the server for each request, more than without policies. Bar: 200 µs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.api_speed import POD, PODS, Figure, Server, alone, table
from benchmarks.calibrate import calibrate
from benchmarks.results import CALIBRATION_SECONDS
from benchmarks.tables import write_section
from haru.client.api import ApiClient
from haru.kube.kinds import Kind, lookup

Obj = dict[str, Any]

BAR = 200
"""Microseconds a request."""
COUNT, TURNS = 200, 3
GROUP = "admissionregistration.k8s.io"
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


def _kind(plural: str) -> Kind:
    found = lookup(GROUP, "v1", plural)
    assert found is not None
    return found


async def _install(server: Server, spec: Obj | None) -> None:
    """Let there be this policy, or none."""
    policies, bindings = _kind("mutatingadmissionpolicies"), _kind("mutatingadmissionpolicybindings")
    async with ApiClient.from_kubeconfig(server.data / "kubeconfig", user_agent="haru-benchmark") as client:
        for kind in (bindings, policies):
            for each in (await client.list(kind))["items"]:
                await client.delete(kind, each["metadata"]["name"])
        if spec is not None:
            named = {"apiVersion": f"{GROUP}/v1", "metadata": {"name": "benchmark"}}
            await client.create(policies, {**named, "kind": policies.kind, "spec": spec})
            await client.create(bindings, {**named, "kind": bindings.kind, "spec": {"policyName": "benchmark"}})


def costs(server: Server) -> Iterator[Figure]:
    """Creations of pods by turns."""
    first = 0
    found: dict[str, list[float]] = {name: [] for name in ("", *POLICIES)}
    scales: list[float] = []
    for turn in range(TURNS + 1):
        for name, used in found.items():
            if turn:
                scales.append(CALIBRATION_SECONDS / calibrate())
            asyncio.run(_install(server, POLICIES.get(name)))
            server.rate("POST", PODS, 20, 4, POD, first)  # the policy's expressions are compiled
            done = server.rate("POST", PODS, COUNT, 4, POD, first + 20)
            first += COUNT + 20
            if turn:  # the first turn warms up
                used.append(done["server"] / COUNT * 1e6)
    without, scale = median(found[""]), median(scales)
    told = f"{without:.0f} µs ({without * scale:.0f} scaled)"
    yield Figure("create a pod without policies, processor time of the server", told, "", None)
    for name in POLICIES:
        more = median(one - other for one, other in zip(found[name], found[""], strict=True))
        told = f"{more:.0f} µs more ({more * scale:.0f} scaled), {more / without:.0%} of the creation"
        typical = "typical" in name
        bar, met = (f"at most {BAR} µs", more * scale <= BAR) if typical else ("", None)
        yield Figure(f"the same with a mutating policy {name}", told, bar, met)


def main() -> int:
    """Prints the table; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the table into this document")
    options = parser.parse_args()
    with alone() as server:
        found = list(costs(server))
    print(table(found, False))
    if options.document is not None:
        write_section(options.document, "mutating", table(found, True))
    return int(any(one.met is False for one in found))


if __name__ == "__main__":
    sys.exit(main())
