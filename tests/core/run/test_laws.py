"""Laws that hold for every run, whatever its sizes."""

from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.core.parallelism.axes import SHARDINGS, LayoutAxes
from tests.core.training_runs import MFU_40, answer, case_of, on, snapshot

ARCHITECTURES = (
    "llama-3.2-1b",
    "llama-3.1-8b",
    "llama-3.1-70b",
    "mixtral-8x7b",
    "deepseek-v3",
    "gemma-3-27b",
    "gpt-oss-20b",
)
RECIPES = (
    "mixed_bf16_adam_bf16_gradients",
    "mixed_bf16_adam_fp32_gradients",
    "pure_bf16_adam",
    "fp32_weights_bf16_compute_adam",
)
powers = st.sampled_from
WIDE = {"global_batch_tokens": 2**22}
UNTIMED = settings(deadline=None)
"""The first example of a test also reads the catalog."""


@st.composite
def layouts(draw):
    """Degrees that need not be legal: the laws hold for any."""
    virtual = draw(powers((1, 1, 2)))
    return LayoutAxes(
        tensor=draw(powers((1, 2, 8))),
        pipeline=draw(powers((1, 2, 7, 16))),
        virtual=virtual,
        context=draw(powers((1, 2))),
        expert=draw(powers((1, 4, 8))),
        data=draw(powers((1, 2, 8, 64, 512))),
        sharding=0,
        micro_batch_sequences=draw(powers((1, 2, 4))),
        micro_batch_count=draw(powers((1, 4, 32))),
        recompute=draw(powers((0, 1, 2))),
        sequence_parallel=draw(st.booleans()),
    )


def memory_of(axes, architecture, **fields):
    case = case_of(architecture=architecture, **fields)
    return float(case.layouts.memory.terms(axes, case.recorder.off()).total)


def sharded(axes, name):
    degrees = {field: getattr(axes, field) for field in LayoutAxes.__dataclass_fields__}
    return LayoutAxes(**degrees | {"sharding": SHARDINGS.index(name)})


@UNTIMED
@given(layouts(), powers(ARCHITECTURES), powers(RECIPES))
def test_more_sharding_never_raises_memory(axes, architecture, recipe):
    held = [
        memory_of(sharded(axes, name), architecture, state_recipe=recipe)
        for name in ("none", "zero_1", "zero_2", "zero_3")
    ]
    for less, more in pairwise(held):
        assert more <= less * (1 + 1e-12)
    hybrid = memory_of(sharded(axes, "hybrid"), architecture, state_recipe=recipe)
    assert held[3] <= hybrid * (1 + 1e-12)
    assert hybrid <= held[0] * (1 + 1e-12)


@UNTIMED
@given(layouts(), powers(ARCHITECTURES), powers(SHARDINGS), st.integers(6, 17), st.integers(1, 4))
def test_a_longer_sequence_never_lowers_memory(axes, architecture, sharding, length, doublings):
    axes = sharded(axes, sharding)
    short = memory_of(axes, architecture, sequence_length_tokens=2**length, **WIDE)
    long = memory_of(axes, architecture, sequence_length_tokens=2 ** (length + doublings), **WIDE)
    assert long > short


@UNTIMED
@given(layouts(), powers(ARCHITECTURES), powers(SHARDINGS))
def test_recomputing_more_never_raises_what_is_held_by_more_than_a_layer(
    axes, architecture, sharding
):
    axes = sharded(axes, sharding)
    degrees = {field: getattr(axes, field) for field in LayoutAxes.__dataclass_fields__}
    none, full = (
        memory_of(LayoutAxes(**degrees | {"recompute": kind}), architecture) for kind in (0, 2)
    )
    # With one layer a stage in flight, nothing is saved and the layer is rebuilt beside its input.
    assume(axes.pipeline < 16)
    assert full <= none


@settings(UNTIMED, max_examples=60)
@given(
    st.integers(1, 500).map(lambda eights: 8 * eights),
    st.integers(1, 100).map(lambda eights: 8 * eights),
    st.floats(0.05, 0.7),
    st.integers(10**9, 10**14),
)
def test_more_gpus_never_lengthen_a_run_of_given_mfu(count, added, mfu, tokens):
    speed = {"kind": "mfu", "mfu_fraction": mfu}
    fields = {"architecture": "deepseek-v4-pro", "speed": speed, "training_tokens": tokens}
    fewer, _ = answer(sizing=on(count), **fields)
    more, _ = answer(sizing=on(count + added), **fields)
    assume(not isinstance(fewer, tuple) and not isinstance(more, tuple))
    assert more.steady_hours < fewer.steady_hours
    assert more.wall_clock_hours.value < fewer.wall_clock_hours.value
    assert more.gpu_hours >= fewer.gpu_hours * (1 - 1e-12)


@settings(UNTIMED, max_examples=40)
@given(
    powers(ARCHITECTURES),
    powers(("h100-sxm5-80gb", "b200-sxm-180gb", "a100-sxm4-80gb", "gb200-nvl72")),
    st.integers(1, 64).map(lambda eights: 8 * eights),
    powers(({"kind": "estimated"}, MFU_40)),
)
def test_an_answer_is_deterministic_ordered_and_leaves_the_catalog_alone(
    architecture, gpu, count, speed
):
    before = hash_of(snapshot())
    first, recorder = answer(architecture=architecture, gpu=gpu, sizing=on(count), speed=speed)
    second, again = answer(architecture=architecture, gpu=gpu, sizing=on(count), speed=speed)
    assert first == second
    assert recorder.quantities() == again.quantities()
    assert hash_of(snapshot()) == before
    if isinstance(first, tuple):
        assert all(reason.nearest_fix for reason in first)
        return
    band = first.wall_clock_hours
    assert 0 < band.low <= band.value <= band.high
    assert first.memory.total < 0.95 * first.memory.available
    for quantity in recorder.quantities():
        if quantity.value is not None:
            assert quantity.low <= quantity.value <= quantity.high


def hash_of(catalog):
    """A digest of everything a planner could touch."""
    return hash(
        (
            tuple(sorted(catalog.gpus)),
            tuple(gpu.model_dump_json() for gpu in catalog.gpus.values()),
            tuple(a.model_dump_json() for a in catalog.assumptions.values()),
            tuple(catalog.architecture(key).model_dump_json() for key in ARCHITECTURES),
        )
    )
