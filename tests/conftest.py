"""What holds for every test: bounded property tests."""

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("antiphon.testing.model_suite", "antiphon.testing.store_suite")

# No deadline: two busy cores say nothing about the code. Few examples: the suite has 20 minutes in all. The same ones in
# every run: what fails here fails for everybody who has this commit. `make hunt` looks elsewhere.
settings.register_profile(
    "house", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("hunt", max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")
