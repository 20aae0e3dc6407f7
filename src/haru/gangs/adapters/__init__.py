"""One adapter for each project whose labels and objects name gangs."""
