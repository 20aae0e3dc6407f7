"""The audit log: who asked for what and what came of it, as events of audit.k8s.io/v1, in a file, to a webhook or both.

A policy says of each request how much of it is told; the telling is done behind bounded queues.
"""

from haru.apiserver.audit.auditor import Auditor
from haru.apiserver.audit.log import AuditFile
from haru.apiserver.audit.policy import PolicyError, load_policy
from haru.apiserver.audit_options import AuditOptions, Delivery, WebhookTarget

__all__ = ["AuditFile", "AuditOptions", "Auditor", "Delivery", "PolicyError", "WebhookTarget", "load_policy"]
