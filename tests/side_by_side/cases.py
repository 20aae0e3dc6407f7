"""The side-by-side cases: what a scheduler does with each is compared with kube-scheduler's outcome."""

from __future__ import annotations

from typing import Any

from manifests import (
    DRIVER,
    GROUP,
    HOST,
    SET,
    ZONE,
    Case,
    Delete,
    case,
    claim,
    claim_template,
    device,
    device_class,
    devices,
    exactly,
    expression,
    gang,
    job,
    mounted,
    node,
    nodes,
    pod,
    pod_affinity,
    pod_term,
    pods,
    priority,
    replicated,
    require,
    slice_of,
    some,
    spread,
    storage_class,
    taint,
    template,
    volume,
    volume_claim,
)


def zones(cpu: int = 4, count: int = 3, **options: Any) -> list[Any]:
    """One node in each zone `z0`, `z1`, …."""
    return [one for i in range(count) for one in node(f"n{i}", cpu, labels={ZONE: f"z{i}"}, **options)]


PODS: dict[str, Case] = {
    "pods fill a node by cpu": case(node("n0", 4) + pods("p", 5)),
    "pods fill a node by memory": case(node("n0", 8, memory="4Gi") + pods("p", 5, "100m", amounts={"memory": "1Gi"})),
    "pods fill a node by count": case(node("n0", 8, pods="3") + pods("p", 4, "100m")),
    "pods fill a node by ephemeral storage": case(
        node("n0", 8) + pods("p", 3, "100m", amounts={"ephemeral-storage": "40Gi"})
    ),
    "a pod larger than any node": case(nodes(3, 4) + pod("p", "5")),
    "no nodes": case(pod("p")),
    "a pod waits until another leaves": case(node("n0", 2) + pod("first", "2"), pod("second", "2"), [Delete("first")]),
    "a pod waits until a node comes": case(pod("p", "2"), node("n0", 2)),
    "init containers ask for more than containers": case(
        node("n0", 4)
        + pods(
            "p",
            3,
            "1",
            initContainers=[
                {"name": "i", "image": "registry.example.com/init:1", "resources": {"requests": {"cpu": "2"}}}
            ],
        )
    ),
    "sidecars add to containers": case(
        node("n0", 4)
        + pods(
            "p",
            3,
            "1",
            initContainers=[
                {
                    "name": "i",
                    "image": "registry.example.com/init:1",
                    "restartPolicy": "Always",
                    "resources": {"requests": {"cpu": "1"}},
                }
            ],
        )
    ),
    "overhead of a runtime class": case(
        node("n0", 4)
        + some("node.k8s.io/v1", "RuntimeClass", "kata", handler="kata", overhead={"podFixed": {"cpu": "1"}})
        + pods("p", 3, "1", runtimeClassName="kata")
    ),
    "requests at pod level": case(
        node("n0", 4) + pods("p", 3, "100m", resources={"requests": {"cpu": "2"}}), oldest=34
    ),
    "extended resources of a device plugin": case(
        node("n0", 8, more={"example.com/gpu": 3}) + node("n1", 8) + pods("p", 2, amounts={"example.com/gpu": "2"})
    ),
    "huge pages": case(
        node("n0", 8, more={"hugepages-2Mi": "64Mi"})
        + pods("p", 2, amounts={"hugepages-2Mi": "40Mi", "memory": "64Mi"})
    ),
    "node selector": case(
        node("n0", labels={"disk": "ssd"})
        + node("n1")
        + pods("p", 2, nodeSelector={"disk": "ssd"})
        + pod("q", nodeSelector={"disk": "tape"})
    ),
    "required node affinity by In, NotIn, Exists and Gt": case(
        node("n0", labels={"kind": "a", "size": "8"})
        + node("n1", labels={"kind": "b", "size": "16"})
        + node("n2")
        + pod("in", affinity=require(expression("kind", "In", "b")))
        + pod("notin", affinity=require(expression("kind", "NotIn", "a", "b")))
        + pod("exists", affinity=require(expression("kind", "Exists"), expression("size", "Gt", "10")))
        + pod("none", affinity=require(expression("size", "Gt", "20")))
    ),
    "required node affinity by name": case(
        nodes(3)
        + pod("p", affinity=require(fields=[expression("metadata.name", "In", "n2")]))
        + pod("q", affinity=require(fields=[expression("metadata.name", "In", "n9")]))
    ),
    "preferred node affinity": case(
        node("n0")
        + node("n1", labels={"disk": "ssd"})
        + pod(
            "p",
            affinity={
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 100, "preference": {"matchExpressions": [expression("disk", "In", "ssd")]}}
                    ]
                }
            },
        )
    ),
    "taints and tolerations": case(
        node("n0", taints=[taint()])
        + node("n1", taints=[taint("team", "b")])
        + pod("p", tolerations=[{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}])
        + pod("q")
        + pod("r", tolerations=[{"operator": "Exists"}], nodeSelector={HOST: "n1"})
    ),
    "PreferNoSchedule": case(node("n0", taints=[taint(effect="PreferNoSchedule")]) + node("n1", 2) + pod("p", "1")),
    "a node is unschedulable": case(node("n0", unschedulable=True) + pod("p")),
    "host ports": case(nodes(2) + pods("p", 3, ports=[{"containerPort": 80, "hostPort": 8080}])),
    "host ports of other addresses and protocols": case(
        node("n0")
        + pod("a", ports=[{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}])
        + pod("b", ports=[{"containerPort": 80, "hostPort": 80, "protocol": "UDP"}]),
        pod("c", ports=[{"containerPort": 80, "hostPort": 80}])
        + pod("d", ports=[{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.2"}]),
    ),
    "scheduling gates": case(node("n0") + pod("p", schedulingGates=[{"name": "example.com/wait"}]) + pod("q")),
    "least allocated node": case(node("n0", 8) + node("n1", 4) + pod("p", "2")),
}

AFFINITY: dict[str, Case] = {
    "pods together in a zone": case(
        zones() + pod("a", labels={"app": "db"}, nodeSelector={ZONE: "z1"}),
        pods("p", 2, affinity=pod_affinity(pod_term("db"))) + pod("q", affinity=pod_affinity(pod_term("none"))),
    ),
    "the first of pods that want each other": case(
        zones()
        + pod("first", labels={"app": "ring"}, affinity=pod_affinity(pod_term("ring")), nodeSelector={ZONE: "z2"}),
        pods("p", 2, labels={"app": "ring"}, affinity=pod_affinity(pod_term("ring"))),
    ),
    "pods apart by host": case(
        nodes(3) + pods("p", 4, labels={"app": "web"}, affinity=pod_affinity(pod_term("web", HOST), anti=True))
    ),
    "an existing pod keeps others away": case(
        zones(count=2)
        + pod(
            "a", labels={"app": "alone"}, nodeSelector={ZONE: "z0"}, affinity=pod_affinity(pod_term("web"), anti=True)
        ),
        pods("p", 2, labels={"app": "web"}) + pod("q", nodeSelector={ZONE: "z0"}, labels={"app": "web"}),
    ),
    "affinity across namespaces": case(
        zones(count=2) + pod("a", labels={"app": "db"}, nodeSelector={ZONE: "z1"}),
        pod("p", affinity=pod_affinity(pod_term("db", namespaceSelector={})))
        + pod("q", affinity=pod_affinity(pod_term("db", namespaces=["kube-system"]))),
    ),
    "preferred anti-affinity": case(
        zones(count=2) + pod("a", labels={"app": "db"}, nodeSelector={ZONE: "z1"}),
        pod(
            "p",
            affinity={
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 100, "podAffinityTerm": pod_term("db")}
                    ]
                }
            },
        ),
    ),
    "matchLabelKeys of anti-affinity": case(
        zones(count=2) + pod("old", labels={"app": "web", "hash": "1"}, nodeSelector={ZONE: "z0"}),
        pods(
            "p",
            2,
            labels={"app": "web", "hash": "2"},
            affinity=pod_affinity(pod_term("web", matchLabelKeys=["hash"]), anti=True),
        )
        + pod(
            "q",
            labels={"app": "web", "hash": "1"},
            nodeSelector={ZONE: "z0"},
            affinity=pod_affinity(pod_term("web", matchLabelKeys=["hash"]), anti=True),
        ),
    ),
    "mismatchLabelKeys of anti-affinity": case(
        zones(count=2) + pod("a", labels={"app": "web", "tenant": "one"}, nodeSelector={ZONE: "z0"}),
        pod(
            "p",
            labels={"app": "web", "tenant": "two"},
            affinity=pod_affinity(pod_term("web", mismatchLabelKeys=["tenant"]), anti=True),
        ),
    ),
    "spread over zones": case(zones() + pods("p", 6, labels={"app": "web"}, topologySpreadConstraints=[spread("web")])),
    "spread over zones, one is full": case(
        zones(count=2, cpu=4) + pod("big", "4", nodeSelector={ZONE: "z0"}),
        pods("p", 3, labels={"app": "web"}, topologySpreadConstraints=[spread("web")]),
    ),
    "spread with minDomains": case(
        zones(count=2) + pods("p", 3, labels={"app": "web"}, topologySpreadConstraints=[spread("web", minDomains=3)])
    ),
    "spread honours taints": case(
        zones(count=2)
        + node("n2", labels={ZONE: "z2"}, taints=[taint()])
        + pods("p", 4, labels={"app": "web"}, topologySpreadConstraints=[spread("web", nodeTaintsPolicy="Honor")])
        + pods("q", 4, "100m", labels={"app": "other"}, topologySpreadConstraints=[spread("other")])
    ),
    "spread ignores node affinity": case(
        zones()
        + pods(
            "p",
            3,
            labels={"app": "web"},
            nodeSelector={HOST: "n0"},
            topologySpreadConstraints=[spread("web", nodeAffinityPolicy="Ignore")],
        )
    ),
    "spread where possible": case(
        zones(count=2) + pods("p", 4, labels={"app": "web"}, topologySpreadConstraints=[spread("web", hard=False)])
    ),
    "spread by matchLabelKeys": case(
        zones(count=2) + pods("old", 2, labels={"app": "web", "hash": "1"}, nodeSelector={ZONE: "z0"}),
        pods(
            "p",
            2,
            labels={"app": "web", "hash": "2"},
            topologySpreadConstraints=[spread("web", matchLabelKeys=["hash"])],
        ),
    ),
    "spread over hosts and zones": case(
        [one for i in range(4) for one in node(f"n{i}", labels={ZONE: f"z{i % 2}", GROUP: f"z{i % 2}"})]
        + pods("p", 4, labels={"app": "web"}, topologySpreadConstraints=[spread("web"), spread("web", HOST)])
    ),
    "nodes without the topology key": case(
        node("n0") + pod("p", labels={"app": "web"}, topologySpreadConstraints=[spread("web")])
    ),
}

