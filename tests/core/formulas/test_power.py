"""Energy from published loads, tariffs and effectiveness."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.formulas.power import facility_energy_kwh, it_power_kw


def test_a_server_for_a_year():
    # textbookofai.com: 10 kW, PUE 1.3, 0.08 a kWh: 10 x 1.3 x 8760 x 0.08 = 9,110.4 a year.
    energy = facility_energy_kwh(it_power_kw=10, power_usage_effectiveness=1.3, hours=8760)
    assert energy * 0.08 == pytest.approx(9110.4)
    assert energy * 0.08 / 400_000 == pytest.approx(0.023, abs=0.0005)  # of a 400 k server
    assert energy * 0.08 / 300_000 == pytest.approx(0.030, abs=0.0005)


def test_one_card_for_a_year():
    # A 500 W card at 0.10 a kWh: 4,380 kWh, 438 a year.
    energy = facility_energy_kwh(it_power_kw=0.5, power_usage_effectiveness=1, hours=8760)
    assert energy == pytest.approx(4380)
    assert energy * 0.10 == pytest.approx(438)


def test_a_gpu_draws_its_share_of_the_whole_node():
    # DGX H100: 10.2 kW for 8 GPUs, 1.275 kW each, not the 0.7 kW of the module.
    power = it_power_kw(gpu_count=1, node_power_kw=10.2, node_gpu_count=8, power_load_fraction=1)
    assert power == pytest.approx(1.275)


def test_arrays_broadcast():
    power = it_power_kw(
        gpu_count=np.array([8, 16]),
        node_power_kw=10.2,
        node_gpu_count=8,
        power_load_fraction=np.array([[0.5], [1.0]]),
    )
    assert power == pytest.approx(np.array([[5.1, 10.2], [10.2, 20.4]]))


@given(
    load=st.floats(0, 1),
    more_load=st.floats(0, 1),
    effectiveness=st.floats(1, 5),
    kw=st.floats(0, 1e6),
)
def test_more_load_never_takes_less_energy(load, more_load, effectiveness, kw):
    def energy(fraction):
        power = it_power_kw(
            gpu_count=8, node_power_kw=kw, node_gpu_count=8, power_load_fraction=fraction
        )
        return facility_energy_kwh(
            it_power_kw=power, power_usage_effectiveness=effectiveness, hours=744
        )

    assert energy(min(load, more_load)) <= energy(max(load, more_load))
