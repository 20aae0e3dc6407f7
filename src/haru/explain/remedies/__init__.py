"""What would help: changes, each confirmed by deciding again with it."""
