"""Fits the constants of serving to measured results, whole groups or sources left out.

Every fit starts from the catalog's values and keeps near them by a prior in logarithms. All fits
run together: a constant is an array with one value for each fit and each direction of its gradient.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from zlib import crc32

import numpy as np

from service.accuracy.serving.predict import predicted
from service.accuracy.serving.rows import ServingRow
from service.core.recorder import Recorder
from service.core.replica.lookup import Lookup, engine_qualifiers

HeldOut = Literal["group", "source"]
"""What a fold leaves out whole."""
HELD_OUT: tuple[HeldOut, ...] = ("group", "source")
FOLD_COUNT = 10
SOURCE_LETTERS = 40
"""Start of a source's name that tells it from others: pages of one publication are one source."""
STEP = 0.03
"""Change of a logarithm by which gradients are taken."""
ROUNDS = 5
LOSS_SCALE = 0.07
"""Residual beyond which a row counts less and less (Cauchy)."""
LOADED_FIRST_TOKEN_SCALE = 0.35
KIND_WEIGHT = {"online_throughput": 0.4}
"""Less than one where the length of a test and its limits are mostly not known."""
PRIOR_DEVIATION = 0.3
"""Of logarithms around the catalog's values: wide, or held-out rows would speak through them."""

RATES = tuple(
    f"{base}.{name}"
    for base in ("compute_rate_factor", "memory_rate_factor")
    for name in ("hopper", "blackwell", "ada", "ampere", "blackwell_workstation", "cdna")
    if (base, name) != ("memory_rate_factor", "ampere")
)
KERNELS = (
    "gemm_fixed_relative_fraction",
    "gemm_compute_fraction.hopper.fp8",
    "expert_fixed_us",
    "expert_compute_relative_fraction",
    "expert_compute_relative_fraction.tensorrt-llm-0_10",
    "expert_compute_relative_fraction.mlperf-submission-1",
    "expert_bandwidth_fraction",
    "expert_overlap_exponent",
    "expert_width_at_half_speed",
    "expert_padding_tokens",
    "expert_independent_fraction",
    "decode_attention_bandwidth_fraction",
    "prefill_attention_compute_fraction",
    "all_reduce_latency_us.scale_up",
    "all_reduce_latency_us.pcie",
    "all_reduce_latency_growth_fraction",
    "all_reduce_latency_factor.vllm-0_2",
    "link_bandwidth_fraction.scale_up",
    "link_bandwidth_fraction.scale_up.hopper",
    "link_bandwidth_fraction.pcie",
    "weight_only_extra_bytes_per_parameter",
    "sparse_index_layer_us",
)
_HOSTS_BY_ENGINE = tuple(
    f"{base}.{engine}"
    for base, engines in {
        "host_layer_us": (
            "vllm-0_2",
            "vllm-0_8",
            "sglang-0_4",
            "tensorrt-llm-0_20",
            "mlperf-submission-1",
            "compiled-1",
        ),
        "host_prompt_ms": ("vllm-0_2",),
        "host_sequence_us": ("vllm-0_2", "vllm-0_8", "sglang-0_4", "tensorrt-llm-0_20"),
        "host_request_ms": ("vllm-0_2", "vllm-0_8", "sglang-0_4", "tensorrt-llm-0_20"),
        "launch_layer_ms": ("vllm-0_2", "vllm-0_8", "sglang-0_4"),
    }.items()
    for engine in engines
)
HOSTS = (
    *_HOSTS_BY_ENGINE,
    "launch_tensor_parallel_factor",
    "prefill_slowdown_factor.llama-cpp-1",
    "prefill_slowdown_factor.compiled-1",
)
WAITING = (
    "host_loaded_request_ms.vllm-0_8",
    "host_loaded_request_ms.sglang-0_4",
    "host_loaded_request_ms.tensorrt-llm-0_20",
    "loaded_ttft_slope_fraction",
    "loaded_ttft_slope_fraction.sglang-0_4",
    "loaded_ttft_slope_fraction.tensorrt-llm-0_10",
)
"""Fitted last and alone: the first token's wait scatters so much that it would bend all else."""
SPEED = RATES + KERNELS + HOSTS


