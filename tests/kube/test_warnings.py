"""What clients are warned of: the words of 1.36 for what is accepted and yet doubtful."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.kinds import known_kind
from haru.kube.warnings import warnings_on_create, warnings_on_update
from haru.kube.warnings.pods import pod_warnings

Obj = dict[str, Any]

REQUIRED, PREFERRED = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))
HIDES = 'hides previous definition of "A", which may be dropped when using apply'


def env(*variables: Obj) -> Obj:
    return {"containers": [{"name": "a", "env": list(variables)}]}


def ports(*listed: Obj) -> Obj:
    return {"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP", **p} for p in listed]}]}


def configured(*paths: str) -> Obj:
    items = [{"key": str(number), "path": path} for number, path in enumerate(paths)]
    return {"volumes": [{"name": "v", "configMap": {"name": "m", "items": items}}]}


def projected(*sources: Obj) -> Obj:
    return {"volumes": [{"name": "v", "projected": {"sources": list(sources)}}]}


SPECS: list[tuple[str, Obj, list[str]]] = [
    ("nothing odd", {"containers": [{"name": "a", "resources": {"limits": {"memory": "1.5Gi", "cpu": "1m"}}}]}, []),
    (
        "labels of nodes",
        {"nodeSelector": {"beta.kubernetes.io/os": "linux", "zone": "a"}},
        ['spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'],
    ),
    (
        "labels in affinity",
        {
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "app.kubernetes.io/created-by"}]}],
                    },
                    PREFERRED: [
                        {"preference": {"matchExpressions": [{"key": "x"}, {"key": "beta.kubernetes.io/arch"}]}}
                    ],
                }
            }
        },
        [
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].key: "
            "app.kubernetes.io/created-by is deprecated since v1.9",
            f"spec.affinity.nodeAffinity.{PREFERRED}[0].preference.matchExpressions[1].key: "
            'beta.kubernetes.io/arch is deprecated since v1.14; use "kubernetes.io/arch" instead',
        ],
    ),
    (
        "selectors that match nothing",
        {
            "topologySpreadConstraints": [{"topologyKey": "failure-domain.beta.kubernetes.io/zone"}],
            "affinity": {
                "podAffinity": {REQUIRED: [{"topologyKey": "a"}, {"labelSelector": {}}]},
                "podAntiAffinity": {PREFERRED: [{"podAffinityTerm": {"topologyKey": "a"}}]},
            },
        },
        [
            "spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since "
            'v1.17; use "topology.kubernetes.io/zone" instead',
            "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
            f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector: a null labelSelector results in matching no pod",
            f"spec.affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.labelSelector: a null labelSelector results "
            "in matching no pod",
        ],
    ),
    (
        "volumes of old",
        {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "gitRepo": {}}, {"name": "c", "storageos": {}}]},
        [
            "spec.volumes[1].gitRepo: deprecated in v1.11",
            "spec.volumes[2].storageOS: deprecated in v1.22, non-functional in v1.25+",
        ],
    ),
    (
        "fractions of bytes",
        {
            "overhead": {"memory": "0.5"},
            "containers": [
                {"name": "a", "resources": {"limits": {"memory": "100m"}, "requests": {"ephemeral-storage": "1500m"}}}
            ],
            "volumes": [
                {
                    "name": "v",
                    "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "0.1"}}}}},
                }
            ],
        },
        [
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value "
            '"100m" is invalid, must be an integer',
            'spec.overhead[memory]: fractional byte value "500m" is invalid, must be an integer',
            'spec.containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be an integer',
            'spec.containers[0].resources.requests[ephemeral-storage]: fractional byte value "1500m" is invalid, must '
            "be an integer",
        ],
    ),
    ("a variable that adds to itself", env({"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}), []),
    (
        "a variable twice",
        env({"name": "A"}, {"name": "A", "value": "2"}, {"name": "A", "value": "$(A)"}, {"name": "A", "valueFrom": {}}),
        [f"spec.containers[0].env[{number}]: {HIDES}" for number in (1, 2, 3)],
    ),
    (
        "ports",
        ports({}, {"name": "x"}, {"hostPort": 1}, {"hostPort": 1, "hostIP": "1.2.3.4"}, {"hostIP": "::1"}),
        [
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            *(
                f"spec.containers[0].ports[{one}]: overlapping port definition with spec.containers[0].ports[{other}]"
                for one, other in ((2, 0), (2, 1), (3, 0), (3, 1))
            ),
            "spec.containers[0].ports[3]: dangerously ambiguous port definition with spec.containers[0].ports[2]",
            "spec.containers[0].ports[4]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP "
            "HostIP:::1}",
            *(
                f"spec.containers[0].ports[4]: overlapping port definition with spec.containers[0].ports[{other}]"
                for other in (0, 1, 2, 3)
            ),
        ],
    ),
    ("the same port by another protocol", ports({}, {"protocol": "UDP"}), []),
    (
        "repeated names",
        {"hostAliases": [{"ip": "::1"}, {"ip": "::1"}], "imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]},
        [
            'spec.hostAliases[1].ip: duplicate ip "::1"',
            'spec.imagePullSecrets[1].name: duplicate name "a"',
            'spec.imagePullSecrets[2].name: invalid empty name ""',
        ],
    ),
    (
        "a negative period",
        {"terminationGracePeriodSeconds": -1},
        [
            "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
        ],
    ),
    ("files beside each other", configured("a/b", "a/bc", "c"), []),
    (
        "a file below another",
        configured("a", "a/b", "a/"),
        [
            'volume "v" (ConfigMap "m"): overlapping paths: "a/b" with "a"',
            'volume "v" (ConfigMap "m"): overlapping paths: "a" with "a"',
        ],
    ),
    (
        "sources of one volume",
        projected(
            {"serviceAccountToken": {"path": "token"}},
            {},
            {"secret": {"name": "s", "items": [{"key": "a", "path": "token"}]}},
            {"downwardAPI": {"items": [{"path": "labels"}]}},
        ),
        [
            'volume "v" (Projected) has no sources provided',
            'volume "v" (Projected Secret "s"): overlapping paths: "token" with "token"',
        ],
    ),
]


@pytest.mark.parametrize(("spec", "said"), [row[1:] for row in SPECS], ids=[row[0] for row in SPECS])
def test_pod_fields_give_warnings(spec: Obj, said: list[str]) -> None:
    assert list(pod_warnings({"metadata": {}, "spec": spec})) == said


@pytest.mark.parametrize(
    ("key", "security", "own", "template", "said"),
    [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            {},
            {},
            "",
            'non-functional in v1.16+; use the "priorityClassName"',
        ),
        ("seccomp.security.alpha.kubernetes.io/pod", {}, {}, "", 'non-functional in v1.27+; use the "seccompProfile"'),
        ("seccomp.security.alpha.kubernetes.io/pod", {"seccompProfile": {"type": "Localhost"}}, {}, "", ""),
        ("container.seccomp.security.alpha.kubernetes.io/a", {}, {}, "", "non-functional in v1.27+"),
        ("container.seccomp.security.alpha.kubernetes.io/a", {}, {"seccompProfile": {"type": "x"}}, "", ""),
        ("container.apparmor.security.beta.kubernetes.io/a", {}, {}, "", ""),
        ("container.apparmor.security.beta.kubernetes.io/a", {}, {}, "spec.template", "deprecated since v1.30"),
        (
            "container.apparmor.security.beta.kubernetes.io/a",
            {"appArmorProfile": {"type": "x"}},
            {},
            "spec.template",
            "deprecated since v1.30",  # the annotation says another profile than the pod
        ),
    ],
)
def test_legacy_annotations_give_warnings(key: str, security: Obj, own: Obj, template: str, said: str) -> None:
    spec = {"securityContext": security, "containers": [{"name": "a", "securityContext": own}]}
    found = list(pod_warnings({"metadata": {"annotations": {key: "x"}}, "spec": spec}, template))
    assert [text.split(": ", 1)[0] for text in found] == [f"{template}.metadata.annotations[{key}]".lstrip(".")] * len(
        found
    )
    assert [bool(said)] == [bool(found)] and all(said in text for text in found)


ODD = {"terminationGracePeriodSeconds": -1}
TEMPLATE = {"spec": ODD}
DOTS = "which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"


@pytest.mark.parametrize(
    ("group_version", "kind", "body", "path", "named"),
    [
        ("v1", "Pod", {"spec": ODD}, "spec", "the Pod's hostname"),
        ("v1", "PodTemplate", {"template": TEMPLATE}, "template.spec", ""),
        (
            "v1",
            "ReplicationController",
            {"spec": {"template": TEMPLATE}},
            "spec.template.spec",
            "Pod names and hostnames",
        ),
        ("apps/v1", "Deployment", {"spec": {"template": TEMPLATE}}, "spec.template.spec", "Pod names and hostnames"),
        ("apps/v1", "ReplicaSet", {"spec": {"template": TEMPLATE}}, "spec.template.spec", "Pod names and hostnames"),
        ("apps/v1", "DaemonSet", {"spec": {"template": TEMPLATE}}, "spec.template.spec", ""),
        ("apps/v1", "StatefulSet", {"spec": {"template": TEMPLATE}}, "spec.template.spec", ""),
        ("batch/v1", "Job", {"spec": {"template": TEMPLATE}}, "spec.template.spec", "Pod names and hostnames"),
        (
            "batch/v1",
            "CronJob",
            {"spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}},
            "spec.jobTemplate.spec.template.spec",
            "Pod names and hostnames",
        ),
    ],
)
def test_kinds_with_pod_templates_give_pod_warnings(
    group_version: str, kind: str, body: Obj, path: str, named: str
) -> None:
    """All are looked at when they are made; pods only then, the others when their spec changes."""
    found, obj = known_kind(group_version, kind), {"metadata": {"name": "a.b", "generation": 2}, **body}
    first, *rest = warnings_on_create(obj, found)
    if named:
        assert first == f"metadata.name: this is used in {named}, {DOTS}"
        (first,) = rest
    said = f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
    assert first == said
    unchanged, older = (
        warnings_on_update(obj, {"metadata": {"name": "a.b", "generation": number}}, found) for number in (2, 1)
    )
    assert unchanged == []
    assert older == ([] if kind == "Pod" else [said])


@pytest.mark.parametrize(
    ("group_version", "kind", "body", "said"),
    [
        (
            "apps/v1",
            "StatefulSet",
            {"revisionHistoryLimit": -2},
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended",
        ),
        (
            "apps/v1",
            "StatefulSet",
            {"volumeClaimTemplates": [{"spec": {"resources": {"requests": {"storage": "1500m"}}}}]},
            'spec.volumeClaimTemplates[0].resources.requests[storage]: fractional byte value "1500m" is invalid, must '
            "be an integer",
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            {"resources": {"limits": {"storage": "0.5"}}},
            'spec.resources.limits[storage]: fractional byte value "500m" is invalid, must be an integer',
        ),
        (
            "batch/v1",
            "Job",
            {"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001},
            "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
            "Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
        ),
    ],
)
def test_fields_of_other_kinds_give_warnings(group_version: str, kind: str, body: Obj, said: str) -> None:
    obj = {"metadata": {"name": "a"}, "spec": body}
    assert warnings_on_create(obj, known_kind(group_version, kind)) == [said]
    assert warnings_on_update(obj, {"metadata": {"name": "a"}}, known_kind(group_version, kind)) == [said]


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({"format": "date-time", "type": "string"}, []),
        ({"format": "int32", "type": "integer"}, []),
        ({"format": "int32", "type": "string"}, ["int32"]),
        ({"format": "uri", "type": "object"}, ["uri"]),
        ({"x-kubernetes-int-or-string": True, "format": "odd"}, ["odd"]),
        ({"items": {"format": "odd", "type": "number"}, "allOf": [{"format": "even"}]}, ["even", "odd"]),
    ],
)
def test_unknown_formats_of_a_definition_give_warnings_when_they_are_new(schema: Obj, names: list[str]) -> None:
    kind = known_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    version = {"schema": {"openAPIV3Schema": {"properties": {"a": schema}}}}
    obj = {"metadata": {"name": "a"}, "spec": {"versions": [version]}}
    said = [f'unrecognized format "{name}"' for name in names]
    assert sorted(warnings_on_create(obj, kind)) == said
    assert sorted(warnings_on_update(obj, {"metadata": {}, "spec": {}}, kind)) == said
    assert warnings_on_update(obj, obj, kind) == []


def test_capitals_in_the_driver_of_a_slice_give_a_warning() -> None:
    kind = known_kind("resource.k8s.io/v1", "ResourceSlice")
    obj = {"metadata": {"name": "a", "generation": 1}, "spec": {"driver": "D.example.com"}}
    said = ['spec.driver: driver names should be lowercase; "D.example.com" contains uppercase characters']
    assert warnings_on_create(obj, kind) == warnings_on_update(obj, obj, kind) == said


@pytest.mark.parametrize(
    "spec",
    [
        configured("/".join("a" * 200_000), *(f"d/{number}" for number in range(20_000))),
        ports(*({"hostPort": 1, "hostIP": f"10.0.{n // 256}.{n % 256}"} for n in range(20_000))),
        ports(*({} for _ in range(20_000))),
        env(*({"name": "A"} for _ in range(20_000))),
    ],
    ids=["paths", "addresses", "ports", "variables"],
)
def test_warnings_take_linear_time(spec: Obj) -> None:
    """As much as fits into a request; walked in pairs each of these would take minutes."""
    assert len(warnings_on_create({"metadata": {"name": "a"}, "spec": spec}, known_kind("v1", "Pod"))) <= 1000


def test_runtime_class_node_selector_gives_warning() -> None:
    obj = {"metadata": {"name": "r"}, "scheduling": {"nodeSelector": {"node-role.kubernetes.io/master": ""}}}
    assert warnings_on_create(obj, known_kind("node.k8s.io/v1", "RuntimeClass")) == [
        'scheduling.nodeSelector: use "node-role.kubernetes.io/control-plane" instead'
    ]
