"""What a pod needs next and what is told of it: decisions on plain values, without input or output."""
