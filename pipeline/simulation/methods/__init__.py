"""Simulators of the prompts of each method, one module per method."""
