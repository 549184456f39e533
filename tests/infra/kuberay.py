"""A schema of the KubeRay objects that infra/k8s uses, reduced and written by hand from KubeRay's API reference (v1).

It stands in for the schema of KubeRay's own definitions, which no package carries: it knows the fields that
our manifests use and a few beside them, and refuses all others. Pod templates and the like are Kubernetes' own types.
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
_JOB = _object(
    ("entrypoint",),
    entrypoint=_TEXT,
    clusterSelector=_TEXTS,
    rayClusterSpec=_CLUSTER,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode"]},
    runtimeEnvYAML=_TEXT,
    backoffLimit=_COUNT,
    activeDeadlineSeconds=_COUNT,
    shutdownAfterJobFinishes=_FLAG,
    ttlSecondsAfterFinished=_COUNT,
)


def schema(kind: str) -> dict[str, Any]:
    """Return the schema of a whole RayCluster or RayJob."""
    spec = {"RayCluster": _CLUSTER, "RayJob": _JOB}[kind]
    return _object(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": "ray.io/v1"},
        kind={"const": kind},
        metadata={"$ref": f"{KUBERNETES}#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
        spec=spec,
    )
