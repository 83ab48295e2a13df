"""What a question about a run refuses, in the words of JSON and with the place of the fault."""

import pytest

from tests.api.test_unknown_keys import body_with, path_of

MEMORY = "estimate_training_memory"


def refused(client, operation, pointer, value):
    response = client.post(path_of(operation), json=body_with(operation, pointer, value))
    assert response.status_code == 422
    [error] = response.json()["errors"]
    return error


@pytest.mark.parametrize(
    ("operation", "pointer", "sent", "detail"),
    [
        ("estimate_training_run", "/ranked_gpus", 5, "Input should be a valid list"),
        ("estimate_training_run", "/run", 5, "Input should be an object"),
        (MEMORY, "/assumption_overrides", [], "Input should be an object"),
        (
            "estimate_training_run",
            "/ranked_gpus",
            ["h100-sxm5-80gb"] * 101,
            "List should have at most 100 items, not 101",
        ),
    ],
)
def test_types_are_called_as_json_calls_them(client, operation, pointer, sent, detail):
    assert refused(client, operation, pointer, sent) == {"pointer": pointer, "detail": detail}


def test_a_name_at_the_start_of_a_sentence_keeps_its_case(client):
    error = refused(client, MEMORY, "/assumption_overrides", {"training_context_gib": 1e9})
    assert error["pointer"] == "/assumption_overrides/training_context_gib"
    assert error["detail"].startswith("training_context_gib must lie between ")


@pytest.mark.parametrize(
    "operation", [MEMORY, "estimate_communication", "estimate_training_layouts"]
)
def test_a_run_that_is_asked_about_alone_follows_no_other(client, operation):
    assert refused(client, operation, "/run/after", "another")["pointer"] == "/run/after"


def test_experts_cannot_be_split_where_there_are_none(client):
    layout = {"kind": "given", "expert_tensor_parallel": 2}
    error = refused(client, MEMORY, "/run/layout", layout)
    assert error["pointer"] == "/run/layout/expert_tensor_parallel"


@pytest.mark.parametrize(
    ("sent", "ours"),
    [
        ("FULL_SHARD", "zero_3"),
        ("SHARD_GRAD_OP", "zero_2"),
        ("HYBRID_SHARD", "hybrid"),
        ("NO_SHARD", "none"),
        ("ZeRO-3", "zero_3"),
        ("zero1", "zero_1"),
        ("DDP", "none"),
    ],
)
def test_sharding_is_taken_as_other_stacks_write_it(client, sent, ours):
    layout = {"kind": "given", "sharding": sent}
    response = client.post(path_of(MEMORY), json=body_with(MEMORY, "/run/layout", layout))
    assert response.status_code == 200
    assert response.json()["layout"]["sharding"] == ours


def test_another_sharding_is_refused(client):
    layout = {"kind": "given", "sharding": "zero_4"}
    assert refused(client, MEMORY, "/run/layout", layout)["pointer"] == "/run/layout/sharding"