CLASSES = priority("low", 100) + priority("high", 1000)
PREEMPTION: dict[str, Case] = {
    "a more urgent pod preempts": case(
        CLASSES + node("n0", 4) + pods("low", 2, "2", priority="low"), pod("high", "3", priority="high")
    ),
    "the fewest victims": case(
        CLASSES
        + node("n0", 4)
        + node("n1", 4)
        + pods("small", 4, "1", priority="low", nodeSelector={HOST: "n0"})
        + pod("large", "4", priority="low", nodeSelector={HOST: "n1"}),
        pod("high", "4", priority="high"),
    ),
    "only what must go": case(
        CLASSES + node("n0", 4) + pod("one", "1", priority="low") + pod("three", "3", priority="low"),
        pod("high", "3", priority="high"),
    ),
    "the lowest victim": case(
        CLASSES
        + priority("middle", 500)
        + node("n0", 2)
        + node("n1", 2)
        + pod("low", "2", priority="low", nodeSelector={HOST: "n0"})
        + pod("middle", "2", priority="middle", nodeSelector={HOST: "n1"}),
        pod("high", "2", priority="high"),
    ),
    "preemptionPolicy Never": case(
        CLASSES + priority("polite", 2000, preemptionPolicy="Never") + node("n0", 2) + pod("low", "2", priority="low"),
        pod("polite", "2", priority="polite"),
    ),
    "equal priority": case(CLASSES + node("n0", 2) + pod("a", "2", priority="low"), pod("b", "2", priority="low")),
    "a disruption budget chooses the node": case(
        CLASSES
        + node("n0", 2)
        + node("n1", 2)
        + some(
            "policy/v1",
            "PodDisruptionBudget",
            "guard",
            spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
        )
        + pod("guarded", "2", {"app": "guarded"}, priority="low", nodeSelector={HOST: "n0"})
        + pod("free", "2", priority="low", nodeSelector={HOST: "n1"}),
        pod("high", "2", priority="high"),
    ),
    "a disruption budget does not save": case(
        CLASSES
        + node("n0", 2)
        + some(
            "policy/v1",
            "PodDisruptionBudget",
            "guard",
            spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
        )
        + pod("guarded", "2", {"app": "guarded"}, priority="low"),
        pod("high", "2", priority="high"),
    ),
    "preemption does not help": case(
        CLASSES + node("n0", 2) + pod("low", "1", priority="low"), pod("high", "3", priority="high")
    ),
    "preemption for a host port": case(
        CLASSES + node("n0", 4) + pod("low", ports=[{"containerPort": 80, "hostPort": 80}], priority="low"),
        pod("high", ports=[{"containerPort": 80, "hostPort": 80}], priority="high"),
    ),
    "preemption for anti-affinity": case(
        CLASSES + node("n0", 4) + pod("low", labels={"app": "x"}, priority="low"),
        pod("high", priority="high", affinity=pod_affinity(pod_term("x", HOST), anti=True)),
    ),
    "who was there first stays": case(
        CLASSES + node("n0", 4) + pod("high", "3", priority="high"), pod("low", "3", priority="low")
    ),
}

