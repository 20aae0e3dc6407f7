"""Finalizers of what may be in use: admission or a controller gives them, a controller takes each off after use."""

from __future__ import annotations

POD_GROUP_PROTECTION = "scheduling.k8s.io/podgroup-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
VOLUME_CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
SERVICE_CIDR_PROTECTION = "networking.k8s.io/service-cidr-finalizer"
VOLUME_ATTRIBUTES_CLASS_PROTECTION = "kubernetes.io/vac-protection"
