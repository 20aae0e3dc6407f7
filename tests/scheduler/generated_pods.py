"""Random parts of pods: containers of every kind, in-place resizes, spread constraints and inter-pod terms.

All that is made passes the validation of an API server, so that it can be shown to a real scheduler as well.
"""

from __future__ import annotations

from random import Random
from typing import Any

Obj = dict[str, Any]
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REVISION = "revision"


class GeneratedPods:
    """Makes one part at a time from a random source."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def labels(self) -> Obj:
        labels = {"app": self.app()}
        if self.chance(2):
            labels[REVISION] = self.random.choice(("1", "2"))
        return labels

    def app(self) -> str:
        return self.random.choice(("x", "y"))

    def key(self) -> str:
        return self.random.choice((ZONE, HOSTNAME))

    # -- what containers ask for

    def containers(self, cpu: int) -> Obj:
        """Members of a spec that ask for so much in one container, or now and then in a more complicated way."""
        made: Obj = {"containers": [self._container("c", cpu)]}
        if not self.chance(3):
            return made
        if self.chance(2):
            made["containers"].append(self._container("d"))
        if self.chance(2):
            made["initContainers"] = [self._container(f"i{number}") for number in range(self.random.randrange(1, 4))]
            for container in made["initContainers"]:
                if self.chance(2):
                    container["restartPolicy"] = "Always"
        if self.chance(4):
            # No less than what the containers ask for.
            made["resources"] = {"requests": {"cpu": str(self._sum(made) + self.random.randrange(2))}}
        if self.chance(4):
            made["overhead"] = {"cpu": self.random.choice(("1", "500m"))}
        return made

    def _container(self, name: str, cpu: int | None = None) -> Obj:
        amount = self.random.randrange(3) if cpu is None else cpu
        return {"name": name, "resources": {"requests": {"cpu": str(amount)}}}

    @staticmethod
    def _sum(spec: Obj) -> int:
        every = [*spec["containers"], *spec.get("initContainers", ())]
        return sum(int(one["resources"]["requests"]["cpu"]) for one in every)

    def resize(self, pod: Obj) -> tuple[Obj, Obj]:
        """The spec and the status of a pod one of whose containers is asked to be, or is being resized."""
        spec, status = dict(pod["spec"]), dict(pod["status"])
        name = self.random.choice(spec["containers"])["name"]
        if "resources" not in spec and self.chance(2):
            spec["containers"] = [
                {**one, "resources": self._sizes()} if one["name"] == name else one for one in spec["containers"]
            ]
        else:
            told = {"name": name, "resources": self._sizes()}
            if self.chance(2):
                told["allocatedResources"] = self._sizes()["requests"]
            status["containerStatuses"] = [told]
        others = [one for one in status.get("conditions") or () if one["type"] != "PodResizePending"]
        if self.chance(2):
            reason = self.random.choice(("Infeasible", "Deferred"))
            others.append({"type": "PodResizePending", "status": "True", "reason": reason})
        return spec, {**status, "conditions": others}

    def _sizes(self) -> Obj:
        return {"requests": {"cpu": str(self.random.randrange(4))}}

    # -- rules between pods

    def spread(self) -> list[Obj]:
        keys = [self.key()] if not self.chance(3) else [ZONE, HOSTNAME]
        return [self._constraint(key) for key in keys]

    def _constraint(self, key: str) -> Obj:
        made: Obj = {
            "maxSkew": self.random.choice((1, 1, 2)),
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway" if self.chance(8) else "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": self.app()}},
        }
        if self.chance(2):
            made["nodeTaintsPolicy"] = self.random.choice(("Honor", "Ignore"))
        if self.chance(4):
            made["nodeAffinityPolicy"] = self.random.choice(("Honor", "Ignore"))
        if self.chance(4) and made["whenUnsatisfiable"] == "DoNotSchedule":
            made["minDomains"] = self.random.randrange(1, 4)
        if self.chance(4):
            made["matchLabelKeys"] = [REVISION]
        return made

    def term(self) -> Obj:
        term: Obj = {"topologyKey": self.key(), "labelSelector": {"matchLabels": {"app": self.app()}}}
        if self.chance(4):
            term["namespaceSelector"] = {"matchLabels": {"team": "a"}} if not self.chance(4) else {}
        if self.chance(6):
            term["namespaces"] = self.random.choice((["other"], ["other", "default"]))
        return term
