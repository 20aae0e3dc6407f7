"""Random devices, classes, taint rules and claims of a small cluster: every feature of the claims of 1.36.

All that is made passes the validation of an API server, so that it can be shown to a real scheduler as well.
"""

from __future__ import annotations

from random import Random
from typing import Any

Obj = dict[str, Any]
DRIVER = "gpu.example.com"
API = "resource.k8s.io/v1"
ZONE = "topology.kubernetes.io/zone"
NET = "net"
"""The pool whose devices are no part of one node."""
EXTENDED, IMPLICIT = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"
MODEL_A = f'device.attributes["{DRIVER}"].?model.orValue("") == "a"'
SELECTORS = (
    MODEL_A,
    f'device.attributes["{DRIVER}"].model == "b"',  # an error where there is no model
    f'device.capacity["{DRIVER}"].?memory.orValue(quantity("0")).compareTo(quantity("4")) >= 0',
    "device.allowMultipleAllocations == true",
    f'device.driver == "{DRIVER}"',
)
TOLERATIONS: tuple[Obj, ...] = (
    {"operator": "Exists"},
    {"key": "broken", "operator": "Exists"},
    {"key": "broken", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "rule", "operator": "Equal", "value": "x", "effect": "NoExecute"},
)


class GeneratedDevices:
    """Makes one object at a time from a random source."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    # -- what is published

    def pool(self, name: str, generation: int) -> list[Obj]:
        """All slices of a pool; they do not come at once."""
        kind = self.random.choice(("plain", "plain", "plain", "shared", "parts", "parts", "mixed", "none"))
        devices = self._devices(kind)
        counters = [{"name": "card", "counters": {"memory": {"value": "4"}, "engines": {"value": "3"}}}]
        each = [devices[:1], devices[1:]] if len(devices) > 1 and self.chance(3) else [devices]
        specs: list[Obj] = [{"devices": some} for some in each]
        if any("consumesCounters" in device for device in devices):
            specs.insert(self.random.randrange(len(specs) + 1), {"sharedCounters": counters})
        where = self._where(name)
        if "perDeviceNodeSelection" in where:
            for device in devices:
                device.update(self._place())
        shared = {"driver": DRIVER, "pool": {"name": name, "generation": generation, "resourceSliceCount": len(specs)}}
        suffix = f"g{generation}-" if self.chance(3) else ""
        return [
            {
                "apiVersion": API,
                "kind": "ResourceSlice",
                "metadata": {"name": f"{name}-{suffix}{number}"},
                "spec": {**shared, **where, **spec},
            }
            for number, spec in enumerate(specs)
        ]

    def _where(self, pool: str) -> Obj:
        if pool != NET:
            return {"nodeName": pool}
        return {"perDeviceNodeSelection": True} if self.chance(3) else self._selection()

    def _place(self) -> Obj:
        return {"nodeName": self.random.choice(("n0", "n1"))} if self.chance(2) else self._selection()

    def _selection(self) -> Obj:
        if self.chance(3):
            return {"allNodes": True}
        zone = {"key": ZONE, "operator": self.random.choice(("In", "NotIn")), "values": ["z0"]}
        return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}

    def _devices(self, kind: str) -> list[Obj]:
        if kind == "none":
            return []
        made = []
        for number in range(self.random.randrange(1, 5)):
            device: Obj = {"name": f"d{number}", **self.looks()}
            if kind == "shared" or (kind == "mixed" and number == 0):
                device |= {"allowMultipleAllocations": True, "capacity": {"memory": self._capacity()}}
            elif kind in ("parts", "mixed"):
                amounts = {"memory": {"value": str(self.random.choice((1, 2, 2, 4)))}}
                if self.chance(2):
                    amounts["engines"] = {"value": str(self.random.randrange(1, 3))}
                device["consumesCounters"] = [{"counterSet": "card", "counters": amounts}]
            made.append(device)
        return made

    def looks(self, shared: bool = False) -> Obj:
        """What a driver says of a device; of one that is shared the capacity stays."""
        looks: Obj = {"attributes": {}}
        if not self.chance(6):
            looks["attributes"]["model"] = {"string": self.random.choice("aab")}
        if not self.chance(8):
            looks["attributes"]["numa"] = {"int": self.random.randrange(2)}
        if self.chance(2) and not shared:
            looks["capacity"] = {"memory": {"value": self.random.choice(("2", "4"))}}
        if self.chance(8):
            effect = self.random.choice(("NoSchedule", "NoExecute", "None"))
            looks["taints"] = [{"key": "broken", "effect": effect}]
        if self.chance(8):
            looks |= {"bindsToNode": self.chance(2), "bindingConditions": ["ready"]}
            looks["bindingFailureConditions"] = ["failed"]
        return looks

    def _capacity(self) -> Obj:
        policy: Obj = self.random.choice(
            (
                {},
                {"requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "3", "step": "1"}}},
                {"requestPolicy": {"default": "2", "validValues": ["2", "4"]}},
                {"requestPolicy": {"default": "1"}},
            )
        )
        return {"value": "4", **policy}

    def device_class(self, name: str) -> Obj:
        selectors = {"gpu": [[], [], [self.random.choice(SELECTORS)]], "big": [[MODEL_A]]}[name]
        spec: Obj = {"selectors": [{"cel": {"expression": text}} for text in self.random.choice(selectors)]}
        if name == "gpu" and self.chance(2):
            spec["extendedResourceName"] = EXTENDED
        return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}

    def taint_rule(self) -> Obj:
        selector: Obj = self.random.choice(({"driver": DRIVER}, {"pool": "n0"}, {"driver": DRIVER, "device": "d0"}))
        taint = {"key": "rule", "value": "x", "effect": self.random.choice(("NoSchedule", "NoExecute", "None"))}
        return {
            "apiVersion": "resource.k8s.io/v1beta2",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "rule"},
            "spec": {"deviceSelector": selector, "taint": taint},
        }

    # -- what is asked for

    def claim_spec(self) -> Obj:
        """The spec of a ResourceClaim."""
        requests = [self._request(f"r{number}") for number in range(self.random.choice((1, 1, 1, 2)))]
        devices: Obj = {"requests": requests}
        every = any(one.get("exactly", {}).get("allocationMode") == "All" for one in requests)
        if self.chance(4) and not every:
            kind = self.random.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
            devices["constraints"] = [{kind: f"{DRIVER}/{self.random.choice(('numa', 'model'))}"}]
            if self.chance(3):
                devices["constraints"][0]["requests"] = [self.random.choice(requests)["name"]]
        return {"devices": devices}

    def _request(self, name: str) -> Obj:
        if self.chance(4):
            listed = [{"name": f"s{number}", **self._ask()} for number in range(self.random.randrange(2, 4))]
            return {"name": name, "firstAvailable": listed}
        asked = self._ask()
        if self.chance(8):
            asked["adminAccess"] = True
        return {"name": name, "exactly": asked}

    def _ask(self) -> Obj:
        asked: Obj = {"deviceClassName": self.random.choice(("gpu", "gpu", "big"))}
        if self.chance(16):
            asked["allocationMode"] = "All"
        else:
            asked |= {"allocationMode": "ExactCount", "count": self.random.choice((1, 1, 1, 2))}
        if self.chance(5):
            asked["selectors"] = [{"cel": {"expression": self.random.choice(SELECTORS)}}]
        if self.chance(3):
            asked["tolerations"] = [dict(self.random.choice(TOLERATIONS))]
        if self.chance(6):
            asked["capacity"] = {"requests": {"memory": self.random.choice(("1", "2", "3"))}}
        return asked
