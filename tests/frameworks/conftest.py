"""JAX with four devices on the CPU, for what is spread over several. It reads this when it is first used."""

from __future__ import annotations

import os

FOUR = "--xla_force_host_platform_device_count=4"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FOUR}".strip()
