"""Every check: its id, its stage, how grave what it finds is, and a title. docs/reference/lint.md explains each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from haru.lint.findings import Severity, Stage


class Check(NamedTuple):
    """One thing that lint looks for."""

    id: str
    stage: Stage
    severity: Severity
    title: str


_TABLE = """
yaml-syntax            yaml        error    the text is no YAML, or a key is set twice
yaml-object            yaml        error    a document is no object
yaml-size              yaml        error    a document is larger or deeper than an API server takes
kind-missing           kind        error    an object does not say its apiVersion or kind
kind-removed           kind        error    the kind existed once and is gone
kind-version           kind        error    the kind is served in another version only
kind-unknown           kind        error    no such kind in the group, or no such group
version-deprecated     kind        notice   the version is off by default and about to be removed
field-removed          schema      error    the field belonged to an older model of the API
field-version          schema      error    the field has this shape in another version of the API
field-misplaced        schema      error    the field exists, but elsewhere
field-unknown          schema      error    no such field
value-type             schema      error    the value has the wrong JSON type
selector-operator      validation  error    a Quantity compared with an operator
selector-invalid       validation  error    a CEL selector does not compile, or costs too much
attribute-name         validation  error    the name of an attribute or capacity is malformed
attribute-version      validation  error    an attribute of type version is no semantic version
taint-effect           validation  error    a device taint or toleration with an effect that devices do not have
field-invalid          validation  error    any other value that the API refuses
object-twice           semantic  warning  an object is in a file twice, and not the same both times
attribute-unpublished  semantic    error    a selector reads an attribute or capacity that no known driver publishes
attribute-is-capacity  semantic    error    a selector looks for a capacity among the attributes, or the reverse
attribute-type         semantic    error    a selector compares an attribute with a value of another type
attribute-value        semantic    warning  a selector compares with a value that the attribute never has
attribute-domain       semantic    error    a selector reads an attribute under the wrong domain
selector-literal       semantic    error    a literal that cannot be parsed when the selector runs
selector-unguarded     semantic    warning  a class reads a driver's attributes without asking for the driver
class-contradiction    semantic    error    a selector asks for what its class excludes
memory-marketing       semantic    warning  a memory threshold that is the marketing size, which devices do not reach
config-kind            semantic    error    opaque parameters without apiVersion and kind
config-unknown         semantic    error    opaque parameters that the driver does not know
config-partition       semantic    error    a partition asked for through configuration
config-driver          semantic    warning  configuration for a driver that the request's class excludes
request-count          semantic    error    more devices than one claim can be given
request-reference      semantic    error    a container asks for a request that the claim does not have
constraint-attribute   semantic    error    a constraint on an attribute that the devices do not have
constraint-impossible  semantic    warning  a constraint that no usual machine can satisfy
toleration-seconds     semantic    warning  tolerationSeconds where nothing is evicted
toleration-all         semantic    notice   a toleration that matches every taint
admin-namespace        semantic    warning  adminAccess in a namespace that is not labelled for it
taint-rule-selector    semantic    warning  a DeviceTaintRule that matches no device, or all
claim-is-template      semantic    error    resourceClaimName names a ResourceClaimTemplate
template-is-claim      semantic    error    resourceClaimTemplateName names a ResourceClaim
reference-missing      semantic    warning  a claim, template, Workload or PodGroup that is not in the files
reference-elsewhere    semantic    notice   a name that the files do not have, and that may be in the cluster
class-unknown          semantic    warning  a class whose name resembles one that is known
claim-not-used         semantic    warning  a pod holds a claim that none of its containers uses
claim-shared           semantic    notice   pods of one workload share one claim by name
both-models            semantic    warning  one pod asks for GPUs through an extended resource and through a claim
group-too-few          semantic    error    a gang needs more pods than can exist
group-scheduler        semantic    error    the pods of one group have different schedulers
group-template         semantic    error    a PodGroup refers to a template that its Workload does not have
group-differs          semantic    warning  a PodGroup differs from its template
job-no-gang            semantic    warning  a Job that nearly qualifies for gang scheduling
job-suspended          semantic    warning  a suspended Job never gets a gang
name-too-long          semantic    warning  names made from this one are too long
slice-unpublished      semantic    warning  a slice has attributes that its driver does not publish
slice-counters         semantic    error    a device consumes a counter that its pool does not have
"""

CHECKS: Mapping[str, Check] = {
    check.id: check
    for check in (
        Check(*line.split(None, 3))  # type: ignore[arg-type]
        for line in _TABLE.strip().splitlines()
    )
}
