"""Carrying preemption out: victims are deleted, places are nominated."""
