"""Training jobs of Kubeflow: PyTorchJob, TFJob and their siblings (v1), and MPIJob (v2beta1, v1).

All replicas of a job are one gang, or `runPolicy.schedulingPolicy.minAvailable` of them. The launcher of an MPIJob that
waits for its workers (`launcherCreationPolicy: WaitForWorkersReady`) is scheduled alone. TrainJobs of Trainer v2 make
JobSets.
Source: kubeflow/training-operator v1.9 (pkg/apis/kubeflow.org/v1, pkg/controller.v1/common/job.go) and
kubeflow/mpi-operator v0.8 (pkg/apis/kubeflow/v2beta1, pkg/controller/podgroup.go), as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from haru.gangs.gang import ForeignKind, Gang, Source, label, number, part
from haru.kube.meta import Obj

_GROUP = "kubeflow.org"
MPI_JOB = ForeignKind(_GROUP, ("v2beta1", "v1"), "MPIJob", "mpijobs")
REPLICA_SPECS: Mapping[str, str] = MappingProxyType(
    {
        "PyTorchJob": "pytorchReplicaSpecs",
        "TFJob": "tfReplicaSpecs",
        "XGBoostJob": "xgbReplicaSpecs",
        "PaddleJob": "paddleReplicaSpecs",
        "JAXJob": "jaxReplicaSpecs",
        "MPIJob": "mpiReplicaSpecs",
    }
)
"""The field of each kind's spec that has its replicas by role."""
JOBS = tuple(ForeignKind(_GROUP, ("v1",), kind, f"{kind.lower()}s") for kind in REPLICA_SPECS if kind != MPI_JOB.kind)
JOB_LABEL = "training.kubeflow.org/job-name"
OPERATOR_LABEL = "training.kubeflow.org/operator-name"
ROLE_LABEL = "training.kubeflow.org/job-role"


class Kubeflow:
    """The jobs of the training operator; its label says of which kind a pod's job is."""

    name = "kubeflow"
    kinds = JOBS
    _of = MappingProxyType({f"{kind.kind.lower()}-controller": kind for kind in JOBS})

    def source_of(self, pod: Obj) -> Source | None:
        """Return the job that the labels name."""
        name, kind = label(pod, JOB_LABEL), self._of.get(label(pod, OPERATOR_LABEL))
        return Source(kind, name) if name and kind is not None else None

    def gang_of(self, pod: Obj, obj: Obj | None) -> Gang | None:
        """Return the gang of a training job."""
        source = self.source_of(pod)
        return _gang(source.kind, pod, obj, replicas(obj)) if source is not None and source.kind is not None else None


class MPI:
    """MPIJobs of the MPI operator and of the training operator."""

    name = "mpijob"
    kinds = (MPI_JOB,)
    _operators = ("mpi-operator", "mpijob-controller")

    def source_of(self, pod: Obj) -> Source | None:
        """Return the MPIJob that the labels name."""
        name = label(pod, JOB_LABEL)
        return Source(MPI_JOB, name) if name and label(pod, OPERATOR_LABEL) in self._operators else None

    def gang_of(self, pod: Obj, obj: Obj | None) -> Gang | None:
        """Return the gang of an MPIJob: its launcher and its workers."""
        count = replicas(obj)
        if part(obj, "spec", "launcherCreationPolicy") == "WaitForWorkersReady":
            if label(pod, ROLE_LABEL) == "launcher":
                return None
            count -= number(part(obj, "spec", "mpiReplicaSpecs", "Launcher", "replicas"), 1)
        return _gang(MPI_JOB, pod, obj, count)


def replicas(obj: Obj | None) -> int:
    """Return how many pods the replicas of all roles are."""
    kind = str((obj or {}).get("kind")).partition(".")[0]
    specs = part(obj, "spec", REPLICA_SPECS.get(kind, "")) or {}
    return sum(number(role.get("replicas"), 1) for role in specs.values() if isinstance(role, Mapping))


def _gang(kind: ForeignKind, pod: Obj, obj: Obj | None, count: int) -> Gang | None:
    policy = part(obj, "spec", "runPolicy", "schedulingPolicy") or {}
    needed = min(count, number(policy.get("minAvailable"), count))
    timeout = number(policy.get("scheduleTimeoutSeconds")) or None
    return Gang(kind.prefix + label(pod, JOB_LABEL), needed, timeout) if needed > 1 else None
