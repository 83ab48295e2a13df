"""Fields of the Kubernetes objects that a plan is written as, as JSON Schema.

Names, types, limits and requirements are facts of what is published; all other fields are left out,
and what is not listed here is refused.

Sources:
  Kueue's CRDs of API version v1beta2: github.com/kubernetes-sigs/kueue, in
  config/components/crd/bases the files kueue.x-k8s.io_{clusterqueues,resourceflavors,localqueues}
  .yaml, the first at commit 00b014c140a6. v1beta2 calls `cohortName` what v1beta1 called `cohort`.
  Rules beside the schema: limits of borrowing need a cohort; a flavor lists all covered resources.
  PriorityClass, Namespace: models V1PriorityClass and V1Namespace of the Python client 37.0.2.
  Names: RFC 1123 labels, as the Kubernetes documentation on object names and IDs has them.
"""

DNS_LABEL = {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
SUBDOMAIN = {
    "type": "string",
    "maxLength": 253,
    "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
}
LABEL_VALUE = {
    "type": "string",
    "maxLength": 63,
    "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
}
QUALIFIED = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
QUANTITY = {"type": "integer", "minimum": 0}


def fields(required=(), **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def labels(value):
    return {
        "type": "object",
        "propertyNames": {"pattern": QUALIFIED},
        "additionalProperties": value,
    }


def described(api_version, kind, *, name=SUBDOMAIN, is_namespaced=False, required=(), **properties):
    metadata = {
        "name": name,
        "labels": labels(LABEL_VALUE),
        "annotations": labels({"type": "string"}),
    }
    if is_namespaced:
        metadata["namespace"] = DNS_LABEL
    names = ("name", "namespace") if is_namespaced else ("name",)
    return fields(
        ("apiVersion", "kind", "metadata", *required),
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=fields(names, **metadata),
        **properties,
    )


KUEUE = "kueue.x-k8s.io/v1beta2"
RESOURCE_QUOTA = fields(
    ("name", "nominalQuota"),
    name={"type": "string"},
    nominalQuota=QUANTITY,
    borrowingLimit=QUANTITY,
    lendingLimit=QUANTITY,
)
FLAVOR_QUOTAS = fields(
    ("name", "resources"),
    name=SUBDOMAIN,
    resources={"type": "array", "items": RESOURCE_QUOTA, "minItems": 1, "maxItems": 64},
)
RESOURCE_GROUP = fields(
    ("coveredResources", "flavors"),
    coveredResources={"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 64},
    flavors={"type": "array", "items": FLAVOR_QUOTAS, "minItems": 1, "maxItems": 64},
)
REQUIREMENT = fields(
    ("key", "operator"),
    key={"type": "string"},
    operator={"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
    values={"type": "array", "items": {"type": "string"}},
)
SCHEMAS = {
    "PriorityClass": described(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        required=("value",),
        # Larger values are the system's own.
        value={"type": "integer", "minimum": -(2**31), "maximum": 1_000_000_000},
        globalDefault={"type": "boolean"},
        preemptionPolicy={"enum": ["Never", "PreemptLowerPriority"]},
        description={"type": "string"},
    ),
    "Namespace": described("v1", "Namespace", name=DNS_LABEL),
    "ResourceFlavor": described(
        KUEUE,
        "ResourceFlavor",
        spec=fields(nodeLabels={**labels(LABEL_VALUE), "maxProperties": 8}),
    ),
    "ClusterQueue": described(
        KUEUE,
        "ClusterQueue",
        spec=fields(
            cohortName=SUBDOMAIN,
            namespaceSelector=fields(matchExpressions={"type": "array", "items": REQUIREMENT}),
            preemption=fields(reclaimWithinCohort={"enum": ["Never", "LowerPriority", "Any"]}),
            resourceGroups={"type": "array", "items": RESOURCE_GROUP, "maxItems": 16},
        ),
    ),
    "LocalQueue": described(
        KUEUE, "LocalQueue", is_namespaced=True, spec=fields(clusterQueue=SUBDOMAIN)
    ),
}
