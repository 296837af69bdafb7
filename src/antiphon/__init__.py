"""Durable sessions for agents that speak and agents that write."""