@dataclass(frozen=True)
class FactorLookup(Lookup):
    """Looks constants up with a factor on each, or an array of factors."""

    factors: Mapping[str, Any] | None = None

    def __call__(self, name: str, *qualifiers: str) -> Any:
        """The catalog's value times its factor."""
        found, scale = self._found(name, qualifiers)
        return found.value * scale * (self.factors or {}).get(found.name, 1.0)


def logs(cases: Sequence[ServingRow], factors: Mapping[str, Any], recorder: Recorder) -> Any:
    """ln(predicted / measured) of rows, one column for each element of the factors."""
    rows = []
    for case in cases:
        engine = engine_qualifiers(recorder.snapshot, case.engine, pointer="")
        look = FactorLookup(recorder, engine, factors=factors)
        ratio = predicted(case, look, recorder) / case.measured
        rows.append(np.log(np.maximum(ratio, 1e-9)))
    width = max(np.size(row) for row in rows)
    return np.stack([np.broadcast_to(row, width) for row in rows])


def is_loaded_first_token(case: ServingRow) -> bool:
    """True for a first token among other requests."""
    return case.row["kind"] == "ttft" and not case.is_alone


def row_weights(cases: Sequence[ServingRow]) -> Any:
    """One for each group of a kind, shared by its rows."""
    keys = [(case.row["kind"], case.row["group"]) for case in cases]
    return np.array([KIND_WEIGHT.get(key[0], 1.0) / keys.count(key) for key in keys])


def fit(
    cases: Sequence[ServingRow],
    names: Sequence[str],
    kept: Any,
    recorder: Recorder,
    *,
    fixed: Mapping[str, Any] | None = None,
) -> Any:
    """Logarithms of factors on named constants, one row for each fit.

    Args:
        cases: Rows to fit to.
        names: Constants that move.
        kept: One row for each fit, one column for each case: true where the fit may see it.
        recorder: Gives the catalog's values.
        fixed: Factors of other constants, one for each fit.
    """
    fits, count = kept.shape[0], len(names)
    theta = np.zeros((fits, count))
    base = row_weights(cases)
    loaded = np.array([is_loaded_first_token(case) for case in cases])
    scale = np.where(loaded, LOADED_FIRST_TOKEN_SCALE, LOSS_SCALE)
    for _ in range(ROUNDS):
        found = _gradients(cases, names, theta, recorder, fixed or {})
        for index in range(fits):
            residual = found[index, :, 0]
            jacobian = (found[index, :, 1:] - found[index, :, :1]) / STEP
            weight = base * kept[index] / (1 + (residual / scale) ** 2) / scale**2
            left = jacobian.T @ (weight[:, None] * jacobian) + np.eye(count) / PRIOR_DEVIATION**2
            right = -jacobian.T @ (weight * residual) - theta[index] / PRIOR_DEVIATION**2
            theta[index] += np.clip(np.linalg.solve(left, right), -0.5, 0.5)
    return theta


def _gradients(
    cases: Sequence[ServingRow],
    names: Sequence[str],
    theta: Any,
    recorder: Recorder,
    fixed: Mapping[str, Any],
) -> Any:
    """Residuals by fit, row and direction; the first direction is none."""
    fits, count = theta.shape
    points = np.repeat(theta[:, None, :], count + 1, axis=1)
    points[:, 1:, :] += STEP * np.eye(count)
    factors = {name: np.exp(points[:, :, place]).ravel() for place, name in enumerate(names)}
    factors |= {name: np.repeat(value, count + 1) for name, value in fixed.items()}
    found = logs(cases, factors, recorder)
    return found.reshape(len(cases), fits, count + 1).swapaxes(0, 1)


def folds_of(cases: Sequence[ServingRow], held_out: HeldOut) -> Any:
    """Fold of each row: whole groups or whole sources together, by a checksum of the name."""
    length = {"group": None, "source": SOURCE_LETTERS}[held_out]
    return np.array([crc32(case.row[held_out][:length].encode()) % FOLD_COUNT for case in cases])
