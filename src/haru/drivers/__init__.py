"""DRA drivers: what publishes devices. `simulated` invents them."""
