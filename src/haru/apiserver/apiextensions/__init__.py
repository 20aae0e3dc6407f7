"""Custom resources: definitions, conversion, rules, and reading stored objects."""
