"""The manifests of infra/k8s, built by kubectl, against Kubernetes' published schemas and reduced ones of operators."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from pipeline import config
from tests.infra.operators import KINDS, KUBERNETES, schema
from tests.infra.support import INFRA

K8S = INFRA / "k8s"
OVERLAYS = ("overlays/one-gpu", "overlays/eight-gpus")
RUNS = {"jobs/evaluate": "overlays/one-gpu", "jobs/sweep": "overlays/eight-gpus"}
"""The runs, and the clusters that they are written for."""
BUILT = (*OVERLAYS, *RUNS, "jobs/load-freebase", "monitoring")
VERSION = "1.31"
Document = dict[str, Any]


@cache
def _build(folder: str) -> str:
    kubectl = Path(sys.executable).with_name("kubectl")
    return subprocess.run([kubectl, "kustomize", K8S / folder], capture_output=True, text=True, check=True).stdout


def built(folder: str) -> list[Document]:
    """The objects that `kubectl apply -k` sends."""
    return list(yaml.safe_load_all(_build(folder)))


def snapshot() -> Document:
    return yaml.safe_load((K8S / "jobs" / "load-freebase" / "snapshot.yaml").read_text())


def only(kind: str, folder: str, name: str | None = None) -> Document:
    (found,) = (each for each in built(folder) if each["kind"] == kind and name in (None, each["metadata"]["name"]))
    return found


def mistakes(document: Document) -> list[str]:
    """What the schema of an operator's object says of one."""
    carried = files("kubernetes_validate") / "kubernetes-json-schema"
    newest = f"v{kubernetes_validate.latest_version()}-local-strict"
    types = Resource.from_contents(json.loads((carried / newest / "_definitions.json").read_text()))
    registry: Registry[Any] = Registry().with_resource(KUBERNETES, types)
    validator = Draft202012Validator(schema(document["kind"]), registry=registry)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


@pytest.mark.parametrize("folder", BUILT)
def test_objects_follow_their_schemas(folder: str) -> None:
    for each in (*built(folder), snapshot()):
        if each["kind"] in KINDS:
            assert mistakes(each) == []
        else:
            kubernetes_validate.validate(each, VERSION, strict=True)
        assert each["metadata"].get("namespace", "kgqa") == "kgqa"


def test_a_wrong_field_of_a_built_in_object_is_found() -> None:
    wrong = copy.deepcopy(only("StatefulSet", OVERLAYS[0]))
    wrong["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePolicy"):
        kubernetes_validate.validate(wrong, VERSION, strict=True)


