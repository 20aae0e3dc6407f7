"""Admission: what the cluster's policy adds to a write, or why it refuses it; a module per plugin or subject."""