ONE = device_class() + node("n0", 16)
DEVICES: dict[str, Case] = {
    "a device each": case(
        ONE
        + devices("n0", 2)
        + claim("c0")
        + claim("c1")
        + pod("p0", claims={"gpu": "c0"})
        + pod("p1", claims={"gpu": "c1"})
    ),
    "devices run out and come back": case(
        ONE + devices("n0", 1) + claim_template("t") + pod("first", claims={"gpu": "template:t"}),
        pod("second", claims={"gpu": "template:t"}),
        [Delete("first")],
    ),
    "pods share a claim": case(
        device_class()
        + nodes(2)
        + devices("n0", 1)
        + devices("n1", 1)
        + claim("shared")
        + pod("a", claims={"gpu": "shared"}),
        pods("p", 2, claims={"gpu": "shared"}),
    ),
    "two devices of one node": case(
        device_class()
        + node("n0")
        + node("n1")
        + devices("n0", 1)
        + devices("n1", 2)
        + claim("c", exactly(count=2))
        + pod("p", claims={"gpu": "c"})
    ),
    "more devices than any node has": case(
        device_class()
        + nodes(2)
        + devices("n0", 2)
        + devices("n1", 2)
        + claim("c", exactly(count=3))
        + pod("p", claims={"gpu": "c"})
    ),
    "all devices": case(
        ONE + devices("n0", 3) + claim("c", exactly(allocationMode="All")) + pod("p", claims={"gpu": "c"}),
        claim("d") + pod("q", claims={"gpu": "d"}),
    ),
    "all devices while one is held": case(
        ONE + devices("n0", 3) + claim("d") + pod("q", claims={"gpu": "d"}),
        claim("c", exactly(allocationMode="All")) + pod("p", claims={"gpu": "c"}),
    ),
    "a selector on attributes": case(
        device_class()
        + node("n0")
        + node("n1")
        + devices("n0", 1, "small")
        + devices("n1", 1, "large")
        + claim("c", exactly("r", "gpu", f'device.attributes["{DRIVER}"].model == "large"'))
        + pod("p", claims={"gpu": "c"})
        + claim("d", exactly("r", "gpu", f'device.attributes["{DRIVER}"].model == "huge"'))
        + pod("q", claims={"gpu": "d"})
    ),
    "a selector on capacity": case(
        device_class()
        + node("n0")
        + node("n1")
        + devices("n0", 1, "a", capacity={"memory": "40Gi"})
        + devices("n1", 1, "b", capacity={"memory": "80Gi"})
        + claim("c", exactly("r", "gpu", f'device.capacity["{DRIVER}"].memory.compareTo(quantity("60Gi")) >= 0'))
        + pod("p", claims={"gpu": "c"})
    ),
    "a selector that fails at run time": case(
        ONE
        + devices("n0", 1)
        + claim("c", exactly("r", "gpu", f'device.attributes["{DRIVER}"].missing == "x"'))
        + pod("p", claims={"gpu": "c"})
    ),
    "selectors of the class": case(
        device_class("fast", f'device.attributes["{DRIVER}"].model == "fast"')
        + node("n0")
        + devices("n0", 1, "slow")
        + devices("n0", 1, "fast")
        + claim("c", exactly("r", "fast"))
        + pod("p", claims={"gpu": "c"})
    ),
    "matching attributes": case(
        device_class()
        + node("n0")
        + node("n1")
        + devices("n0", 1, "a", {"island": {"int": 1}})
        + devices("n0", 1, "b", {"island": {"int": 2}})
        + devices("n1", 2, "a", {"island": {"int": 1}})
        + claim("c", exactly(count=2), constraints=[{"matchAttribute": f"{DRIVER}/island"}])
        + pod("p", claims={"gpu": "c"})
    ),
    "two requests of one claim": case(
        device_class()
        + device_class("nic", f'device.attributes["{DRIVER}"].model == "nic"')
        + node("n0")
        + node("n1")
        + devices("n0", 1, "a")
        + devices("n1", 1, "a")
        + devices("n1", 1, "nic")
        + claim("c", exactly("g", "gpu", f'device.attributes["{DRIVER}"].model == "a"'), exactly("n", "nic"))
        + pod("p", claims={"gpu": "c"})
    ),
    "two claims of one pod": case(
        device_class()
        + node("n0")
        + node("n1")
        + devices("n0", 1)
        + devices("n1", 2)
        + claim("c")
        + claim("d")
        + pod("p", claims={"one": "c", "two": "d"})
    ),
    "the first alternative that fits": case(
        device_class()
        + node("n0")
        + devices("n0", 1, "small")
        + claim(
            "c",
            {
                "name": "r",
                "firstAvailable": [
                    {
                        "name": "large",
                        "deviceClassName": "gpu",
                        "selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "large"'}}],
                    },
                    {"name": "small", "deviceClassName": "gpu"},
                ],
            },
        )
        + pod("p", claims={"gpu": "c"}),
        oldest=34,
    ),
    "a better alternative on another node": case(
        device_class()
        + node("n0")
        + node("n1")
        + devices("n0", 1, "small")
        + devices("n1", 1, "large")
        + claim(
            "c",
            {
                "name": "r",
                "firstAvailable": [
                    {
                        "name": "large",
                        "deviceClassName": "gpu",
                        "selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "large"'}}],
                    },
                    {"name": "small", "deviceClassName": "gpu"},
                ],
            },
        )
        + pod("p", claims={"gpu": "c"}),
        oldest=35,
    ),
    "a claim template for each pod": case(
        device_class()
        + nodes(2)
        + devices("n0", 2)
        + devices("n1", 2)
        + claim_template("t")
        + pods("p", 5, claims={"gpu": "template:t"})
    ),
    "a class that does not exist": case(
        node("n0") + devices("n0", 1) + claim("c", exactly("r", "none")) + pod("p", claims={"gpu": "c"})
    ),
    "a claim that comes later": case(ONE + devices("n0", 1) + pod("p", claims={"gpu": "c"}), claim("c")),
    "a class that comes later": case(
        node("n0") + devices("n0", 1) + claim("c") + pod("p", claims={"gpu": "c"}), device_class()
    ),
    "devices that come later": case(ONE + claim("c") + pod("p", claims={"gpu": "c"}), devices("n0", 1)),
    "a device that any node reaches": case(
        device_class()
        + nodes(2)
        + slice_of("fabric", [device("a-0")], allNodes=True)
        + claim("c")
        + claim("d")
        + pod("p", claims={"gpu": "c"}),
        pod("q", claims={"gpu": "d"}),
    ),
    "devices of a selection of nodes": case(
        device_class()
        + node("n0", labels={"rack": "a"})
        + node("n1", labels={"rack": "b"})
        + slice_of(
            "rack",
            [device("a-0"), device("a-1")],
            nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [expression("rack", "In", "b")]}]},
        )
        + claim("c")
        + pod("p", claims={"gpu": "c"})
    ),
    "a pool that is not complete": case(
        ONE
        + slice_of("n0", [device("a-0")], nodeName="n0", of=2)
        + claim("c", exactly(allocationMode="All"))
        + pod("p", claims={"gpu": "c"})
    ),
    "partitions share counters": case(
        ONE
        + some(
            "resource.k8s.io/v1",
            "ResourceSlice",
            "n0-parts-counters",
            spec={
                "driver": DRIVER,
                "nodeName": "n0",
                "pool": {"name": "parts", "generation": 1, "resourceSliceCount": 2},
                "sharedCounters": [{"name": "card", "counters": {"slots": {"value": "4"}}}],
            },
        )
        + some(
            "resource.k8s.io/v1",
            "ResourceSlice",
            "n0-parts",
            spec={
                "driver": DRIVER,
                "nodeName": "n0",
                "pool": {"name": "parts", "generation": 1, "resourceSliceCount": 2},
                "devices": [
                    device(
                        name,
                        kind,
                        consumesCounters=[{"counterSet": "card", "counters": {"slots": {"value": slots}}}],
                    )
                    for name, kind, slots in (
                        ("whole-0", "whole", "4"),
                        ("half-0", "half", "2"),
                        ("half-1", "half", "2"),
                    )
                ],
            },
        )
        + claim("h", exactly("r", "gpu", f'device.attributes["{DRIVER}"].model == "half"'))
        + pod("half", claims={"gpu": "h"}),
        claim("w", exactly("r", "gpu", f'device.attributes["{DRIVER}"].model == "whole"'))
        + pod("whole", claims={"gpu": "w"})
        + claim("i", exactly("r", "gpu", f'device.attributes["{DRIVER}"].model == "half"'))
        + pod("other", claims={"gpu": "i"}),
        oldest=35,
        gates=("DRAPartitionableDevices",),
    ),
    "tainted devices": case(
        ONE
        + slice_of("n0", [device("a-0", taints=[{"key": "sick", "value": "x", "effect": "NoSchedule"}])], nodeName="n0")
        + claim("c")
        + pod("p", claims={"gpu": "c"})
        + claim("d", exactly(tolerations=[{"key": "sick", "operator": "Exists"}]))
        + pod("q", claims={"gpu": "d"}),
        oldest=35,
        gates=("DRADeviceTaints",),
    ),
    "shares of a device's capacity": case(
        ONE
        + slice_of(
            "n0",
            [device("a-0", capacity=None, allowMultipleAllocations=True) | {"capacity": {"memory": {"value": "8Gi"}}}],
            nodeName="n0",
        )
        + [
            one
            for i in range(3)
            for one in claim(f"c{i}", exactly(capacity={"requests": {"memory": "4Gi"}}))
            + pods(f"p{i}", 1, labels={SET: "p"}, claims={"gpu": f"c{i}"})
        ],
        oldest=35,
        gates=("DRAConsumableCapacity",),
    ),
    "an extended resource backed by devices": case(
        device_class("gpu", extendedResourceName="example.com/gpu")
        + node("n0")
        + devices("n0", 2)
        + pods("p", 3, amounts={"example.com/gpu": "1"}),
        oldest=35,
        gates=("DRAExtendedResource",),
    ),
    "preemption for devices": case(
        CLASSES
        + ONE
        + devices("n0", 1)
        + claim_template("t")
        + pod("low", claims={"gpu": "template:t"}, priority="low"),
        pod("high", claims={"gpu": "template:t"}, priority="high"),
        on_purpose="devices can be the reason of an eviction",
    ),
    "administrators look at held devices": case(
        ONE + devices("n0", 1) + claim("c") + pod("p", claims={"gpu": "c"}),
        claim("a", exactly(adminAccess=True)) + pod("admin", claims={"gpu": "a"}),
        oldest=34,
    ),
}

