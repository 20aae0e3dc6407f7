"""A demo on simulated nodes: gang scheduling, MIG partitions, shared claims, alternatives, TPUs, and device taints.

Every step checks the state that the API shows; the exit status is 0 only if all steps succeed.
Run it with `make demo`. The manifests are in the directory of this file.
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
    """A device of a ResourceSlice."""

    pool: str
    name: str
    driver: str
    product: str
    type: str


class Demo:
    """Queries for the state of the cluster; each method reads from the API."""

    def __init__(self, haru: Haru, kube: Kubectl | PythonClient) -> None:
        self.haru, self.kube = haru, kube
        self.idle_while_waiting: list[tuple[str, str]] = []

    def pods(self, prefix: str) -> list[Obj]:
        """Pods whose name begins with `prefix`, sorted by name."""
        found = [p for p in self.kube.items("pods") if p["metadata"]["name"].startswith(prefix)]
        return sorted(found, key=lambda p: p["metadata"]["name"])

    def running(self, prefix: str) -> list[Obj]:
        """Pods with the prefix in phase Running."""
        return [p for p in self.pods(prefix) if p.get("status", {}).get("phase") == "Running"]

    def bound(self, prefix: str) -> list[Obj]:
        """Pods with the prefix that are bound to a node."""
        return [p for p in self.pods(prefix) if p["spec"].get("nodeName")]

    def devices(self) -> dict[tuple[str, str], Device]:
        """All published devices by pool and name."""
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
        """The claim and pods of each allocated device; fails if two claims hold one device."""
        held: dict[tuple[str, str], tuple[str, list[str]]] = {}
        for claim in self.kube.items("resourceclaims"):
            status = claim.get("status") or {}
            for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
                key = (result["pool"], result["device"])
                check(key not in held, f"device {key} is held by two claims")
                held[key] = (claim["metadata"]["name"], [r["name"] for r in status.get("reservedFor") or ()])
        return held

    def devices_of(self, pod: Obj) -> list[Device]:
        """The devices allocated to a pod."""
        known, name = self.devices(), pod["metadata"]["name"]
        return [known[key] for key, (_, pods) in self.holders().items() if name in pods]

    def note_idle(self, who: str) -> None:
        """Records which devices are idle while `who` is pending."""
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
    """Raises StepError unless `condition` is true."""
    if not condition:
        raise StepError(what)


def chapter(number: int, title: str) -> None:
    """Prints a heading."""
    print(f"\n== {number}. {title}")


def done(text: str) -> None:
    """Prints that a step succeeded."""
    print(f"  ok  {text}")


def gang(demo: Demo) -> None:
    """A gang of six workers waits for room, then runs."""
    chapter(1, "A gang of six with room for five")
    demo.kube.apply("10-notebooks.yaml")
    until("three notebooks run", lambda: len(demo.running("notebooks")) == 3)
    done("three notebooks hold one H100 each: 5 of 8 are free")
    demo.kube.apply("20-training.yaml")
    until("six training pods exist", lambda: len(demo.pods("training")) == 6)
    until("the PodGroup reports why", lambda: _unschedulable(demo))
    time.sleep(1.0)
    check(len(demo.bound("training")) == 0, "a member of the gang was bound although the gang does not fit")
    allocated = [c for c in demo.holders().values() if c[0].startswith("training")]
    check(not allocated, f"the waiting gang holds devices: {allocated}")
    done("none of the six pods is bound, and none holds a device")
    demo.note_idle("training (6 pods, 1 H100 each)")
    text = demo.haru.explain("job/training")
    print(indent(text))
    check("H100" in text or "gpu" in text, "haru explain does not name what is missing")
    demo.kube.scale("notebooks", 2)
    until("all six workers run", lambda: len(demo.running("training")) == 6)
    cards = [d for pod in demo.pods("training") for d in demo.devices_of(pod)]
    check(len(cards) == 6 and all(d.product.startswith(H100) for d in cards), f"the workers hold {cards}")
    until("the PodGroup is scheduled", lambda: _group_condition(demo, "True"))
    done("one notebook was deleted: all six workers run with one H100 each")


def _group_condition(demo: Demo, status: str) -> bool:
    conditions = [
        c
        for group in demo.kube.items("podgroups")
        for c in group.get("status", {}).get("conditions") or ()
        if c["type"] == "PodGroupScheduled"
    ]
    return any(c["status"] == status for c in conditions)


def _unschedulable(demo: Demo) -> bool:
    return _group_condition(demo, "False")


def partitions_and_sharing(demo: Demo) -> None:
    """A MIG partition, and a claim shared by two pods."""
    chapter(2, "A MIG partition for inference, and two pods that share a GPU")
    demo.kube.apply("30-inference-mig.yaml")
    [pod] = until("the inference pod runs", lambda: demo.running("inference-small"))
    [device] = demo.devices_of(pod)
    check(device.type == "mig" and "3g40gb" in device.name, f"the pod holds {device}")
    done(f"inference-small runs on {device.name}: the rest of the GPU stays available")
    demo.kube.apply("31-inference-shared.yaml")
    until("both chat pods run", lambda: len(demo.running("chat-")) == 2)
    cards = {d for pod in demo.pods("chat-") for d in demo.devices_of(pod)}
    check(len(cards) == 1, f"the chat pods hold {cards}")
    done(f"chat-a and chat-b share {cards.pop().name} through one ResourceClaim")


def fallback_and_tpu(demo: Demo) -> None:
    """A request with alternatives, and a claim for TPU chips."""
    chapter(3, "An H100 or else an A100, and four TPU chips")
    demo.kube.scale("notebooks", 1)
    until("one notebook is left", lambda: len(demo.pods("notebooks")) == 1)
    demo.kube.apply("40-fallback.yaml")
    until("three servers run", lambda: len(demo.running("serving")) == 3)
    products = sorted(d.product for pod in demo.pods("serving") for d in demo.devices_of(pod))
    h100 = [p for p in products if p.startswith(H100)]
    a100 = [p for p in products if p.startswith(A100)]
    check((len(h100), len(a100)) == (1, 2), f"the servers hold {products}")
    done("one server got the last H100, two got an A100 instead")
    demo.kube.apply("50-tpu.yaml")
    [pod] = until("the TPU pod runs", lambda: demo.running("jax"))
    chips = demo.devices_of(pod)
    check(len(chips) == 4 and len({d.pool for d in chips}) == 1, f"the TPU pod holds {chips}")
    done(f"jax holds {', '.join(sorted(d.name for d in chips))} of {chips[0].pool}")


def maintenance(demo: Demo) -> None:
    """A taint takes one GPU out of service; its removal returns the GPU."""
    chapter(4, "Maintenance of one GPU while the others stay in use")
    demo.kube.delete("job", "training")
    until("the workers are deleted and their GPUs are free", lambda: not demo.pods("training") and _free_h100(demo))
    card = _free_h100(demo)[-1]
    neighbours = {p["metadata"]["uid"]: p["status"]["startTime"] for p in demo.running("")}
    demo.kube.annotate("node", card.pool, TAINTS, f"{card.name}=maintenance=true:NoSchedule")
    until("the driver published the taint", lambda: _tainted(demo, card))
    demo.kube.scale("notebooks", 7)
    until("six notebooks run", lambda: len(demo.running("notebooks")) == 6)
    [waiting] = until("one notebook waits", lambda: [p for p in demo.pods("notebooks") if _is_rejected(p)])
    held = demo.holders()
    check((card.pool, card.name) not in held, "the tainted GPU was allocated")
    demo.note_idle("a notebook (1 H100)")
    name = waiting["metadata"]["name"]
    text = demo.haru.explain(f"pod/{name}")
    print(indent(text))
    check("maintenance" in text, "haru explain does not name the taint")
    still = {p["metadata"]["uid"]: p["status"]["startTime"] for p in demo.running("")}
    check(neighbours.items() <= still.items(), "a pod on another GPU was restarted")
    done(f"{card.name} is not allocated, pods on other GPUs keep running, {name} is pending")
    demo.kube.annotate("node", card.pool, TAINTS, None)
    until("the last notebook runs", lambda: len(demo.running("notebooks")) == 7)
    held = demo.holders()
    check((card.pool, card.name) in held, f"{card.name} is not allocated again")
    done(f"{card.name} is allocated again, to {held[card.pool, card.name][1][0]}")


def _free_h100(demo: Demo) -> list[Device]:
    held = demo.holders()
    cards = [d for d in demo.devices().values() if d.product.startswith(H100) and (d.pool, d.name) not in held]
    return sorted(cards, key=lambda d: d.name) if len(cards) == 6 else []


def _tainted(demo: Demo, card: Device) -> bool:
    for piece in demo.kube.items("resourceslices"):
        for device in piece["spec"].get("devices") or ():
            if piece["spec"]["pool"]["name"] == card.pool and device["name"] == card.name:
                return bool(device.get("taints"))
    return False


def _is_rejected(pod: Obj) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


def table(demo: Demo) -> None:
    """Prints all allocated devices, and the devices that were idle while pods were pending."""
    chapter(5, "Allocated devices, and idle devices while pods were pending")
    known = demo.devices()
    rows = [("NODE", "DEVICE", "PRODUCT", "CLAIM", "PODS")]
    for key, (claim, pods) in sorted(demo.holders().items()):
        device = known[key]
        rows.append((device.pool, device.name, device.product, claim, ", ".join(pods)))
    print(indent(_columns(rows)))
    print()
    print(indent(_columns([("PENDING", "IDLE MEANWHILE"), *demo.idle_while_waiting])))
    check(len(rows) > 10, "fewer devices are allocated than the demo requested")


def _columns(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def main() -> int:
    """Runs all steps; returns 0 if all succeed."""
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="haru-demo-"))
    haru = Haru(directory, PROFILES)
    status = 1
    try:
        print(haru.ready_line)
        kube = connect(haru.kubeconfig)
        print(f"using {kube.name}")
        demo = Demo(haru, kube)
        for step in (gang, partitions_and_sharing, fallback_and_tpu, maintenance, table):
            step(demo)
        status = 0
    except StepError as error:
        print(f"\nFAILED: {error}\n(log: {haru.log_path})", file=sys.stderr)
    finally:
        stopped = haru.stop()
    check(stopped == 0, f"haru up did not stop cleanly: exit status {stopped}")
    if status == 0:
        shutil.rmtree(directory)
        print(f"\nAll steps succeeded, in {time.monotonic() - started:.0f} s.")
    return status


if __name__ == "__main__":
    sys.exit(main())
