"""A plan as Kubernetes objects: published fields, quotas that are its pools, legal names."""

import json
from collections import Counter
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from service.catalog.resolve import snapshot_from_folder
from service.core.errors import NotWritable
from service.core.plans import Plan
from service.exports.kubernetes import kubernetes_yaml
from tests.exports.kubernetes_fields import SCHEMAS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = json.loads((ROOT / "openapi" / "examples" / "create_plan.request.json").read_bytes())
# Names that break YAML, shells or Kubernetes, or leave the same letters; `1e3` is a number to some.
HOSTILE = [
    "a: b\n- kind: Secret",
    '"}]}\n---\nkind: ClusterRoleBinding',
    "$(reboot); `id` | rm -rf / #",
    "UPPER case",
    "upper-case",
    "upper case",
    "..",
    "-",
    "名前 é",
    "1e3",
    "yes",
    "kube-system",
    "default",
    "x" * 200,
    "x" * 63,
    "\u202etxt.exe",
    "!!python/object/apply:os.system [id]",
    "&a *a <<",
]


def service(name, *, peak=40, gpu="h100-sxm5-80gb", **changed):
    [asked] = EXAMPLE["scenario"]["serving_services"]
    load = {"kind": "peak_requests", "peak_requests_per_s": peak}
    return {**asked, "name": name, "gpu": gpu, "load": load, **changed}


def run(name, **changed):
    [asked] = EXAMPLE["scenario"]["training_runs"]
    return {**asked, "name": name, **changed}


