"""Conversion factors, and the closed list of units that a quantity may carry.

GB is 10^9 bytes, GiB is 2^30 bytes. FLOP counts are dense multiply-adds at two operations each.
"""

from typing import Literal

BYTES_PER_GB = 1e9
BYTES_PER_GIB = float(2**30)
BYTES_PER_MIB = float(2**20)
BITS_PER_BYTE = 8
FLOP_PER_S_PER_TFLOPS = 1e12
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86_400.0
HOURS_PER_DAY = 24
HOURS_PER_YEAR = 8760.0
MONTHS_PER_YEAR = 12
HOURS_PER_MONTH = HOURS_PER_YEAR / MONTHS_PER_YEAR
GRAMS_PER_KILOGRAM = 1000.0
TOKENS_PER_MILLION = 1e6

Unit = Literal[
    "1",
    "count",
    "B",
    "GiB",
    "B/token",
    "B/s",
    "FLOP",
    "FLOP/token",
    "FLOP/s",
    "FLOP/B",
    "token",
    "token/s",
    "request/s",
    "unit/s",
    "s",
    "h",
    "d",
    "gpu_hour",
    "gpu_month",
    "kWh",
    "kg",
    "kW",
    "W",
    "USD",
    "USD/gpu_hour",
    "USD/million_token",
    "1/d",
    "currency",
    "currency/gpu_hour",
    "currency/million_token",
]
"""Units of quantities. "1" is a plain ratio; "currency" is the plan's own currency."""

Per = Literal["gpu", "node", "replica", "pool", "run", "service", "plan", "token", "sequence"]
"""What one value belongs to: the commonest wrong number in the field is a mixed-up "per"."""