GANG = ("GenericWorkload", "GangScheduling")
GANGS: dict[str, Case] = {
    "a gang that fits": case(nodes(2, 4) + gang("g", 4) + pods("m", 4, "2", group="g"), oldest=36, gates=GANG),
    "a gang that does not fit": case(nodes(2, 4) + gang("g", 5) + pods("m", 5, "2", group="g"), oldest=36, gates=GANG),
    "a gang waits for its members": case(
        nodes(2, 4) + gang("g", 3) + pods("m", 2, "1", group="g"),
        pods("late", 1, "1", group="g"),
        oldest=36,
        gates=GANG,
    ),
    "a gang larger than its minimum": case(
        nodes(2, 4) + gang("g", 3) + pods("m", 5, "2", group="g"), oldest=36, gates=GANG
    ),
    "a gang with devices": case(
        device_class()
        + nodes(2, 8)
        + devices("n0", 2)
        + devices("n1", 2)
        + claim_template("t")
        + gang("g", 4)
        + pods("m", 4, claims={"gpu": "template:t"}, group="g"),
        oldest=36,
        gates=GANG,
    ),
    "a gang with too few devices": case(
        device_class()
        + nodes(2, 8)
        + devices("n0", 2)
        + devices("n1", 1)
        + claim_template("t")
        + gang("g", 4)
        + pods("m", 4, claims={"gpu": "template:t"}, group="g"),
        devices("n1", 1, "b"),
        oldest=36,
        gates=GANG,
    ),
    "two gangs, one fits": case(
        nodes(2, 4) + gang("g", 3) + pods("g", 3, "2", group="g"),
        gang("h", 3) + pods("h", 3, "2", group="h"),
        oldest=36,
        gates=GANG,
    ),
    "the basic policy": case(
        nodes(1, 4)
        + some("scheduling.k8s.io/v1alpha2", "PodGroup", "g", spec={"schedulingPolicy": {"basic": {}}})
        + pods("m", 5, "1", group="g"),
        oldest=36,
        gates=GANG,
    ),
    "a PodGroup that comes later": case(
        nodes(1, 4) + pods("m", 2, "1", group="g"), gang("g", 2), oldest=36, gates=GANG
    ),
    "a gang beside single pods": case(
        nodes(2, 4) + pods("single", 2, "3"), gang("g", 2) + pods("m", 2, "2", group="g"), oldest=36, gates=GANG
    ),
    "a gang with node selectors": case(
        node("n0", 4, labels={"pool": "a"})
        + node("n1", 4, labels={"pool": "b"})
        + gang("g", 2)
        + pods("a", 1, "2", group="g", nodeSelector={"pool": "a"})
        + pods("b", 1, "2", group="g", nodeSelector={"pool": "c"}),
        oldest=36,
        gates=GANG,
    ),
    "a gang with anti-affinity by host": case(
        nodes(2, 8)
        + gang("g", 3)
        + pods("m", 3, labels={"app": "g"}, group="g", affinity=pod_affinity(pod_term("g", HOST), anti=True)),
        node("n2", 8, labels={GROUP: "n"}),
        oldest=36,
        gates=GANG,
    ),
}

