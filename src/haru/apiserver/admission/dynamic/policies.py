"""Admission policies: what they are about, and with which parameters they are evaluated.

Here is what policies that judge and policies that change objects have in common: matching, bindings, conditions,
variables and parameters.
Source: KEP 3488, as behaviour; the words are those of 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from haru.apiserver.admission.dynamic.attributes import Attributes, RequestView
from haru.apiserver.admission.dynamic.expression_runner import timed_compile
from haru.apiserver.admission.dynamic.match_conditions import Conditions, given_of
from haru.apiserver.admission.dynamic.match_criteria import policy_criteria
from haru.apiserver.admission.dynamic.params import ParamError, collect, param_resource, unknown_kind
from haru.apiserver.registry.resources import Served
from haru.cel.admission import Composition
from haru.cel.admission_evaluation import Given, namespace_value
from haru.kube.errors import StatusError, not_found_error
from haru.kube.meta import Obj

_NO_PARAMS: Sequence[Obj | None] = (None,)


class Binding:
    """One binding of a policy."""

    def __init__(self, raw: Obj) -> None:
        spec = raw["spec"]
        self.name = str(raw["metadata"]["name"])
        self.policy = str(spec.get("policyName") or "")
        self.param_ref: Obj | None = spec.get("paramRef")
        self.actions: list[str] = spec.get("validationActions") or []
        self.criteria = policy_criteria(spec.get("matchResources"), is_binding=True)


class Policy:
    """One policy with its bindings, its expressions compiled when a request first needs them."""

    def __init__(self, raw: Obj, bindings: Sequence[Binding]) -> None:
        self.name = str(raw["metadata"]["name"])
        self.spec: Obj = raw["spec"]
        self.bindings = bindings
        self.fails = self.spec.get("failurePolicy") != "Ignore"
        self.param_kind: Obj | None = self.spec.get("paramKind")
        self.criteria = policy_criteria(self.spec.get("matchConstraints"), is_binding=False)

    @cached_property
    def speaks_of_namespaces(self) -> bool:
        """Whether any expression may read `namespaceObject`: it is fetched for those only."""
        return "namespaceObject" in repr(self.spec)

    @property
    def has_params(self) -> bool:
        """Whether expressions may speak of `params`."""
        return self.param_kind is not None

    @cached_property
    def composition(self) -> Composition:
        """The variables."""
        return Composition(self.spec.get("variables") or (), params=self.has_params, compile=timed_compile)

    @cached_property
    def conditions(self) -> Conditions:
        """The match conditions."""
        return Conditions(self.spec.get("matchConditions") or (), params=self.has_params, fails=self.fails)


class Invocation(NamedTuple):
    """One evaluation that a request asks for: a policy by one of its bindings, with one parameter or none."""

    policy: Policy
    binding: Binding
    seen: RequestView
    param: Obj | None
    namespace: Obj | None

    def given(self, attributes: Attributes) -> Given:
        """The values that expressions see."""
        return given_of(attributes, self.seen, params=self.param, namespace=self.namespace)


@dataclass(frozen=True, slots=True)
class Misconfigured:
    """A policy that concerns a request and can not be evaluated; `binding` is empty where it is itself at fault.

    The policy's `failurePolicy` decides what follows.
    """

    policy: Policy
    binding: str
    why: str

    def __str__(self) -> str:
        return f"failed to configure {'binding' if self.binding else 'policy'}: {self.why}"


async def invocations(policy: Policy, attributes: Attributes, served: Served) -> list[Invocation | Misconfigured]:
    """Every evaluation of a policy that a request asks for, in the order of bindings and parameters.

    Raises StatusError where the request's namespace does not exist.
    """
    try:
        seen = await policy.criteria.match(attributes, served)
    except StatusError as error:
        return [Misconfigured(policy, "", error.message)]
    if seen is None:
        return []
    if policy.param_kind is not None and param_resource(attributes.call.objects, policy.param_kind) is None:
        return [Misconfigured(policy, "", unknown_kind(policy.param_kind))]
    found: list[Invocation | Misconfigured] = []
    for binding in policy.bindings:
        try:
            criteria = binding.criteria
            if not criteria.is_all and await criteria.concerned(attributes, served) is None:
                continue
            params = _NO_PARAMS if policy.param_kind is None else await _params(policy, binding, attributes)
        except ParamError as error:
            found.append(Misconfigured(policy, binding.name, str(error)))
            continue
        except StatusError as error:
            found.append(Misconfigured(policy, binding.name, error.message))
            continue
        namespace = await _namespace(attributes) if params and policy.speaks_of_namespaces else None
        found += [Invocation(policy, binding, seen, param, namespace) for param in params]
    return found


async def _params(policy: Policy, binding: Binding, attributes: Attributes) -> Sequence[Obj | None]:
    """The parameters that a binding is to be evaluated with; one that is null where there are none to have."""
    if policy.param_kind is None or binding.param_ref is None:
        return _NO_PARAMS
    objects = attributes.call.objects
    resource = param_resource(objects, policy.param_kind)
    if resource is None:
        raise ParamError(unknown_kind(policy.param_kind))
    return list(await collect(objects, resource, binding.param_ref, attributes.namespace))


async def _namespace(attributes: Attributes) -> Obj | None:
    """The Namespace of the request's object, as expressions see it; None for a cluster-scoped object."""
    if attributes.is_namespace or not attributes.namespace:
        return None
    if attributes.shown_namespace is None:
        found = await attributes.call.objects.peek("", "namespaces", "", attributes.namespace)
        if found is None:
            raise not_found_error("", "namespaces", attributes.namespace)
        attributes.shown_namespace = namespace_value(found)
    return attributes.shown_namespace
