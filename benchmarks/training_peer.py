"""Training speed by the estimate and by a peer, on the same published rows and in the same run.

    .venv/bin/python -m benchmarks.training_peer

The peer is `llm-analysis` (`pip install --no-deps llm-analysis fire termcolor` into a folder on
PYTHONPATH). It takes the share of the peak as an input: it is given the one that fits these very
rows best, so its error is in-sample; the estimate is shown in-sample and by constants that were
fitted without each row's source. Rows are dense 16-bit ones on parts that the peer knows; what it
refuses is counted.
"""

import importlib
import logging

import numpy as np

from benchmarks.fit_training import FOLDS_FILE, Rows, described, snapshot_of_today
from service.accuracy.files import read_rows
from service.accuracy.training import cross_validate_training
from service.accuracy.training_run import token_rate

PEER_GPUS = {
    "h100-sxm5-80gb": "h100-sxm-80gb",
    "a100-sxm4-80gb": "a100-sxm-80gb",
    "a100-sxm4-40gb": "a100-sxm-40gb",
}
TRIED = np.linspace(0.30, 0.95, 27)
"""Shares of the peak that the peer is given, of which the best is kept."""


def peer_rate(prepared, peak_fraction, analysis, config):
    """Tokens per second and GPU by the peer, None where it refuses the row."""
    try:
        return _peer_rate(prepared, peak_fraction, analysis, config)
    except (AssertionError, ValueError, ZeroDivisionError):
        return None


def _peer_rate(prepared, peak_fraction, analysis, config):
    a, settings = prepared.architecture, prepared.settings
    group, axes = a.layer_groups[0], settings.axes
    model = config.ModelConfig(
        name="row",
        num_layers=a.num_hidden_layers,
        n_head=group.attention.num_heads,
        hidden_dim=a.hidden_size,
        vocab_size=a.vocab_size,
        max_seq_len=settings.sequence_tokens,
        num_key_value_heads=group.attention.num_key_value_heads,
        # It takes whole multiples alone as a width, and any ratio beside it.
        expansion_ratio=group.feed_forward.intermediate_size / a.hidden_size,
    )
    degrees = config.ParallelismConfig(int(axes.tensor), int(axes.pipeline), int(axes.data))
    recompute = analysis.ActivationRecomputation
    found = analysis.LLMAnalysis(
        model,
        config.get_gpu_config_by_name(PEER_GPUS[prepared.gpu.key]),
        config.get_dtype_config_by_name("w16a16e16"),
        degrees,
        flops_efficiency=float(peak_fraction),
    ).training(
        batch_size_per_gpu=int(axes.micro_batch_sequences),
        gradient_accumulation_steps=int(axes.micro_batch_count),
        seq_len=settings.sequence_tokens,
        activation_recomputation=recompute.FULL if axes.is_full_recompute else recompute.NONE,
        ds_zero=analysis.DSZeRO(min(3, int(axes.zero_stage))),
        mlp_gated_linear_units=bool(group.feed_forward.gated),
    )
    tokens = int(axes.micro_batch_sequences * axes.micro_batch_count) * settings.sequence_tokens
    return tokens * int(axes.data) / (found["latency_per_iter"] * int(axes.gpu_count))


def main():
    logging.disable(logging.CRITICAL)
    analysis = importlib.import_module("llm_analysis.analysis")
    config = importlib.import_module("llm_analysis.config")
    snapshot = snapshot_of_today()
    rows = Rows(snapshot)
    records = read_rows(FOLDS_FILE.parent / "training.csv")
    held_out = cross_validate_training(records, read_rows(FOLDS_FILE), snapshot, scheme="source")
    unseen = {row.id: row.error for row in held_out.scored}
    chosen = [
        (prepared, actual)
        for prepared, actual in zip(rows.prepared, rows.actual, strict=True)
        if prepared.gpu.key in PEER_GPUS
        and prepared.settings.precision == "bf16"
        and not prepared.architecture.is_mixture
        and hasattr(prepared.architecture.layer_groups[0].attention, "num_key_value_heads")
    ]
    first = [peer_rate(prepared, TRIED[0], analysis, config) for prepared, _ in chosen]
    both = [pair for pair, rate in zip(chosen, first, strict=True) if rate]
    print(f"{len(chosen)} rows, of which the peer refuses {len(chosen) - len(both)}")
    tried = [
        np.array([np.log(peer_rate(p, share, analysis, config) / actual) for p, actual in both])
        for share in TRIED
    ]
    best = min(range(len(TRIED)), key=lambda i: np.median(np.abs(tried[i])))
    ours = np.array([np.log(float(token_rate(p)) / actual) for p, actual in both])
    print(f"peer, best share of the peak {TRIED[best]:.3f}:", described(tried[best]))
    print("estimate, in-sample:", described(ours))
    print("estimate, without the source:", described(np.array([unseen[p.row.id] for p, _ in both])))


if __name__ == "__main__":
    main()
