"""Which pods of a namespace a stricter standard would not have let in: told to who tightens it, in bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from haru.apiserver.context import Obj, ServerContext
from haru.apiserver.encoding.objects import decode
from haru.kube.meta import controller_of
from haru.kube.pod_security.evaluating import evaluate
from haru.kube.pod_security.levels import Standard

MOST_PODS = 3000
MOST_SECONDS = 1.0
_AT_ONCE = 100


async def violations(core: ServerContext, namespace: str, standard: Standard, exempt: Collection[str]) -> list[str]:
    """Warnings: what is wrong, with how many pods, and by name with the first of them.

    At most 3000 pods are looked at, for a second at most: first those without a controller and one of each controller.
    """
    deadline = time.monotonic() + MOST_SECONDS
    pods = await _pods(core, namespace, exempt)
    wrong: dict[str, list[str]] = {}
    checked = 0
    for pod in pods[:MOST_PODS]:
        checked += 1
        verdict = evaluate(standard, pod["metadata"], pod.get("spec") or {})
        if not verdict.allowed:
            wrong.setdefault(verdict.reasons, []).append(pod["metadata"]["name"])
        if checked % _AT_ONCE == 0:
            await asyncio.sleep(0)
        if time.monotonic() > deadline:
            break
    found = []
    if checked < len(pods):
        found.append(
            f"new PodSecurity enforce level only checked against the first {checked} of {len(pods)} existing pods"
        )
    if wrong:
        found.append(f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{standard}"')
    return found + sorted(f"{_who(names)}: {reasons}" for reasons, names in wrong.items())


async def _pods(core: ServerContext, namespace: str, exempt: Collection[str]) -> list[Obj]:
    """The pods in the order in which they are looked at."""
    page = await core.store.range(core.served.preferred("", "pods").prefix(namespace))
    first: list[Obj] = []
    others: list[Obj] = []
    seen: set[str] = set()
    for number, record in enumerate(page.records):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        pod = decode(record)
        if (pod.get("spec") or {}).get("runtimeClassName") in exempt:
            continue
        owner = controller_of(pod)
        if owner is not None and owner["uid"] in seen:
            others.append(pod)
            continue
        if owner is not None:
            seen.add(owner["uid"])
        first.append(pod)
    return first + others


def _who(names: list[str]) -> str:
    more = len(names) - 1
    if not more:
        return names[0]
    return f"{min(names)} (and {more} other {'pod' if more == 1 else 'pods'})"
