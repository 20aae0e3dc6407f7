"""The audit log: who asked for what and what came of it, one JSON object a line, as audit.k8s.io/v1 has it.

A policy says of each request how much of it is told; the telling is done by a thread, behind a bounded queue.
"""

from haru.apiserver.audit.auditor import AuditOptions, Auditor
from haru.apiserver.audit.log import AuditFile
from haru.apiserver.audit.policy import PolicyError, load_policy

__all__ = ["AuditFile", "AuditOptions", "Auditor", "PolicyError", "load_policy"]
