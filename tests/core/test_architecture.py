"""Parameter counts are the published exact ones, so every term of the sums is needed."""

import pytest

from service.core.architecture.attention import FullAttention, LatentAttention
from service.core.architecture.model import DenseFeedForward, LayerGroup, ModelArchitecture


def dense(layers, hidden, heads, kv_heads, head_dim, width, vocab, *, tied=False):
    return ModelArchitecture(
        name="dense",
        hidden_size=hidden,
        vocab_size=vocab,
        tie_word_embeddings=tied,
        layer_groups=(
            LayerGroup(
                count=layers,
                attention=FullAttention(
                    num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim
                ),
                feed_forward=DenseFeedForward(intermediate_size=width),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("architecture", "published"),
    [
        # Exact counts of the published checkpoints.
        (dense(32, 4096, 32, 8, 128, 14336, 128256), 8_030_261_248),
        (dense(80, 8192, 64, 8, 128, 28672, 128256), 70_553_706_496),
        (dense(80, 8192, 64, 8, 128, 28672, 32000), 68_976_648_192),
    ],
)
def test_dense_counts_equal_the_checkpoints(architecture, published):
    assert architecture.parameter_count == published


def test_gpt2_counts_its_tied_head_once_and_still_multiplies_by_it():
    gpt2 = ModelArchitecture(
        name="GPT-2 124M",
        hidden_size=768,
        vocab_size=50257,
        tie_word_embeddings=True,
        norm_bias=True,
        learned_position_count=1024,
        layer_groups=(
            LayerGroup(
                count=12,
                attention=FullAttention(
                    num_attention_heads=12,
                    num_key_value_heads=12,
                    head_dim=64,
                    query_key_value_bias=True,
                    output_bias=True,
                ),
                feed_forward=DenseFeedForward(intermediate_size=3072, gated=False, bias=True),
            ),
        ),
    )
    assert gpt2.parameter_count == 124_439_808  # huggingface/transformers#14960
    assert gpt2.head_parameter_count == 38_597_376
    # The position rows (1024·768) are looked up, never multiplied; the tied matrix is multiplied.
    assert gpt2.matmul_active_parameter_count == 124_439_808 - 1024 * 768


def test_tying_changes_weights_but_not_multiplied_weights():
    untied = dense(16, 2048, 32, 8, 64, 8192, 128256)
    tied = dense(16, 2048, 32, 8, 64, 8192, 128256, tied=True)
    assert untied.parameter_count - tied.parameter_count == 2048 * 128256
    assert untied.matmul_active_parameter_count == tied.matmul_active_parameter_count


def test_head_width_is_read_and_never_divided():
    # Mistral Small 24B: 40 layers cache 2·8·128 elements, not 2·8·160 (llm-d-planner measurement).
    small = dense(40, 5120, 32, 8, 128, 32768, 131072)
    elements = small.layer_groups[0].attention.cache_elements_per_token
    assert 40 * elements * 2 == 163_840


def test_latent_attention_caches_one_joint_vector():
    # DeepSeek-V3: 61·(512 + 64)·2 B = 70,272 B a token, no factor 2 for keys and values.
    latent = LatentAttention(
        num_attention_heads=128,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )
    assert 61 * latent.cache_elements_per_token * 2 == 70_272
    assert latent.cache_shard_count == 1


def test_key_value_heads_are_a_number_of_heads_and_no_size_of_a_group():
    """32 query heads and 8: eight key/value heads, each for four query heads; never four heads.

    Keys and values of a layer take 2 x 4096 x 8 x 128 weights; a token's cache 2 x 8 x 128 numbers.
    """
    attention = FullAttention(num_attention_heads=32, num_key_value_heads=8, head_dim=128)
    alone = FullAttention(num_attention_heads=32, num_key_value_heads=32, head_dim=128)
    saved = [each.parameter_count(4096) for each in (alone, attention)]
    assert saved[0] - saved[1] == 2 * 4096 * (32 - 8) * 128
    assert attention.cache_elements_per_token == 2 * 8 * 128
