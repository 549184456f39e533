"""The manifests of infra/k8s against Kubernetes' published schemas and a hand-written one of KubeRay's objects."""

from __future__ import annotations

import copy
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from pipeline import config
from tests.infra.kuberay import KUBERNETES, schema
from tests.infra.support import INFRA

K8S = INFRA / "k8s"
OBJECTS = {
    (file.relative_to(K8S).as_posix(), place): document
    for file in sorted(K8S.rglob("*.yaml"))
    if file.name not in ("kustomization.yaml", "images.yaml")
    for place, document in enumerate(yaml.safe_load_all(file.read_text()))
}
BUILT_IN = {key: each for key, each in OBJECTS.items() if not each["apiVersion"].startswith("ray.io/")}
KUBERAY = {key: each for key, each in OBJECTS.items() if key not in BUILT_IN}
KUSTOMIZATION = yaml.safe_load((K8S / "kustomization.yaml").read_text())


def name(key: tuple[str, int]) -> str:
    return f"{key[0]}-{OBJECTS[key]['kind']}"


def kuberay_mistakes(document: dict[str, Any]) -> list[str]:
    carried = files("kubernetes_validate") / "kubernetes-json-schema"
    newest = f"v{kubernetes_validate.latest_version()}-local-strict"
    types = Resource.from_contents(json.loads((carried / newest / "_definitions.json").read_text()))
    registry: Registry[Any] = Registry().with_resource(KUBERNETES, types)
    validator = Draft202012Validator(schema(document["kind"]), registry=registry)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


@pytest.mark.parametrize("key", BUILT_IN, ids=name)
def test_built_in_objects_follow_the_schemas_of_kubernetes(key: tuple[str, int]) -> None:
    kubernetes_validate.validate(BUILT_IN[key], "1.31", strict=True)


def test_a_wrong_field_of_a_built_in_object_is_found() -> None:
    wrong = copy.deepcopy(next(each for each in BUILT_IN.values() if each["kind"] == "StatefulSet"))
    wrong["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePolicy"):
        kubernetes_validate.validate(wrong, "1.31", strict=True)


@pytest.mark.parametrize("key", KUBERAY, ids=name)
def test_kuberay_objects_follow_the_reduced_schema(key: tuple[str, int]) -> None:
    assert kuberay_mistakes(KUBERAY[key]) == []


def test_wrong_fields_of_kuberay_objects_are_found() -> None:
    wrong = copy.deepcopy(next(each for each in KUBERAY.values() if each["kind"] == "RayCluster"))
    wrong["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["port"] = []
    wrong["spec"]["workerGroupSpecs"][0]["replicas"] = "1"
    wrong["spec"]["workerGroup"] = []
    found = "\n".join(kuberay_mistakes(wrong))
    assert "'port' was unexpected" in found
    assert "$.spec.workerGroupSpecs[0].replicas: '1' is not of type 'integer'" in found
    assert "'workerGroup' was unexpected" in found


def test_kubectl_builds_the_kustomization_with_images_of_a_registry() -> None:
    standing = {file.name for file in K8S.glob("*.yaml")} - {"kustomization.yaml", "images.yaml"}
    assert set(KUSTOMIZATION["resources"]) == standing
    built = list(yaml.safe_load_all(kubectl("kustomize", K8S)))
    applied = [each for (file, _), each in OBJECTS.items() if not file.startswith("jobs/")]
    assert sorted(map(identity, built)) == sorted(map(identity, applied))
    for each in built:
        if each["apiVersion"].startswith("ray.io/"):
            assert kuberay_mistakes(each) == []
        else:
            kubernetes_validate.validate(each, "1.31", strict=True)
    images = [container["image"] for template in templates(built) for container in template["containers"]]
    assert sorted(images) == [f"registry.example.org/kgqa:{tag}" for tag in ("cpu", "cpu", "gpu", "virtuoso")]
    assert {image["name"] for image in KUSTOMIZATION["images"]} == {pod["image"] for pod in containers()}
    assert all(each["metadata"].get("namespace", "kgqa") == "kgqa" for each in OBJECTS.values())


def identity(document: dict[str, Any]) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def kubectl(*words: str | Path) -> str:
    """The output of kubectl. In CI a missing kubectl is a failure."""
    if not shutil.which("kubectl"):
        message = "kubectl is not installed (infra/install-kubectl.sh)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return subprocess.run(["kubectl", *map(str, words)], capture_output=True, text=True, check=True).stdout


def templates(documents: Iterable[dict[str, Any]] = OBJECTS.values()) -> list[dict[str, Any]]:
    found = []
    for each in documents:
        spec = each.get("spec", {})
        groups = [spec, spec.get("headGroupSpec", {}), *spec.get("workerGroupSpecs", [])]
        found += [group["template"]["spec"] for group in groups if "template" in group]
    return found


def containers() -> list[dict[str, Any]]:
    return [container for template in templates() for container in template["containers"]]


def test_no_pod_runs_as_root_or_can_become_root() -> None:
    assert len(templates()) == 4
    for template in templates():
        assert template["securityContext"]["runAsNonRoot"] is True
        assert template["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers():
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]


def test_volumes_and_services_that_pods_name_exist() -> None:
    claims = {each["metadata"]["name"] for each in OBJECTS.values() if each["kind"] == "PersistentVolumeClaim"}
    for template in templates():
        volumes = template.get("volumes", [])
        own = {claim["metadata"]["name"] for claim in stateful_set()["spec"]["volumeClaimTemplates"]}
        mounted = {mount["name"] for container in template["containers"] for mount in container["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in volumes} | own
        asked = {each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each}
        assert asked <= claims
    services = {each["metadata"]["name"]: each for each in OBJECTS.values() if each["kind"] == "Service"}
    service = services[stateful_set()["spec"]["serviceName"]]
    assert service["spec"]["selector"].items() <= stateful_set()["spec"]["template"]["metadata"]["labels"].items()


def stateful_set() -> dict[str, Any]:
    return next(each for each in OBJECTS.values() if each["kind"] == "StatefulSet")


@pytest.mark.parametrize("job", ["evaluate", "sweep"])
def test_jobs_run_our_commands_on_the_cluster_and_graph_of_the_manifests(job: str) -> None:
    spec = OBJECTS[f"jobs/{job}.yaml", 0]["spec"]
    cluster = next(each for each in OBJECTS.values() if each["kind"] == "RayCluster")
    assert spec["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}
    program, command, *words = shlex.split(spec["entrypoint"])
    assert (program, command) == ("kgqa", job)
    first_points = [word.partition(",")[0] if word.startswith("method") else word for word in words]
    resolved = config.compose(first_points)
    graph = stateful_set()
    replicas = [f"{graph['metadata']['name']}-{number}" for number in range(graph["spec"]["replicas"])]
    service = graph["spec"]["serviceName"]
    assert resolved["kg"]["endpoints"] == [f"http://{replica}.{service}:8890/sparql" for replica in replicas]
    mounts = {mount["mountPath"] for mount in containers()[0]["volumeMounts"]} | {"/runs", "/datasets"}
    assert {str(Path(resolved["run"]["dir"]).parent), str(Path(resolved["dataset"]["path"]).parent)} <= mounts
    assert (resolved["engine"]["name"], resolved["engine"]["log"]) == ("ray", "json")
