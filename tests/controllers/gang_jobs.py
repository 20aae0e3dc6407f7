"""Jobs that are gangs, and what there is of them."""

from controller_cluster import template

from haru.controllers.objects import POD_GROUPS, PODS


def job(name="j", **spec):
    """A Job whose pods do nothing."""
    pods = template({}, restartPolicy="Never")
    return {"metadata": {"name": name}, "spec": {"template": pods, **spec}}


def indexed(count, **spec):
    """What makes it a gang of `count`."""
    return {"completionMode": "Indexed", "completions": count, "parallelism": count, **spec}


async def groups_of(cluster):
    """The PodGroups that there are pods of; None: no group."""
    return {(p["spec"].get("schedulingGroup") or {}).get("podGroupName") for p in await cluster.items(PODS)}


async def started(cluster, count):
    """Wait until there are so many pods."""

    async def holds():
        return len(await cluster.items(PODS)) == count

    await cluster.eventually(holds)


async def the_group(cluster):
    """The metadata of the only PodGroup."""
    (group,) = await cluster.items(POD_GROUPS)
    return group["metadata"]


def reference_to(owner):
    """An owner reference that makes it the controller."""
    metadata = owner["metadata"]
    kind = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return {**kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}
