"""Probes and hooks of containers."""
