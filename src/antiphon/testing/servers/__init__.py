"""Loopback servers that speak the protocols of model providers, with their rules."""
