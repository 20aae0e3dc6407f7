"""Finalizers that admission gives to new objects; a controller takes each off once nobody uses the object."""

from __future__ import annotations

POD_GROUP_PROTECTION = "scheduling.k8s.io/podgroup-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
VOLUME_CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_ATTRIBUTES_CLASS_PROTECTION = "kubernetes.io/vac-protection"
