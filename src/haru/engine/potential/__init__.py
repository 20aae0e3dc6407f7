"""What is left of nodes and cards, valued by what work is expected to ask for: the measure of Haru's packing."""

from haru.engine.potential.potential import CARD, Ask, Potential, Tuning

__all__ = ["CARD", "Ask", "Potential", "Tuning"]
