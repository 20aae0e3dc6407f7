"""Type checking of policies: what their expressions would say of the kinds that they are about.

Expressions run over objects of no known type, so a misspelled field shows only when a request comes. Where a policy's
rules name kinds, its validations are checked against them, and what is found is told in the policy's status; it changes
nothing in how the policy works.
Source: KEP 3488 (status.typeChecking), as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping

from haru.apiserver.admission.dynamic.params import param_resource
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.registry.resources import Resource
from haru.cel.admission import compile_expression, environment, variable_type
from haru.cel.environment import Environment
from haru.cel.kinds import declare_kind
from haru.cel.types import DYN, Type
from haru.kube.meta import Obj

TYPES_LIMIT = 10
"""How many kinds one rule may add."""


def expression_warnings(policy: Obj, objects: ObjectStore) -> list[Obj]:
    """`expressionWarnings` of a policy: for each validation's expressions what is wrong with them, by kind."""
    spec = policy["spec"]
    resources = _resources(spec, objects)
    found: list[Obj] = []
    environments = [(resource, _environment(spec, resource, objects)) for resource in resources]
    for number, validation in enumerate(spec.get("validations") or ()):
        for member in ("expression", "messageExpression"):
            text = validation.get(member)
            warning = _warning(text, environments) if text else ""
            if warning:
                found.append({"fieldRef": f"spec.validations[{number}].{member}", "warning": warning})
    return found


def _warning(text: str, environments: list[tuple[Resource, Environment]]) -> str:
    lines = []
    for resource, within in environments:
        problem = compile_expression(text, within).problem.removeprefix("compilation failed: ")
        if problem:
            kind = resource.kind
            lines.append(f"{kind.group}/{kind.version}, Kind={kind.kind}: {problem}\n")
    return "\n".join(lines)


def _resources(spec: Obj, objects: ObjectStore) -> list[Resource]:
    """The kinds that the rules name without wildcards, in the order of their names."""
    found: dict[tuple[str, str, str], Resource] = {}
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        groups, versions = rule.get("apiGroups") or [], rule.get("apiVersions") or []
        plurals = [name for name in rule.get("resources") or () if "*" not in name and "/" not in name]
        if "*" in groups or "*" in versions:
            continue
        named = [(g, v, p) for g in sorted(groups) for v in sorted(versions) for p in sorted(plurals)]
        served = [resource for name in named if (resource := objects.served.get(*name)) is not None]
        for resource in served[:TYPES_LIMIT]:
            found[resource.kind.group, resource.kind.version, resource.kind.kind] = resource
    return [found[key] for key in sorted(found)]


def _environment(spec: Obj, resource: Resource, objects: ObjectStore) -> Environment:
    structs: dict[str, Mapping[str, Type]] = {}
    about = declare_kind(resource.kind, structs)
    params = DYN
    if spec.get("paramKind"):
        of_params = param_resource(objects, spec["paramKind"])
        params = declare_kind(of_params.kind, structs) if of_params is not None else DYN
    variables: dict[str, Type] = {}
    within = environment(
        params=bool(spec.get("paramKind")),
        authorizer=True,
        variables=variables,
        objects=(about, params),
        structs=structs,
    )
    for variable in spec.get("variables") or ():
        variables[variable["name"]] = variable_type(compile_expression(variable["expression"], within).type)
    return within
