"""What holds for every test: bounded property tests."""

from hypothesis import HealthCheck, settings

# No deadline: two busy cores say nothing about the code. Few examples: the suite has 20 minutes in all.
settings.register_profile("house", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")
