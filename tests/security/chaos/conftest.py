"""The seed of random faults."""

import os
import random

import pytest


@pytest.fixture
def seed() -> int:
    """A new seed for each run, shown if a test fails; ``DEID_TEST_SEED`` repeats it."""
    chosen = int(os.environ.get("DEID_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"DEID_TEST_SEED={chosen}")  # noqa: T201
    return chosen
