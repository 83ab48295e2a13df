"""A plan's pools as Kubernetes objects: priorities, and queues of Kueue whose quotas are its GPUs.

Fields are those of `scheduling.k8s.io/v1` and of Kueue's `kueue.x-k8s.io/v1beta2`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.core.errors import NotWritable
from service.core.estimates import PoolSize
from service.core.hardware import Gpu, GpuClass
from service.core.plans import Plan
from service.core.snapshot import CatalogSnapshot
from service.exports.dns_names import dns_label, dns_labels
from service.exports.yaml_text import Quoted, yaml_text

MEDIA_TYPE = "application/yaml"
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
PREFIX: Final = "gpuplan-"
"""Begins the name of all that may meet what the cluster holds already."""
PRIORITIES: Final = {"serving": 1_000_000, "training": 100_000}
"""Between 0, which pods without a class have, and the system's classes from 10^9 on."""
NODE_LABEL: Final = "gpuplan-gpu"
"""Label by which nodes are told where no device plugin is known to label them."""
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
PRODUCTS: Final = {
    "t4-16gb": "Tesla-T4",
    "v100-sxm2-16gb": "Tesla-V100-SXM2-16GB",
    "v100-sxm2-32gb": "Tesla-V100-SXM2-32GB",
    "a10-24gb": "NVIDIA-A10",
    "a10g-24gb": "NVIDIA-A10G",
    "l4-24gb": "NVIDIA-L4",
    "l40s-48gb": "NVIDIA-L40S",
    "a100-sxm4-40gb": "NVIDIA-A100-SXM4-40GB",
    "a100-sxm4-80gb": "NVIDIA-A100-SXM4-80GB",
    "h100-pcie-80gb": "NVIDIA-H100-PCIe",
    "h100-sxm5-80gb": "NVIDIA-H100-80GB-HBM3",
    "h100-nvl-94gb": "NVIDIA-H100-NVL",
    "h200-sxm-141gb": "NVIDIA-H200",
}
"""Label of GPU feature discovery: the driver's name of the part with dashes for spaces."""
CLASS_VENDORS: Final[Mapping[GpuClass, str]] = {
    "volta": "nvidia",
    "turing": "nvidia",
    "ampere": "nvidia",
    "ampere_workstation": "nvidia",
    "ada": "nvidia",
    "hopper": "nvidia",
    "blackwell": "nvidia",
    "blackwell_workstation": "nvidia",
    "cdna": "amd",
    "tpu": "google",
    "gaudi": "intel gaudi",
    "trainium": "aws",
}
"""Whose device plugin counts a class; of class "other" the vendor decides."""
RESOURCES: Final = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "google": "google.com/tpu",
    "intel gaudi": "habana.ai/gaudi",
    "aws": "aws.amazon.com/neuron",
}
"""Resource under which a vendor's device plugin counts whole accelerators."""
HEAD: Final = """\
# Quotas are the GPUs of the plan's pools. They bind once Kueue (API v1beta2) admits the pods.
# The plan counts GPUs alone: have Kueue ignore cpu, memory and ephemeral-storage
# (resources.excludeResourcePrefixes of its configuration), or add them to the queues.
# Jobs name their queue in the label kueue.x-k8s.io/queue-name and take their priorityClassName.
"""


@dataclass(frozen=True)
class _Queue:
    """One queue of a kind of work on one kind of GPU."""

    kind: str
    gpu: str
    quota: int
    workloads: tuple[str, ...]
    is_shared: bool = False
    borrowed: int = 0
    """GPUs of others that it may take while they are idle."""
    lent: int = 0
    """GPUs of its own that others may take while they are idle."""

    @property
    def text(self) -> str:
        """What its name is made of."""
        return f"{self.kind}-{self.gpu}"


@dataclass(frozen=True)
class _Names:
    """Names of all objects, by what they stand for."""

    queues: Mapping[str, str]
    flavors: Mapping[str, str]
    cohorts: Mapping[str, str]
    namespaces: Mapping[str, str]

    @classmethod
    def of(cls, queues: Sequence[_Queue]) -> "_Names":
        gpus = [queue.gpu for queue in queues]
        workloads = [name for queue in queues for name in queue.workloads]
        return cls(
            queues=dns_labels((queue.text for queue in queues), prefix=PREFIX),
            flavors=dns_labels(gpus, prefix=PREFIX),
            cohorts=dns_labels(gpus, prefix=f"{PREFIX}shared-"),
            namespaces=dns_labels(workloads, prefix=PREFIX),
        )


def kubernetes_yaml(plan: Plan, snapshot: CatalogSnapshot) -> bytes:
    """Write a plan's pools as one `List` of objects, each after what it refers to.

    Args:
        plan: A feasible plan.
        snapshot: The catalog that it was made with.

    Raises:
        NotWritable: The plan is infeasible, or a pool cannot be counted in a cluster.
    """
    _check(plan)
    gpus = _gpus(plan, snapshot)
    queues = list(_queues(plan))
    names = _Names.of(queues)
    items = [
        *_priorities(),
        *_flavors(names, gpus),
        *(_cluster_queue(queue, names, _resource(gpus[queue.gpu])) for queue in queues),
        *_local_queues(queues, names),
    ]
    for item in items:
        item["metadata"]["labels"] = {
            "app.kubernetes.io/managed-by": "gpuplan",
            "app.kubernetes.io/instance": Quoted(plan.id),
        }
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    return (HEAD + yaml_text(document)).encode()