WORKLOADS: dict[str, Case] = {
    "a Deployment": case(nodes(2, 4) + replicated("Deployment", "web", 6, template("1"))),
    "a Deployment with more replicas than fit": case(node("n0", 2) + replicated("Deployment", "web", 3, template("1"))),
    "a ReplicaSet apart by host": case(
        nodes(2, 4)
        + replicated("ReplicaSet", "web", 3, template("1", affinity=pod_affinity(pod_term("web", HOST), anti=True)))
    ),
    "a StatefulSet stops at the first that does not fit": case(
        node("n0", 2) + replicated("StatefulSet", "db", 4, template("1"))
    ),
    "a StatefulSet in parallel": case(
        node("n0", 2) + replicated("StatefulSet", "db", 4, template("1"), podManagementPolicy="Parallel")
    ),
    "a DaemonSet": case(
        nodes(2, 4) + node("tainted", taints=[taint()]) + replicated("DaemonSet", "agent", 0, template("1"))
    ),
    "a DaemonSet on a full node": case(
        node("n0", 2) + node("n1", 4) + pod("big", "2", nodeSelector={HOST: "n0"}),
        replicated("DaemonSet", "agent", 0, template("1")),
    ),
    "a Job": case(nodes(2, 2) + job("train", 3, template("1"))),
    "an indexed Job with devices": case(
        device_class()
        + nodes(2)
        + devices("n0", 1)
        + devices("n1", 1)
        + claim_template("t")
        + job("train", 3, template("1", claims={"gpu": "template:t"}), completionMode="Indexed")
    ),
    "a quota of pods": case(
        nodes(1, 8) + some("v1", "ResourceQuota", "q", spec={"hard": {"pods": "2"}}),
        replicated("ReplicaSet", "web", 4, template("1")),
    ),
    "a quota of devices": case(
        ONE
        + devices("n0", 4)
        + some("v1", "ResourceQuota", "q", spec={"hard": {"gpu.deviceclass.resource.k8s.io/devices": "2"}})
        + claim_template("t"),
        replicated("ReplicaSet", "web", 3, template("1", claims={"gpu": "template:t"})),
    ),
}

