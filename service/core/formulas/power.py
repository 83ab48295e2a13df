"""Electric power and energy of nodes and of the hall around them.

All arguments may be numpy arrays; they broadcast.
"""

from typing import Any

from service.core.registry import quantity
from service.core.units import GRAMS_PER_KILOGRAM


def it_power_kw(
    *, gpu_count: Any, node_power_kw: Any, node_gpu_count: Any, power_load_fraction: Any
) -> Any:
    """Mean draw of GPUs with their share of the node, before cooling. [kW]

    G · (P_node / G_node) · load, P_node being the highest draw of the whole node.

    References:
        Barroso, Hölzle and Ranganathan, The Datacenter as a Computer, 3rd edition, 2018,
        section 5.2 (nameplate, peak and mean draw).

    Examples:
        Eight nodes of 10.2 kW at 80 %: 65.28 kW.

        >>> round(it_power_kw(gpu_count=64, node_power_kw=10.2, node_gpu_count=8,
        ...                   power_load_fraction=0.8), 6)
        65.28
    """
    return gpu_count * node_power_kw / node_gpu_count * power_load_fraction


def facility_energy_kwh(*, it_power_kw: Any, power_usage_effectiveness: Any, hours: Any) -> Any:
    """Energy that is metered for IT and for what cools it. [kWh]

    P_IT · PUE · h. Where a power figure already holds the cooling, PUE is 1.

    References:
        ISO/IEC 30134-2:2016, Power usage effectiveness.

    Examples:
        A 10 kW server over a year at PUE 1.3: 10 · 1.3 · 8760 = 113,880 kWh, at 0.08 a kWh 9,110.

        >>> facility_energy_kwh(it_power_kw=10, power_usage_effectiveness=1.3, hours=8760)
        113880.0
    """
    return it_power_kw * power_usage_effectiveness * hours


@quantity(
    "carbon_kg",
    unit="kg",
    per="pool",
    formula="energy x carbon of a kWh at the site / 1000",
)
def carbon_kg(*, energy_kwh: Any, carbon_g_per_kwh: Any) -> Any:
    """Carbon of the electricity, as CO2 equivalent. [kg]

    E · c / 1000; energy with what cools it, as the grid gives it. What making the hardware took is
    not in it.

    References:
        GHG Protocol Scope 2 Guidance, 2015, chapter 6 (location-based method).

    Examples:
        113,880 kWh at 400 g: 45,552 kg.

        >>> carbon_kg(energy_kwh=113_880, carbon_g_per_kwh=400)
        45552.0
    """
    return energy_kwh * carbon_g_per_kwh / GRAMS_PER_KILOGRAM
