"""Conditions and events about decisions."""