def _check(plan: Plan) -> None:
    if not plan.feasible:
        lacks = "; ".join(f"{each.limit}: {each.nearest_fix}" for each in plan.infeasibilities[:3])
        raise NotWritable(f"the plan is infeasible, so it has no pools to write ({lacks})")
    services = plan.serving_services
    if services and not plan.training_runs and all(each.hosted_by for each in services):
        raise NotWritable("the tokens of all its services are bought, so the plan has no cluster")
    empty = [pool for pool in plan.pools if pool.gpu_count == 0]
    lacking = [pool for pool in empty if _workloads(plan, pool.name, pool.gpu)]
    if lacking or len(empty) == len(plan.pools):
        named = ", ".join(f"{pool.name} on {pool.gpu}" for pool in lacking or empty)
        raise NotWritable(f"no GPUs are in {named or 'any pool of the plan'}")


def _gpus(plan: Plan, snapshot: CatalogSnapshot) -> dict[str, Gpu]:
    """The GPUs of a plan by key, those that its request describes among them."""
    scenario = plan.scenario
    asked = [run.gpu for run in scenario.training_runs]
    asked += [service.gpu for service in scenario.serving_services]
    return {gpu.key: gpu for gpu in map(snapshot.gpu, asked)}


def _workloads(plan: Plan, kind: str, gpu: str) -> tuple[str, ...]:
    """Names of the runs or services on a GPU, in the order of the request."""
    scenario = plan.scenario
    asked = scenario.training_runs if kind == "training" else scenario.serving_services
    hosted = {each.name for each in plan.serving_services if each.hosted_by is not None}
    return tuple(
        each.name
        for each in asked
        if (each.gpu if isinstance(each.gpu, str) else each.gpu.key) == gpu
        and each.name not in hosted
    )


def _queues(plan: Plan) -> Iterator[_Queue]:
    for pool in plan.pools:
        if not pool.gpu_count:
            continue  # the tokens of its services are bought
        if pool.name != "shared":
            names = _workloads(plan, pool.name, pool.gpu)
            yield _Queue(pool.name, pool.gpu, pool.gpu_count, names)
        else:
            yield from _sharing(plan, pool)


def _sharing(plan: Plan, pool: PoolSize) -> Iterator[_Queue]:
    """Serving owns what it holds at its peak and lends what is idle of it; training has the rest.

    The peaks of several services may fall into different hours; then more is owned and lent.
    """
    services = _workloads(plan, "serving", pool.gpu)
    runs = _workloads(plan, "training", pool.gpu)
    held = sum(each.gpu_count for each in plan.serving_services if each.name in services)
    own = min(pool.gpu_count, held) if runs else pool.gpu_count
    if services:
        yield _Queue("serving", pool.gpu, own, services, is_shared=True, lent=own)
    if runs:
        rest = pool.gpu_count - own
        yield _Queue("training", pool.gpu, rest, runs, is_shared=True, borrowed=own)


def _priorities() -> Iterator[dict[str, Any]]:
    for kind, value in PRIORITIES.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"{PREFIX}{kind}"},
            "value": value,
            "globalDefault": False,
            # Training waits for GPUs; serving takes them back.
            "preemptionPolicy": "PreemptLowerPriority" if kind == "serving" else "Never",
            "description": f"Pods of {kind} workloads of a capacity plan.",
        }


def _flavors(names: _Names, gpus: Mapping[str, Gpu]) -> Iterator[dict[str, Any]]:
    for gpu, name in names.flavors.items():
        product = PRODUCTS.get(gpu)
        label = {NODE_LABEL: Quoted(dns_label(gpu))}
        if product is not None and _vendor(gpus[gpu]) == "nvidia":
            label = {PRODUCT_LABEL: Quoted(product)}
        yield {
            "apiVersion": KUEUE,
            "kind": "ResourceFlavor",
            "metadata": {"name": name},
            "spec": {"nodeLabels": label},
        }


def _vendor(gpu: Gpu) -> str:
    return CLASS_VENDORS.get(gpu.gpu_class, gpu.vendor.lower())


def _resource(gpu: Gpu) -> str:
    resource = RESOURCES.get(_vendor(gpu))
    if resource is None:
        raise NotWritable(
            f"no device plugin is known that counts {gpu.key} of vendor {gpu.vendor!r}; known are "
            f"those of {', '.join(RESOURCES)}: a GPU that is described in a request says its vendor"
        )
    return resource


def _cluster_queue(queue: _Queue, names: _Names, resource: str) -> dict[str, Any]:
    quota: dict[str, Any] = {"name": resource, "nominalQuota": queue.quota}
    spec: dict[str, Any] = {}
    if queue.is_shared:
        spec["cohortName"] = names.cohorts[queue.gpu]
        quota |= {"borrowingLimit": queue.borrowed, "lendingLimit": queue.lent}
    namespaces = [names.namespaces[workload] for workload in queue.workloads]
    spec["namespaceSelector"] = {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}
        ]
    }
    if queue.lent:
        # What is lent comes back: serving preempts training, whose priority is lower.
        spec["preemption"] = {"reclaimWithinCohort": "LowerPriority"}
    flavor = {"name": names.flavors[queue.gpu], "resources": [quota]}
    spec["resourceGroups"] = [{"coveredResources": [resource], "flavors": [flavor]}]
    return {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": names.queues[queue.text]},
        "spec": spec,
    }


def _local_queues(queues: Sequence[_Queue], names: _Names) -> Iterator[dict[str, Any]]:
    for queue in queues:
        for workload in queue.workloads:
            name = names.namespaces[workload]
            note = {"gpuplan-workload": Quoted(workload)}
            yield {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "annotations": note},
            }
            yield {
                "apiVersion": KUEUE,
                "kind": "LocalQueue",
                "metadata": {"name": name, "namespace": name, "annotations": note},
                "spec": {"clusterQueue": names.queues[queue.text]},
            }
