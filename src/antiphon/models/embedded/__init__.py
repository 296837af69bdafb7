"""The embedded model: no key, no network, deterministic."""
