"""Anthropic's Claude, in turns."""
