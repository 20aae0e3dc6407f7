"""CEL selectors, compiled and evaluated once per distinct device."""
