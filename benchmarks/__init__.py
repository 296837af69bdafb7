"""What Antiphon costs, beside a lean target and the peers that are installed: `python -m benchmarks`."""
