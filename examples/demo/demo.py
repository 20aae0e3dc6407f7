"""A self-contained story: a gang that waits whole and runs whole, slices, sharing, fallback, TPUs, maintenance.

Every step is asserted on the state that the API shows; the exit status is 0 only if each of them really happened.
Run it with `make demo`. The manifests stand beside this file.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import Haru, Kubectl, PythonClient, StepError, connect, indent, until

Obj = dict[str, Any]
PROFILES = "dgx-h100:1,dgx-a100-80gb-mig:1,tpu-v5e:1,cpu:1"
TAINTS = "simulated.haru.dev/device-taints"
H100, A100 = "NVIDIA H100", "NVIDIA A100"


@dataclass(frozen=True)
class Device:
    """A device of a slice, and what it is."""

    pool: str
    name: str
    driver: str
    product: str
    type: str


class Story:
    """The state of the cluster as the story needs it, read from the API at each question."""

    def __init__(self, haru: Haru, kube: Kubectl | PythonClient) -> None:
        self.haru, self.kube = haru, kube
        self.idle_while_waiting: list[tuple[str, str]] = []

    def pods(self, prefix: str) -> list[Obj]:
        """Pods whose name begins so, by name."""
        found = [p for p in self.kube.items("pods") if p["metadata"]["name"].startswith(prefix)]
        return sorted(found, key=lambda p: p["metadata"]["name"])

    def running(self, prefix: str) -> list[Obj]:
        """Those of them that run."""
        return [p for p in self.pods(prefix) if p.get("status", {}).get("phase") == "Running"]

    def bound(self, prefix: str) -> list[Obj]:
        """Those of them that have a node."""
        return [p for p in self.pods(prefix) if p["spec"].get("nodeName")]

    def devices(self) -> dict[tuple[str, str], Device]:
        """Every published device by pool and name."""
        found: dict[tuple[str, str], Device] = {}
        for piece in self.kube.items("resourceslices"):
            spec = piece["spec"]
            for device in spec.get("devices") or ():
                attributes = device.get("attributes") or {}
                product = attributes.get("productName", {}).get("string") or spec["driver"]
                kind = attributes.get("type", {}).get("string") or "chip"
                pool = spec["pool"]["name"]
                found[pool, device["name"]] = Device(pool, device["name"], spec["driver"], product, kind)
        return found

    def holders(self) -> dict[tuple[str, str], tuple[str, list[str]]]:
        """Who holds which device: (pool, device) → claim, pods. No device may be held by two claims."""
        held: dict[tuple[str, str], tuple[str, list[str]]] = {}
        for claim in self.kube.items("resourceclaims"):
            status = claim.get("status") or {}
            for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
                key = (result["pool"], result["device"])
                check(key not in held, f"device {key} is held by two claims")
                held[key] = (claim["metadata"]["name"], [r["name"] for r in status.get("reservedFor") or ()])
        return held

    def devices_of(self, pod: Obj) -> list[Device]:
        """What a pod holds."""
        known, name = self.devices(), pod["metadata"]["name"]
        return [known[key] for key, (_, pods) in self.holders().items() if name in pods]

    def note_idle(self, who: str) -> None:
        """Remembers what is idle at this moment while `who` waits."""
        held = self.holders()
        cards = [d for d in self.devices().values() if d.type in ("gpu", "chip")]
        idle = [d for d in cards if (d.pool, d.name) not in held and not self._cut(d, held)]
        counts: dict[str, int] = {}
        for device in idle:
            counts[device.product] = counts.get(device.product, 0) + 1
        text = ", ".join(f"{count} x {product}" for product, count in sorted(counts.items())) or "nothing"
        self.idle_while_waiting.append((who, text))

    @staticmethod
    def _cut(device: Device, held: dict[tuple[str, str], tuple[str, list[str]]]) -> bool:
        return any(pool == device.pool and name.startswith(device.name + "-mig-") for pool, name in held)


def check(condition: Any, what: str) -> None:
    """An assertion that stays with python -O."""
    if not condition:
        raise StepError(what)


def chapter(number: int, title: str) -> None:
    """A heading."""
    print(f"\n== {number}. {title}")


def done(text: str) -> None:
    """A step that was shown."""
    print(f"  ok  {text}")


def gang(story: Story) -> None:
    """Six workers, room for five."""
    chapter(1, "A gang of six, room for five")
    story.kube.apply("10-notebooks.yaml")
    until("three notebooks run", lambda: len(story.running("notebooks")) == 3)
    done("three notebooks hold one H100 each: 5 of 8 are left")
    story.kube.apply("20-training.yaml")
    until("six training pods exist", lambda: len(story.pods("training")) == 6)
    until("the PodGroup says why", lambda: _unschedulable(story))
    time.sleep(1.0)
    check(len(story.bound("training")) == 0, "a member of the gang was bound although the gang does not fit")
    allocated = [c for c in story.holders().values() if c[0].startswith("training")]
    check(not allocated, f"the waiting gang holds devices: {allocated}")
    done("zero of six are bound, and they hold no device")
    story.note_idle("training (6 pods, 1 H100 each)")
    text = story.haru.explain("job/training")
    print(indent(text))
    check("H100" in text or "gpu" in text, "haru explain does not name what is missing")
    story.kube.scale("notebooks", 2)
    until("all six workers run", lambda: len(story.running("training")) == 6)
    cards = [d for pod in story.pods("training") for d in story.devices_of(pod)]
    check(len(cards) == 6 and all(d.product.startswith(H100) for d in cards), f"the workers hold {cards}")
    until("the PodGroup is scheduled", lambda: _group_condition(story, "True"))
    done("a notebook was closed: all six run, each with an H100 of its own")


def _group_condition(story: Story, status: str) -> bool:
    conditions = [
        c
        for group in story.kube.items("podgroups")
        for c in group.get("status", {}).get("conditions") or ()
        if c["type"] == "PodGroupScheduled"
    ]
    return any(c["status"] == status for c in conditions)


def _unschedulable(story: Story) -> bool:
    return _group_condition(story, "False")


def slices_and_sharing(story: Story) -> None:
    """MIG and a shared claim."""
    chapter(2, "A slice of a card for inference; two pods on one card")
    story.kube.apply("30-inference-mig.yaml")
    [pod] = until("the inference pod runs", lambda: story.running("inference-small"))
    [device] = story.devices_of(pod)
    check(device.type == "mig" and "3g40gb" in device.name, f"the pod holds {device}")
    done(f"inference-small runs on {device.name}: a slice, the rest of the card stays usable")
    story.kube.apply("31-inference-shared.yaml")
    until("both chat pods run", lambda: len(story.running("chat-")) == 2)
    cards = {d for pod in story.pods("chat-") for d in story.devices_of(pod)}
    check(len(cards) == 1, f"the chat pods hold {cards}")
    done(f"chat-a and chat-b share {cards.pop().name} through one claim")


def fallback_and_tpu(story: Story) -> None:
    """H100, else A100; a TPU claim."""
    chapter(3, "An H100, else an A100; four TPU chips")
    story.kube.scale("notebooks", 1)
    until("one notebook is left", lambda: len(story.pods("notebooks")) == 1)
    story.kube.apply("40-fallback.yaml")
    until("three servers run", lambda: len(story.running("serving")) == 3)
    products = sorted(d.product for pod in story.pods("serving") for d in story.devices_of(pod))
    h100 = [p for p in products if p.startswith(H100)]
    a100 = [p for p in products if p.startswith(A100)]
    check((len(h100), len(a100)) == (1, 2), f"the servers hold {products}")
    done("one server got the last H100, two fell back to an A100")
    story.kube.apply("50-tpu.yaml")
    [pod] = until("the TPU pod runs", lambda: story.running("jax"))
    chips = story.devices_of(pod)
    check(len(chips) == 4 and len({d.pool for d in chips}) == 1, f"the TPU pod holds {chips}")
    done(f"jax holds {', '.join(sorted(d.name for d in chips))} of {chips[0].pool}")


def maintenance(story: Story) -> None:
    """One card goes out of service and comes back."""
    chapter(4, "One card in maintenance, its neighbours work on")
    story.kube.delete("job", "training")
    until("the workers are gone and their cards free", lambda: not story.pods("training") and _free_h100(story))
    card = _free_h100(story)[-1]
    neighbours = {p["metadata"]["uid"]: p["status"]["startTime"] for p in story.running("")}
    story.kube.annotate("node", card.pool, TAINTS, f"{card.name}=maintenance=true:NoSchedule")
    until("the driver published the taint", lambda: _tainted(story, card))
    story.kube.scale("notebooks", 7)
    until("six notebooks run", lambda: len(story.running("notebooks")) == 6)
    [waiting] = until("one notebook waits", lambda: [p for p in story.pods("notebooks") if _is_rejected(p)])
    held = story.holders()
    check((card.pool, card.name) not in held, "the tainted card was handed out")
    story.note_idle("a notebook (1 H100)")
    name = waiting["metadata"]["name"]
    text = story.haru.explain(f"pod/{name}")
    print(indent(text))
    check("maintenance" in text, "haru explain does not name the taint")
    still = {p["metadata"]["uid"]: p["status"]["startTime"] for p in story.running("")}
    check(neighbours.items() <= still.items(), "a neighbour of the tainted card was disturbed")
    done(f"{card.name} is spared, its neighbours work on, {name} waits for it")
    story.kube.annotate("node", card.pool, TAINTS, None)
    until("the last notebook runs", lambda: len(story.running("notebooks")) == 7)
    held = story.holders()
    check((card.pool, card.name) in held, f"{card.name} is not used again")
    done(f"{card.name} is back and in use by {held[card.pool, card.name][1][0]}")


def _free_h100(story: Story) -> list[Device]:
    held = story.holders()
    cards = [d for d in story.devices().values() if d.product.startswith(H100) and (d.pool, d.name) not in held]
    return sorted(cards, key=lambda d: d.name) if len(cards) == 6 else []


def _tainted(story: Story, card: Device) -> bool:
    for piece in story.kube.items("resourceslices"):
        for device in piece["spec"].get("devices") or ():
            if piece["spec"]["pool"]["name"] == card.pool and device["name"] == card.name:
                return bool(device.get("taints"))
    return False


def _is_rejected(pod: Obj) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


def table(story: Story) -> None:
    """Who holds what, and what was idle while work waited."""
    chapter(5, "Who holds which device, and what was idle while work waited")
    known = story.devices()
    rows = [("NODE", "DEVICE", "PRODUCT", "CLAIM", "PODS")]
    for key, (claim, pods) in sorted(story.holders().items()):
        device = known[key]
        rows.append((device.pool, device.name, device.product, claim, ", ".join(pods)))
    print(indent(_columns(rows)))
    print()
    print(indent(_columns([("WHILE THIS WAITED", "THIS WAS IDLE"), *story.idle_while_waiting])))
    check(len(rows) > 10, "fewer devices are held than the story handed out")


def _columns(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def main() -> int:
    """Tells the story; 0 only if all of it happened."""
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="haru-demo-"))
    haru = Haru(directory, PROFILES)
    status = 1
    try:
        print(haru.ready_line)
        kube = connect(haru.kubeconfig)
        print(f"talking to it with {kube.name}")
        story = Story(haru, kube)
        for step in (gang, slices_and_sharing, fallback_and_tpu, maintenance, table):
            step(story)
        status = 0
    except StepError as error:
        print(f"\nFAILED: {error}\n(log: {haru.log_path})", file=sys.stderr)
    finally:
        stopped = haru.stop()
    check(stopped == 0, f"haru up did not stop cleanly: exit status {stopped}")
    if status == 0:
        shutil.rmtree(directory)
        print(f"\nAll of it happened, in {time.monotonic() - started:.0f} s.")
    return status


if __name__ == "__main__":
    sys.exit(main())
