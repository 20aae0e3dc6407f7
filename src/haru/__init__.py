"""Haru: Kubernetes 1.36's accelerator stack, one decision engine behind four doors."""

__version__ = "0.1.0"
