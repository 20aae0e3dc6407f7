"""Seeded load on any cluster, and the promises of its scheduler checked at every revision."""
