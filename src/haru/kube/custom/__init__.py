"""Custom resources: structural schemas and what they do to objects (KEP 95, 2332)."""