def test_wrong_fields_of_an_operators_object_are_found() -> None:
    wrong = copy.deepcopy(only("RayCluster", OVERLAYS[0]))
    wrong["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["port"] = []
    wrong["spec"]["workerGroupSpecs"][0]["replicas"] = "1"
    wrong["spec"]["workerGroup"] = []
    found = "\n".join(mistakes(wrong))
    assert "'port' was unexpected" in found
    assert "$.spec.workerGroupSpecs[0].replicas: '1' is not of type 'integer'" in found
    assert "'workerGroup' was unexpected" in found


def test_every_manifest_is_part_of_something_that_is_built() -> None:
    """A file that no kustomization names would never be applied."""
    for file in K8S.rglob("*.yaml"):
        folder = yaml.safe_load((file.parent / "kustomization.yaml").read_text())
        named = [each for key in ("resources", "components", "configurations") for each in folder.get(key, [])]
        assert file.name in (*named, "kustomization.yaml") or file.name == "snapshot.yaml", file
    reached = {
        (K8S / folder / other).resolve()
        for folder in (*BUILT, "base", "jobs/driver")
        for key in ("resources", "components")
        for other in yaml.safe_load((K8S / folder / "kustomization.yaml").read_text()).get(key, [])
    }
    folders = {file.parent for file in K8S.rglob("kustomization.yaml")}
    assert folders - {K8S / each for each in BUILT} <= reached


def templates(folder: str) -> Iterator[Document]:
    """The pods of the objects."""
    for each in built(folder):
        spec = each.get("spec", {})
        for group in (spec, spec.get("headGroupSpec", {}), *spec.get("workerGroupSpecs", [])):
            if "template" in group:
                yield group["template"]["spec"]


def containers(folder: str) -> list[Document]:
    return [container for template in templates(folder) for container in template["containers"]]


@pytest.mark.parametrize("folder", BUILT)
def test_images_are_those_of_a_registry(folder: str) -> None:
    registry = {f"registry.example.org/kgqa:{tag}" for tag in ("cpu", "gpu", "virtuoso")}
    assert {container["image"] for container in containers(folder)} <= registry
    if folder in OVERLAYS:
        assert {container["image"] for container in containers(folder)} == registry


@pytest.mark.parametrize("folder", BUILT)
def test_no_pod_runs_as_root_or_can_become_root(folder: str) -> None:
    for template in templates(folder):
        assert template["securityContext"]["runAsNonRoot"] is True
        assert template["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert template["nodeSelector"]["kubernetes.io/arch"] == "amd64"
    for container in containers(folder):
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]


@pytest.mark.parametrize("folder", BUILT)
def test_volumes_and_services_that_pods_name_exist(folder: str) -> None:
    everything = [*built(OVERLAYS[0]), *built(folder)]
    claims = {each["metadata"]["name"] for each in everything if each["kind"] == "PersistentVolumeClaim"}
    own = {each["metadata"]["name"] for each in stateful_set()["spec"]["volumeClaimTemplates"]}
    for template in templates(folder):
        volumes = template.get("volumes", [])
        mounted = {mount["name"] for container in template["containers"] for mount in container["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in volumes} | own
        assert {
            each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each
        } <= claims
    services = {each["metadata"]["name"]: each for each in everything if each["kind"] == "Service"}
    service = services[stateful_set()["spec"]["serviceName"]]
    assert service["spec"]["selector"].items() <= stateful_set()["spec"]["template"]["metadata"]["labels"].items()


def stateful_set(overlay: str = OVERLAYS[0]) -> Document:
    return only("StatefulSet", overlay)


@pytest.mark.parametrize("folder", RUNS)
def test_jobs_run_our_commands_on_the_cluster_and_graph_of_the_manifests(folder: str) -> None:
    overlay = RUNS[folder]
    (driver,) = containers(folder)
    program, command, *words = driver["args"]
    assert (program, command) == ("kgqa", Path(folder).name)
    first_points = [word.partition(",")[0] if word.startswith("method") else word for word in words]
    resolved = config.compose(first_points)
    graph = stateful_set(overlay)
    replicas = [f"{graph['metadata']['name']}-{number}" for number in range(graph["spec"]["replicas"])]
    service = graph["spec"]["serviceName"]
    assert resolved["kg"]["endpoints"] == [f"http://{replica}.{service}:8890/sparql" for replica in replicas]
    for container in (driver, *(each for each in containers(overlay) if each["name"] == "ray")):
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {str(Path(resolved["run"]["dir"]).parent), str(Path(resolved["dataset"]["path"]).parent)} <= mounts
        assert "/models" in mounts, "HF_HOME of the images"
    assert (resolved["engine"]["name"], resolved["engine"]["log"]) == ("ray", "json")
    models = only("RayCluster", overlay)["spec"]["workerGroupSpecs"][1]
    gpus = int(models["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
    assert resolved["llm"]["tensor_parallel"] <= gpus, "a copy of the model fits on a node"
    assert resolved["llm"]["replicas"] * resolved["llm"]["tensor_parallel"] <= gpus * models["maxReplicas"]


@pytest.mark.parametrize("folder", RUNS)
def test_a_driver_joins_the_cluster_and_another_one_continues_its_run(folder: str) -> None:
    job, cluster = only("Job", folder), only("RayCluster", RUNS[folder])
    (driver,) = containers(folder)
    variables = {each["name"]: each for each in driver["env"]}
    assert variables["RAY_ADDRESS"]["value"] == f"{cluster['metadata']['name']}-head-svc:6379", "KubeRay's service"
    assert cluster["spec"]["authOptions"]["mode"] == variables["RAY_AUTH_MODE"]["value"]
    key = variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert key == {"name": cluster["metadata"]["name"], "key": "auth_token"}, "KubeRay's secret"
    assert any(word.startswith("run.dir=/runs/") for word in driver["args"]), "each pod has the same folder"
    assert job["spec"]["backoffLimit"] > 0
    rules = {rule["action"]: rule for rule in job["spec"]["podFailurePolicy"]["rules"]}
    assert rules["FailJob"]["onExitCodes"]["values"] == [2, 3]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_keys_are_in_one_secret_that_may_be_missing(overlay: str) -> None:
    keys = [{"secretRef": {"name": "keys", "optional": True}}]
    nodes = [container for container in containers(overlay) if container["name"] == "ray"]
    assert len(nodes) == 3
    for container in (*nodes, *containers("jobs/evaluate")):
        assert container["envFrom"] == keys


def test_replicas_serve_what_the_job_loads() -> None:
    (load,) = containers("jobs/load-freebase")
    script, parts, database = load["command"]
    copied = (INFRA / "docker" / "Dockerfile.virtuoso").read_text()
    assert f"infra/virtuoso/{Path(script).name}" in copied
    assert script.startswith("/opt/virtuoso/")
    assert parts.startswith("/datasets/")
    replica = stateful_set()["spec"]
    (container,) = replica["template"]["spec"]["containers"]
    for each in (load, container):
        assert {"name": "database", "mountPath": str(Path(database).parent)} in each["volumeMounts"]
    assert container["args"] == [database]
    (claim,) = replica["volumeClaimTemplates"]
    source = claim["spec"]["dataSource"]
    assert (source["kind"], source["name"]) == ("VolumeSnapshot", snapshot()["metadata"]["name"])
    loaded = only("PersistentVolumeClaim", "jobs/load-freebase")
    assert snapshot()["spec"]["source"]["persistentVolumeClaimName"] == loaded["metadata"]["name"]
    assert claim["spec"]["resources"] == loaded["spec"]["resources"], "a clone has the size of its source"


def test_the_operators_of_prometheus_get_the_rules_and_names_of_the_other_configurations() -> None:
    rules = yaml.safe_load((INFRA / "monitoring" / "rules.yml").read_text())
    assert only("PrometheusRule", "monitoring")["spec"] == rules
    severities = {rule["labels"]["severity"] for group in rules["groups"] for rule in group["rules"]}
    assert severities == {"critical", "warning"}
    (scraped,) = yaml.safe_load((INFRA / "monitoring" / "prometheus.kubernetes.yml").read_text())["scrape_configs"]
    monitor = only("PodMonitor", "monitoring")["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    assert scraped["metric_relabel_configs"] == [
        {names.get(key, key): value for key, value in each.items()} for each in endpoint["metricRelabelings"]
    ]
    service = only("Service", OVERLAYS[0], "ray-metrics")["spec"]
    assert monitor["selector"]["matchLabels"] == service["selector"]
    for container in (each for each in containers(OVERLAYS[0]) if each["name"] == "ray"):
        assert endpoint["port"] in {port["name"] for port in container["ports"]}