def plan_of(client, **scenario):
    body = {**EXAMPLE, "scenario": {**EXAMPLE["scenario"], **scenario}}
    answer = client.post("/v1/plans", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def objects_of(client, plan):
    answer = client.get(f"/v1/plans/{plan['id']}/kubernetes.yaml")
    assert answer.status_code == 200, answer.text
    [document] = yaml.safe_load_all(answer.text)
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    return document["items"]


def of_kind(objects, kind):
    return [each for each in objects if each["kind"] == kind]


def named(objects, kind, part):
    [found] = [each for each in of_kind(objects, kind) if part in each["metadata"]["name"]]
    return found


def quota_of(queue):
    [group] = queue["spec"]["resourceGroups"]
    [flavor] = group["flavors"]
    [quota] = flavor["resources"]
    assert group["coveredResources"] == [quota["name"]]
    return flavor["name"], quota


def quotas_by_gpu(objects):
    counts = Counter()
    for queue in of_kind(objects, "ClusterQueue"):
        flavor, quota = quota_of(queue)
        counts[flavor] += quota["nominalQuota"]
    return counts


def assert_sound(objects):
    """Fields as published, each name once, and nothing refers to what is not there."""
    for each in objects:
        jsonschema_rs.validator_for(SCHEMAS[each["kind"]]).validate(each)
    names = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert len(set(names)) == len(names)
    known = set(names)
    for queue in of_kind(objects, "ClusterQueue"):
        flavor, quota = quota_of(queue)
        assert ("ResourceFlavor", flavor) in known
        is_shared = "cohortName" in queue["spec"]
        assert {"borrowingLimit", "lendingLimit"} & set(quota) == (
            {"borrowingLimit", "lendingLimit"} if is_shared else set()
        )
        [selector] = queue["spec"]["namespaceSelector"]["matchExpressions"]
        assert selector["key"] == "kubernetes.io/metadata.name"
        assert {("Namespace", each) for each in selector["values"]} <= known
    for queue in of_kind(objects, "LocalQueue"):
        assert ("Namespace", queue["metadata"]["namespace"]) in known
        assert ("ClusterQueue", queue["spec"]["clusterQueue"]) in known


def test_separate_pools_have_their_gpus_as_quota_and_borrow_nothing(client):
    """The contract's example: 512 GPUs train, 15 replicas of 4 GPUs in whole nodes are 64."""
    objects = objects_of(client, plan_of(client))
    assert_sound(objects)
    training, serving = (named(objects, "ClusterQueue", kind) for kind in ("training", "serving"))
    for queue, gpus in ((training, 512), (serving, 64)):
        assert quota_of(queue)[1] == {"name": "nvidia.com/gpu", "nominalQuota": gpus}
        assert "cohortName" not in queue["spec"]
        assert "preemption" not in queue["spec"]
    [flavor] = of_kind(objects, "ResourceFlavor")
    assert flavor["spec"]["nodeLabels"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert len(of_kind(objects, "LocalQueue")) == 2


def test_serving_stands_above_training(client):
    objects = objects_of(client, plan_of(client))
    serving, training = (named(objects, "PriorityClass", kind) for kind in ("serving", "training"))
    assert serving["value"] > training["value"] > 0
    assert serving["preemptionPolicy"] == "PreemptLowerPriority"
    assert training["preemptionPolicy"] == "Never"
    assert not serving["globalDefault"]
    assert not training["globalDefault"]


def test_shared_serving_lends_what_it_owns_and_takes_it_back(client):
    plan = plan_of(client, pooling={"kind": "shared", "fleet_gpu_count": 576})
    objects = objects_of(client, plan)
    assert_sound(objects)
    [pool] = plan["pools"]
    [held] = [each["gpu_count"] for each in plan["serving_services"]]
    serving, training = (named(objects, "ClusterQueue", kind) for kind in ("serving", "training"))
    assert serving["spec"]["cohortName"] == training["spec"]["cohortName"]
    assert quota_of(serving)[1] == {
        "name": "nvidia.com/gpu",
        "nominalQuota": held,
        "borrowingLimit": 0,
        "lendingLimit": held,
    }
    assert quota_of(training)[1] == {
        "name": "nvidia.com/gpu",
        "nominalQuota": pool["gpu_count"] - held,
        "borrowingLimit": held,
        "lendingLimit": 0,
    }
    # At night training may fill the fleet, and at the peak serving has all that it holds.
    assert serving["spec"]["preemption"] == {"reclaimWithinCohort": "LowerPriority"}
    assert "preemption" not in training["spec"]


@pytest.mark.parametrize("pooling", [{"kind": "separate"}, {"kind": "shared"}])
def test_quotas_are_the_pools_of_each_gpu(client, pooling):
    a100 = {"kind": "rent", "price_per_gpu_hour": "3.00"}
    plan = plan_of(
        client,
        pooling=pooling,
        procurement=[
            {"gpu": "a100-sxm4-80gb", "method": a100},
            *EXAMPLE["scenario"]["procurement"],
        ],
        serving_services=[
            service("assistant", demand_profile="consumer_evening"),
            service("search", peak=100, demand_profile="office_assistant"),
            service("old", gpu="a100-sxm4-80gb"),
        ],
    )
    objects = objects_of(client, plan)
    assert_sound(objects)
    pools = Counter()
    for pool in plan["pools"]:
        pools[f"gpuplan-{pool['gpu']}"] += pool["gpu_count"]
    assert quotas_by_gpu(objects) == pools
    assert len(of_kind(objects, "LocalQueue")) == 4


@pytest.mark.parametrize("pooling", [{"kind": "separate"}, {"kind": "shared"}])
def test_hostile_names_stay_texts_and_become_legal_names(client, pooling):
    plan = plan_of(
        client,
        pooling=pooling,
        training_runs=[run("run: {x}\n")],
        serving_services=[service(name, peak=1) for name in HOSTILE],
    )
    objects = objects_of(client, plan)
    assert_sound(objects)
    kinds = {"PriorityClass", "ResourceFlavor", "ClusterQueue", "Namespace", "LocalQueue"}
    assert {each["kind"] for each in objects} == kinds
    notes = {
        queue["metadata"]["annotations"]["gpuplan-workload"]
        for queue in of_kind(objects, "LocalQueue")
    }
    assert notes == {*HOSTILE, "run: {x}\n"}
    spaces = {each["metadata"]["name"] for each in of_kind(objects, "Namespace")}
    assert all(name.startswith("gpuplan-") for name in spaces)


def test_texts_of_users_stand_in_quotes(client):
    """`1e3` is a text to one reader of YAML and a number to another; in quotes to none."""
    plan = plan_of(client, serving_services=[service("1e3")], training_runs=[])
    text = client.get(f"/v1/plans/{plan['id']}/kubernetes.yaml").text
    assert 'gpuplan-workload: "1e3"' in text


def test_a_name_does_not_depend_on_its_neighbours(client):
    def names(*services):
        plan = plan_of(client, serving_services=[service(each) for each in services])
        queues = of_kind(objects_of(client, plan), "LocalQueue")
        return {
            q["metadata"]["annotations"]["gpuplan-workload"]: q["metadata"]["name"] for q in queues
        }

    assert names("Chat A").items() <= names("chat-a", "Chat A", "chat a").items()


def test_an_infeasible_plan_has_nothing_to_write(client):
    gpu = {"kind": "gpu_count", "gpu_count": 1}
    plan = plan_of(client, training_runs=[run("too-large", sizing=gpu)])
    assert plan["feasible"] is False
    answer = client.get(f"/v1/plans/{plan['id']}/kubernetes.yaml")
    assert answer.status_code == 409, answer.text
    problem = answer.json()
    assert problem["type"] == "/problems/conflict"
    assert plan["infeasibilities"][0]["nearest_fix"] in problem["detail"]


def test_a_pool_without_gpus_is_refused_by_name(client):
    plan = Plan.model_validate(plan_of(client))
    training, serving = plan.pools
    empty = training.model_copy(update={"gpu_count": 0})
    catalog = snapshot_from_folder(ROOT / "catalog", plan.as_of_date)
    for pools, where in (((empty, serving), "training on h100-sxm5-80gb"), ((), "any pool")):
        with pytest.raises(NotWritable, match=where):
            kubernetes_yaml(plan.model_copy(update={"pools": pools}), catalog)


def described_gpu(**changed):
    return {
        "key": "own-part",
        "name": "Own part",
        "memory_gb": 80,
        "memory_bandwidth_gb_per_s": 3000,
        "peak_tflops": {"bf16": 900},
        **changed,
    }


RENT = [{"method": {"kind": "rent", "price_per_gpu_hour": "2.00"}}]


def test_a_part_that_no_plugin_counts_is_refused_by_name(client):
    part = described_gpu(vendor="Unheard-of")
    plan = plan_of(
        client, training_runs=[], serving_services=[service("a", gpu=part)], procurement=RENT
    )
    answer = client.get(f"/v1/plans/{plan['id']}/kubernetes.yaml")
    assert answer.status_code == 409
    assert "own-part" in answer.json()["detail"]
    assert "Unheard-of" in answer.json()["detail"]
    assert "says its vendor" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("part", "resource"),
    [
        ({"vendor": "AMD"}, "amd.com/gpu"),
        ({"gpu_class": "hopper"}, "nvidia.com/gpu"),
        ({"gpu_class": "gaudi"}, "habana.ai/gaudi"),
        ({"gpu_class": "tpu"}, "google.com/tpu"),
        ({"gpu_class": "trainium"}, "aws.amazon.com/neuron"),
    ],
)
def test_each_vendor_has_its_resource_and_a_part_its_own_label(client, part, resource):
    gpu = described_gpu(key="1e3", **part)
    plan = plan_of(
        client, training_runs=[], serving_services=[service("a", gpu=gpu)], procurement=RENT
    )
    objects = objects_of(client, plan)
    assert_sound(objects)
    [queue] = of_kind(objects, "ClusterQueue")
    assert quota_of(queue)[1]["name"] == resource
    [flavor] = of_kind(objects, "ResourceFlavor")
    assert flavor["spec"]["nodeLabels"] == {"gpuplan-gpu": "1e3"}


def test_the_file_is_tagged_and_named(client):
    plan = plan_of(client)
    address = f"/v1/plans/{plan['id']}/kubernetes.yaml"
    answer = client.get(address)
    assert answer.headers["content-type"] == "application/yaml"
    assert 'filename="2027 base case-kubernetes.yaml"' in answer.headers["content-disposition"]
    again = client.get(address, headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
