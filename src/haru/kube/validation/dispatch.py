"""Which rules judge which kind: on create, on update, on a status write."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from haru.kube.custom.definitions import GROUP as _DEFINITIONS
from haru.kube.errors import FieldError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.validation import (
    api_services,
    autoscalers,
    claim_status,
    claims,
    classes,
    core,
    definitions,
    endpoints,
    events,
    flow_control,
    ingresses,
    job_status,
    jobs,
    leases,
    limits,
    nodes,
    persistent_volumes,
    pod_status,
    pods,
    policies,
    registration_policies,
    registrations,
    scheduling,
    service_networks,
    services,
    signing_requests,
    slices,
    storage,
    volume_claims,
    workload_status,
    workloads,
)
from haru.kube.validation.types import Rules

Create = Callable[[Obj, Kind, Rules], list[FieldError]]
Update = Callable[[Obj, Obj, Kind, Rules], list[FieldError]]
"""Called with the new object, then the old one."""
Status = Callable[[Obj, Obj], list[FieldError]]
_Alone = Callable[[Obj], list[FieldError]]
_WithRules = Callable[[Obj, Rules], list[FieldError]]
_Pair = Callable[[Obj, Obj], list[FieldError]]


def _alone(check: _Alone) -> Create:
    return lambda obj, kind, rules: check(obj)


def _with_rules(check: _WithRules) -> Create:
    return lambda obj, kind, rules: check(obj, rules)


def _again(check: _Alone, fixed: _Pair | None = None) -> Update:
    """An update is judged as a creation, and by what may not change."""
    return lambda new, old, kind, rules: check(new) + (fixed(new, old) if fixed is not None else [])


def _again_with_rules(check: _WithRules, fixed: _Pair | None = None) -> Update:
    return lambda new, old, kind, rules: check(new, rules) + (fixed(new, old) if fixed is not None else [])


def _pair(check: _Pair) -> Update:
    return lambda new, old, kind, rules: check(new, old)


RESOURCE = "resource.k8s.io"
_SCHEDULING = "scheduling.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_DEFINITION = (_DEFINITIONS, "CustomResourceDefinition")
_LEASES = "coordination.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_SIGNING = ("certificates.k8s.io", "CertificateSigningRequest")
_NETWORKING, _STORAGE, _FLOW = "networking.k8s.io", "storage.k8s.io", "flowcontrol.apiserver.k8s.io"
_API_SERVICE = ("apiregistration.k8s.io", "APIService")

CREATE: Mapping[tuple[str, str], Create] = {
    (RESOURCE, "ResourceClaim"): _with_rules(claims.validate_claim),
    (RESOURCE, "ResourceClaimTemplate"): _with_rules(claims.validate_claim_template),
    (RESOURCE, "ResourceSlice"): _alone(slices.validate_slice),
    (RESOURCE, "DeviceClass"): _with_rules(classes.validate_class),
    (RESOURCE, "DeviceTaintRule"): _alone(classes.validate_taint_rule),
    (RESOURCE, "ResourcePoolStatusRequest"): _alone(classes.validate_pool_status_request),
    (_SCHEDULING, "PriorityClass"): _alone(scheduling.validate_priority_class),
    (_SCHEDULING, "Workload"): _with_rules(scheduling.validate_workload),
    (_SCHEDULING, "PodGroup"): _with_rules(scheduling.validate_pod_group),
    ("", "Pod"): _with_rules(pods.validate_pod),
    ("", "PodTemplate"): _with_rules(workloads.validate_pod_template_object),
    ("", "ReplicationController"): _with_rules(workloads.validate_replication_controller),
    ("", "Namespace"): _alone(core.validate_namespace),
    ("", "Node"): _alone(nodes.validate_node),
    ("", "ConfigMap"): _alone(core.validate_config_map),
    ("", "Secret"): _alone(core.validate_secret),
    ("", "Service"): _alone(services.validate_service),
    ("", "ResourceQuota"): _alone(limits.validate_resource_quota),
    ("", "LimitRange"): _alone(limits.validate_limit_range),
    ("", "PersistentVolumeClaim"): _alone(volume_claims.validate_volume_claim),
    ("", "Event"): _alone(events.validate_core_event),
    ("events.k8s.io", "Event"): _alone(events.validate_event),
    ("apps", "Deployment"): _with_rules(workloads.validate_deployment),
    ("apps", "ReplicaSet"): _with_rules(workloads.validate_replica_set),
    ("apps", "StatefulSet"): _with_rules(workloads.validate_stateful_set),
    ("apps", "DaemonSet"): _with_rules(workloads.validate_daemon_set),
    ("apps", "ControllerRevision"): _alone(workloads.validate_controller_revision),
    ("batch", "Job"): _with_rules(jobs.validate_job),
    ("batch", "CronJob"): _with_rules(jobs.validate_cron_job),
    (_RBAC, "Role"): _alone(policies.validate_role),
    (_RBAC, "ClusterRole"): _alone(policies.validate_role),
    (_RBAC, "RoleBinding"): _alone(policies.validate_role_binding),
    (_RBAC, "ClusterRoleBinding"): _alone(policies.validate_role_binding),
    ("policy", "PodDisruptionBudget"): _alone(policies.validate_disruption_budget),
    (_LEASES, "Lease"): _alone(leases.validate_lease),
    (_LEASES, "LeaseCandidate"): _alone(leases.validate_lease_candidate),
    (_NETWORKING, "ServiceCIDR"): _alone(service_networks.validate_service_cidr),
    (_NETWORKING, "IPAddress"): _alone(service_networks.validate_ip_address),
    _SIGNING: _alone(signing_requests.validate_signing_request),
    ("autoscaling", "HorizontalPodAutoscaler"): _with_rules(autoscalers.validate_autoscaler),
    ("", "PersistentVolume"): _alone(persistent_volumes.validate_persistent_volume),
    ("", "Endpoints"): _alone(endpoints.validate_endpoints),
    ("discovery.k8s.io", "EndpointSlice"): _alone(endpoints.validate_endpoint_slice),
    (_NETWORKING, "Ingress"): _alone(ingresses.validate_ingress),
    (_NETWORKING, "IngressClass"): _alone(ingresses.validate_ingress_class),
    (_NETWORKING, "NetworkPolicy"): _alone(ingresses.validate_network_policy),
    (_STORAGE, "StorageClass"): _alone(storage.validate_storage_class),
    (_STORAGE, "VolumeAttributesClass"): _alone(storage.validate_attributes_class),
    (_STORAGE, "CSIDriver"): _alone(storage.validate_csi_driver),
    (_STORAGE, "CSINode"): _alone(storage.validate_csi_node),
    (_STORAGE, "CSIStorageCapacity"): _alone(storage.validate_storage_capacity),
    (_STORAGE, "VolumeAttachment"): _alone(storage.validate_attachment),
    (_FLOW, "FlowSchema"): _alone(flow_control.validate_flow_schema),
    (_FLOW, "PriorityLevelConfiguration"): _alone(flow_control.validate_priority_level),
    ("node.k8s.io", "RuntimeClass"): _alone(policies.validate_runtime_class),
    _API_SERVICE: _alone(api_services.validate_api_service),
    _DEFINITION: _alone(definitions.validate_definition),
    (_ADMISSION, "MutatingWebhookConfiguration"): _alone(registrations.validate_webhooks),
    (_ADMISSION, "ValidatingWebhookConfiguration"): _alone(registrations.validate_webhooks),
    (_ADMISSION, "ValidatingAdmissionPolicy"): _alone(registration_policies.validate_policy),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _alone(registration_policies.validate_binding),
    (_ADMISSION, "MutatingAdmissionPolicy"): _alone(registration_policies.validate_mutating_policy),
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _alone(registration_policies.validate_mutating_binding),
}

UPDATE: Mapping[tuple[str, str], Update] = {
    (RESOURCE, "ResourceClaim"): _pair(claims.validate_claim_update),
    (RESOURCE, "ResourceClaimTemplate"): lambda new, old, kind, rules: claims.validate_claim_template_update(
        new, old, rules
    ),
    (RESOURCE, "ResourceSlice"): _pair(slices.validate_slice_update),
    (RESOURCE, "DeviceClass"): lambda new, old, kind, rules: classes.validate_class_update(new, old, rules),
    (RESOURCE, "DeviceTaintRule"): _pair(classes.validate_taint_rule),
    (RESOURCE, "ResourcePoolStatusRequest"): _pair(classes.validate_pool_status_request_update),
    (_SCHEDULING, "PriorityClass"): _pair(scheduling.validate_priority_class_update),
    (_SCHEDULING, "Workload"): _pair(scheduling.validate_workload_update),
    (_SCHEDULING, "PodGroup"): _pair(scheduling.validate_pod_group_update),
    ("", "Pod"): lambda new, old, kind, rules: pods.validate_pod_update(new, old, rules),
    ("", "PodTemplate"): _again_with_rules(workloads.validate_pod_template_object),
    ("", "ReplicationController"): _again_with_rules(workloads.validate_replication_controller),
    ("", "Namespace"): _again(core.validate_namespace),
    ("", "Node"): _again(nodes.validate_node, nodes.validate_node_update),
    ("", "ConfigMap"): _again(core.validate_config_map, core.validate_config_update),
    ("", "Secret"): _again(core.validate_secret, core.validate_config_update),
    ("", "Service"): _pair(services.validate_service_update),
    ("", "ResourceQuota"): _again(limits.validate_resource_quota, limits.validate_resource_quota_update),
    ("", "LimitRange"): _again(limits.validate_limit_range),
    ("", "PersistentVolumeClaim"): _pair(volume_claims.validate_volume_claim_update),
    ("", "Event"): _again(events.validate_core_event),
    ("events.k8s.io", "Event"): _pair(events.validate_event_update),
    ("apps", "Deployment"): _again_with_rules(workloads.validate_deployment, workloads.validate_selector_unchanged),
    ("apps", "ReplicaSet"): _again_with_rules(workloads.validate_replica_set, workloads.validate_selector_unchanged),
    ("apps", "StatefulSet"): lambda new, old, kind, rules: workloads.validate_stateful_set_update(new, old, rules),
    ("apps", "DaemonSet"): _again_with_rules(workloads.validate_daemon_set, workloads.validate_selector_unchanged),
    ("apps", "ControllerRevision"): _pair(workloads.validate_controller_revision_update),
    ("batch", "Job"): lambda new, old, kind, rules: jobs.validate_job_update(new, old, rules),
    ("batch", "CronJob"): lambda new, old, kind, rules: jobs.validate_cron_job_update(new, old, rules),
    (_RBAC, "Role"): _again(policies.validate_role),
    (_RBAC, "ClusterRole"): _again(policies.validate_role),
    (_RBAC, "RoleBinding"): _pair(policies.validate_role_binding_update),
    (_RBAC, "ClusterRoleBinding"): _pair(policies.validate_role_binding_update),
    ("policy", "PodDisruptionBudget"): _again(policies.validate_disruption_budget),
    (_LEASES, "Lease"): _again(leases.validate_lease),
    (_LEASES, "LeaseCandidate"): _pair(leases.validate_lease_candidate_update),
    (_NETWORKING, "ServiceCIDR"): _pair(service_networks.validate_service_cidr_update),
    (_NETWORKING, "IPAddress"): _pair(service_networks.validate_ip_address_update),
    _SIGNING: _pair(signing_requests.validate_signing_request_update),
    ("autoscaling", "HorizontalPodAutoscaler"): lambda new, old, kind, rules: autoscalers.validate_autoscaler_update(
        new, old, rules
    ),
    ("", "PersistentVolume"): _pair(persistent_volumes.validate_persistent_volume_update),
    ("", "Endpoints"): _pair(endpoints.validate_endpoints_update),
    ("discovery.k8s.io", "EndpointSlice"): _pair(endpoints.validate_endpoint_slice_update),
    (_NETWORKING, "Ingress"): _pair(ingresses.validate_ingress_update),
    (_NETWORKING, "IngressClass"): _pair(ingresses.validate_ingress_class_update),
    (_NETWORKING, "NetworkPolicy"): _pair(ingresses.validate_network_policy_update),
    (_STORAGE, "StorageClass"): _pair(storage.validate_storage_class_update),
    (_STORAGE, "VolumeAttributesClass"): _pair(storage.validate_attributes_class_update),
    (_STORAGE, "CSIDriver"): _pair(storage.validate_csi_driver_update),
    (_STORAGE, "CSINode"): _pair(storage.validate_csi_node_update),
    (_STORAGE, "CSIStorageCapacity"): _pair(storage.validate_storage_capacity_update),
    (_STORAGE, "VolumeAttachment"): _pair(storage.validate_attachment_update),
    (_FLOW, "FlowSchema"): _again(flow_control.validate_flow_schema),
    (_FLOW, "PriorityLevelConfiguration"): _again(flow_control.validate_priority_level),
    ("node.k8s.io", "RuntimeClass"): _pair(policies.validate_runtime_class_update),
    _API_SERVICE: _again(api_services.validate_api_service),
    _DEFINITION: _pair(definitions.validate_definition_update),
    (_ADMISSION, "MutatingWebhookConfiguration"): _pair(registrations.validate_webhooks_update),
    (_ADMISSION, "ValidatingWebhookConfiguration"): _pair(registrations.validate_webhooks_update),
    (_ADMISSION, "ValidatingAdmissionPolicy"): _pair(registration_policies.validate_policy_update),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _again(registration_policies.validate_binding),
    (_ADMISSION, "MutatingAdmissionPolicy"): _pair(registration_policies.validate_mutating_policy_update),
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _again(registration_policies.validate_mutating_binding),
}

STATUS: Mapping[tuple[str, str], Status] = {
    _API_SERVICE: api_services.validate_api_service_status,
    _DEFINITION: definitions.validate_definition_status,
    _SIGNING: signing_requests.validate_signing_request_status,
    (RESOURCE, "ResourceClaim"): claim_status.validate_claim_status,
    (RESOURCE, "DeviceTaintRule"): lambda new, old: classes.validate_taint_rule_status(new),
    (RESOURCE, "ResourcePoolStatusRequest"): classes.validate_pool_status,
    (_SCHEDULING, "PodGroup"): scheduling.validate_pod_group_status,
    ("", "Namespace"): core.validate_namespace_status,
    ("", "Pod"): pod_status.validate_pod_status,
    ("", "PersistentVolumeClaim"): volume_claims.validate_volume_claim_status,
    ("", "ReplicationController"): workload_status.validate_replica_set_status,
    ("", "Service"): services.validate_service_status,
    ("", "ResourceQuota"): limits.validate_resource_quota_status,
    ("apps", "Deployment"): workload_status.validate_deployment_status,
    ("apps", "ReplicaSet"): workload_status.validate_replica_set_status,
    ("apps", "StatefulSet"): workload_status.validate_stateful_set_status,
    ("apps", "DaemonSet"): workload_status.validate_daemon_set_status,
    ("batch", "Job"): job_status.validate_job_status_update,
    ("policy", "PodDisruptionBudget"): policies.validate_disruption_budget_status,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscalers.validate_autoscaler_status,
    ("", "Node"): nodes.validate_node_update,
    (_ADMISSION, "ValidatingAdmissionPolicy"): registration_policies.validate_policy_status,
    (_NETWORKING, "Ingress"): ingresses.validate_ingress_status,
    (_FLOW, "FlowSchema"): flow_control.validate_flow_status,
    (_FLOW, "PriorityLevelConfiguration"): flow_control.validate_flow_status,
    (_STORAGE, "VolumeAttachment"): lambda new, old: storage.validate_attachment(new),
}