VOLUMES: dict[str, Case] = {
    "a missing volume claim": case(node("n0") + pod("p", volumes=mounted("none"))),
    "an unbound immediate volume claim": case(
        node("n0")
        + storage_class("now", late=False)
        + volume_claim("c", class_name="now")
        + pod("p", volumes=mounted("c"))
    ),
    "a bound local volume": case(
        node("n0")
        + node("n1")
        + storage_class("now", late=False)
        + volume("v", "n1", class_name="now")
        + volume_claim("c", class_name="now"),
        pod("p", volumes=mounted("c")),
    ),
    "a volume bound to its first consumer": case(
        node("n0")
        + node("n1")
        + storage_class()
        + volume("v", "n1")
        + volume_claim("c")
        + pod("p", volumes=mounted("c"))
    ),
    "a volume for its first consumer is too small": case(
        node("n0") + storage_class() + volume("v", "n0", "1Gi") + volume_claim("c") + pod("p", volumes=mounted("c")),
        volume("w", "n0", "20Gi"),
    ),
    "the smallest volume that is large enough": case(
        node("n0")
        + storage_class()
        + volume("large", "n0", "100Gi")
        + volume("small", "n0", "6Gi")
        + volume_claim("c")
        + pod("p", volumes=mounted("c"))
    ),
    "two claims, one volume": case(
        node("n0")
        + storage_class()
        + volume("v", "n0")
        + volume_claim("c")
        + volume_claim("d")
        + pods("p", 1, volumes=mounted("c")),
        pods("q", 1, volumes=mounted("d")),
    ),
    "volumes decide the node of two consumers": case(
        node("n0")
        + node("n1")
        + storage_class()
        + volume("v0", "n0")
        + volume("v1", "n1")
        + volume_claim("c0")
        + volume_claim("c1")
        + pods("p", 1, labels={SET: "p"}, volumes=mounted("c0"))
        + pods("q", 1, labels={SET: "p"}, volumes=mounted("c1"))
    ),
    "a class that cannot provision": case(
        node("n0") + storage_class() + volume_claim("c") + pod("p", volumes=mounted("c"))
    ),
    "a class whose provisioner never answers": case(
        node("n0")
        + storage_class("slow", provisioner="slow.example.com")
        + volume_claim("c", class_name="slow")
        + pod("p", volumes=mounted("c"))
    ),
    "allowed topologies of a class": case(
        zones(count=2)
        + storage_class(
            "z",
            provisioner="slow.example.com",
            allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}]}],
        )
        + volume_claim("c", class_name="z")
        + pod("p", volumes=mounted("c"), nodeSelector={ZONE: "z0"})
    ),
    "ReadWriteOncePod": case(
        node("n0")
        + storage_class("now", late=False)
        + volume("v", "n0", class_name="now", accessModes=["ReadWriteOncePod"])
        + volume_claim("c", class_name="now", accessModes=["ReadWriteOncePod"]),
        pod("p", volumes=mounted("c")),
        pod("q", volumes=mounted("c")),
    ),
    "a volume in a zone": case(
        zones(count=2)
        + storage_class("now", late=False)
        + some(
            "v1",
            "PersistentVolume",
            "v",
            labels={ZONE: "z1"},
            spec={
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "now",
                "hostPath": {"path": "/data"},
            },
        )
        + volume_claim("c", class_name="now"),
        pod("p", volumes=mounted("c")),
    ),
    "a limit of attached volumes": case(
        node("n0")
        + some(
            "storage.k8s.io/v1",
            "CSINode",
            "n0",
            spec={
                "drivers": [
                    {"name": "csi.example.com", "nodeID": "n0", "topologyKeys": [], "allocatable": {"count": 1}}
                ]
            },
        )
        + storage_class("now", late=False)
        + [
            one
            for i in range(2)
            for one in volume(
                f"v{i}", class_name="now", hostPath=None, csi={"driver": "csi.example.com", "volumeHandle": f"v{i}"}
            )
            + volume_claim(f"c{i}", class_name="now")
        ],
        pods("p", 1, volumes=mounted("c0")),
        pods("q", 1, volumes=mounted("c1")),
    ),
}

CASES: dict[str, Case] = {**PODS, **AFFINITY, **PREEMPTION, **DEVICES, **GANGS, **WORKLOADS, **VOLUMES}
GATES = sorted({gate for one in CASES.values() for gate in one.gates} | {"DRADeviceTaintRules"})
"""What the server and the scheduler need beyond the defaults, or is on by default from 1.36."""
