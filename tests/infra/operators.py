"""Schemas of the objects of operators that infra/k8s uses, reduced and written by hand from their API references.

They stand in for the operators' own definitions, which no package carries: they know the fields that our manifests use
and a few beside them, and refuse all others. Pod templates and the like are Kubernetes' own types. The operators are
KubeRay (ray.io/v1), Prometheus' (monitoring.coreos.com/v1) and that of volume snapshots (snapshot.storage.k8s.io/v1).
"""

from __future__ import annotations

from typing import Any

KUBERNETES = "https://kubernetes.io/api/_definitions.json"
"""The id of the schemas of Kubernetes' own types."""


def _kubernetes(type: str) -> dict[str, Any]:
    return {"$ref": f"{KUBERNETES}#/$defs/io.k8s.api.core.v1.{type}"}


def _object(required: tuple[str, ...] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}

_AUTOSCALER = _object(
    upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]},
    idleTimeoutSeconds=_COUNT,
    image=_TEXT,
    resources=_kubernetes("ResourceRequirements"),
    securityContext=_kubernetes("SecurityContext"),
)
_HEAD = _object(
    ("template",),
    serviceType={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    rayStartParams=_TEXTS,
    template=_kubernetes("PodTemplateSpec"),
)
_WORKERS = _object(
    ("groupName", "template", "minReplicas", "maxReplicas"),
    groupName=_TEXT,
    replicas=_COUNT,
    minReplicas=_COUNT,
    maxReplicas=_COUNT,
    numOfHosts=_COUNT,
    rayStartParams=_TEXTS,
    template=_kubernetes("PodTemplateSpec"),
)
_CLUSTER = _object(
    ("headGroupSpec",),
    rayVersion=_TEXT,
    authOptions=_object(mode={"enum": ["disabled", "token"]}, secretName=_TEXT),
    enableInTreeAutoscaling=_FLAG,
    autoscalerOptions=_AUTOSCALER,
    headGroupSpec=_HEAD,
    workerGroupSpecs={"type": "array", "items": _WORKERS},
    suspend=_FLAG,
)
_MONITOR = _object(
    ("selector", "podMetricsEndpoints"),
    selector=_object(matchLabels=_TEXTS),
    podMetricsEndpoints={
        "type": "array",
        "items": _object(
            port=_TEXT,
            interval=_TEXT,
            path=_TEXT,
            metricRelabelings={
                "type": "array",
                "items": _object(
                    sourceLabels={"type": "array", "items": _TEXT},
                    regex=_TEXT,
                    targetLabel=_TEXT,
                    replacement=_TEXT,
                    action=_TEXT,
                ),
            },
        ),
    },
)
_RULE = _object(("expr",), alert=_TEXT, record=_TEXT, expr=_TEXT, labels=_TEXTS, annotations=_TEXTS, **{"for": _TEXT})
_RULES = _object(
    ("groups",),
    groups={
        "type": "array",
        "items": _object(("name",), name=_TEXT, interval=_TEXT, rules={"type": "array", "items": _RULE}),
    },
)
_SNAPSHOT = _object(("source",), volumeSnapshotClassName=_TEXT, source=_object(persistentVolumeClaimName=_TEXT))
_SPECS = {
    "RayCluster": ("ray.io/v1", _CLUSTER),
    "PodMonitor": ("monitoring.coreos.com/v1", _MONITOR),
    "PrometheusRule": ("monitoring.coreos.com/v1", _RULES),
    "VolumeSnapshot": ("snapshot.storage.k8s.io/v1", _SNAPSHOT),
}
KINDS = frozenset(_SPECS)


def schema(kind: str) -> dict[str, Any]:
    """Return the schema of a whole object of an operator."""
    version, spec = _SPECS[kind]
    return _object(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": version},
        kind={"const": kind},
        metadata={"$ref": f"{KUBERNETES}#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
        spec=spec,
    )
