"""Options of the programs that start workloads, as their documentation has them.

Facts alone: names, and what values they take where that is a closed list. What is not listed here
is refused by the tests.
"""

NUMBER = None
"""Any number, name or path."""
SWITCH = ()
"""No value follows."""

# PyTorch documentation, torchrun (Elastic Launch), of the stable release.
TORCHRUN = {
    "--nnodes": NUMBER,
    "--nproc-per-node": NUMBER,
    "--standalone": SWITCH,
    "--rdzv-backend": {"c10d"},
    "--rdzv-endpoint": NUMBER,
    "--rdzv-id": NUMBER,
    "-m": {"torchtitan.train"},
}
# NVIDIA/Megatron-LM, megatron/training/arguments.py; Megatron Core developer guide, Megatron FSDP.
MEGATRON = {
    "--tensor-model-parallel-size": NUMBER,
    "--pipeline-model-parallel-size": NUMBER,
    "--num-virtual-stages-per-pipeline-rank": NUMBER,
    "--context-parallel-size": NUMBER,
    "--expert-model-parallel-size": NUMBER,
    "--expert-tensor-parallel-size": NUMBER,
    "--sequence-parallel": SWITCH,
    "--use-distributed-optimizer": SWITCH,
    "--use-megatron-fsdp": SWITCH,
    "--data-parallel-sharding-strategy": {"no_shard", "optim", "optim_grads", "optim_grads_params"},
    "--no-gradient-accumulation-fusion": SWITCH,
    "--ckpt-format": {"fsdp_dtensor"},
    "--micro-batch-size": NUMBER,
    "--global-batch-size": NUMBER,
    "--seq-length": NUMBER,
    "--train-iters": NUMBER,
    "--bf16": SWITCH,
    "--fp16": SWITCH,
    "--fp8-format": {"e4m3", "hybrid"},
    "--grad-reduce-in-bf16": SWITCH,
    "--recompute-granularity": {"full", "selective"},
    "--recompute-method": {"uniform", "block"},
    "--recompute-num-layers": NUMBER,
    "--log-throughput": SWITCH,
}
# The package torchtitan 0.2.2, torchtitan/config/job_config.py.
TORCHTITAN = {
    "--job.config_file": NUMBER,
    "--parallelism.tensor_parallel_degree": NUMBER,
    "--parallelism.pipeline_parallel_degree": NUMBER,
    "--parallelism.pipeline_parallel_microbatch_size": NUMBER,
    "--parallelism.context_parallel_degree": NUMBER,
    "--parallelism.expert_parallel_degree": NUMBER,
    "--parallelism.expert_tensor_parallel_degree": NUMBER,
    "--parallelism.data_parallel_replicate_degree": NUMBER,
    "--parallelism.data_parallel_shard_degree": NUMBER,
    "--parallelism.fsdp_reshard_after_forward": {"default", "always", "never"},
    "--training.local_batch_size": NUMBER,
    "--training.global_batch_size": NUMBER,
    "--training.seq_len": NUMBER,
    "--training.steps": NUMBER,
    "--training.enable_cpu_offload": SWITCH,
    "--activation_checkpoint.mode": {"selective", "full", "memory_budget", "none"},
    "--activation_checkpoint.selective_ac_option": NUMBER,
}
# vLLM documentation: engine arguments from 0.8.5 on, data parallel deployment from 0.9 on.
VLLM = {
    "--served-model-name": NUMBER,
    "--tensor-parallel-size": NUMBER,
    "--pipeline-parallel-size": NUMBER,
    "--data-parallel-size": NUMBER,
    "--distributed-executor-backend": {"ray", "mp", "uni", "external_launcher"},
    "--dtype": {"auto", "half", "float16", "bfloat16", "float", "float32"},
    "--quantization": {"fp8", "bitsandbytes"},
    "--kv-cache-dtype": {"auto", "fp8", "fp8_e5m2", "fp8_e4m3"},
    "--gpu-memory-utilization": NUMBER,
    "--max-num-seqs": NUMBER,
    "--max-num-batched-tokens": NUMBER,
    "--max-model-len": NUMBER,
    "--enable-expert-parallel": SWITCH,
}
# The package sglang 0.4.9.post6, sglang/srt/server_args.py.
SGLANG = {
    "--model-path": NUMBER,
    "--served-model-name": NUMBER,
    "--tp-size": NUMBER,
    "--pp-size": NUMBER,
    "--dp-size": NUMBER,
    "--ep-size": NUMBER,
    "--nnodes": NUMBER,
    "--node-rank": NUMBER,
    "--dist-init-addr": NUMBER,
    "--dtype": {"auto", "half", "float16", "bfloat16", "float", "float32"},
    "--quantization": {"fp8", "bitsandbytes"},
    "--kv-cache-dtype": {"auto", "fp8_e5m2", "fp8_e4m3"},
    "--mem-fraction-static": NUMBER,
    "--max-running-requests": NUMBER,
    "--chunked-prefill-size": NUMBER,
    "--context-length": NUMBER,
    "--enable-dp-attention": SWITCH,
    "--enable-metrics": SWITCH,
}
# TensorRT-LLM 0.18.2 documentation, commands, trtllm-serve.
TRTLLM = {
    "--backend": {"pytorch"},
    "--tp_size": NUMBER,
    "--pp_size": NUMBER,
    "--max_batch_size": NUMBER,
    "--max_num_tokens": NUMBER,
    "--max_seq_len": NUMBER,
    "--kv_cache_free_gpu_memory_fraction": NUMBER,
}
# vLLM documentation, production metrics, of 0.8.5, 0.9.1 and stable: 0.9 renamed the cache's.
VLLM_METRICS = {
    "vllm:time_to_first_token_seconds",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
}
OLD_VLLM_METRICS = {*VLLM_METRICS - {"vllm:kv_cache_usage_perc"}, "vllm:gpu_cache_usage_perc"}
# The package sglang 0.4.9.post6, sglang/srt/metrics/collector.py.
SGLANG_METRICS = {
    "sglang:time_to_first_token_seconds",
    "sglang:num_queue_reqs",
    "sglang:token_usage",
}
