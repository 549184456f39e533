"""Scrape configurations, rules and dashboards: checked by promtool, and against the metrics that exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.engine.metrics import METRICS, Metric
from tests.infra.support import MONITORING, OF_VLLM, dashboards, expressions, metrics_in

PANELS = [
    pytest.param(panel, id=f"{file} {panel['title']}")
    for file, dashboard in sorted(dashboards().items())
    for panel in dashboard["panels"]
    if panel["type"] != "row"
]


@pytest.fixture(scope="module", autouse=True)
def promtool_installed() -> None:
    """The promtool of this machine. In CI a missing promtool is a failure."""
    if not shutil.which("promtool"):
        message = "promtool is not installed (infra/install-prometheus.sh)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


def promtool(*words: str | Path) -> None:
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, cwd=MONITORING, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_scrape_configurations_are_valid() -> None:
    files = sorted(MONITORING.glob("prometheus*.yml"))
    assert len(files) == 3
    for file in files:
        promtool("check", "config", "--syntax-only", file)


def test_rules_are_valid_and_alert_when_they_should() -> None:
    promtool("check", "rules", "rules.yml")
    promtool("test", "rules", "rules.test.yml")


def test_the_three_configurations_name_metrics_alike() -> None:
    relabelled = [
        job["metric_relabel_configs"]
        for file in MONITORING.glob("prometheus*.yml")
        for job in yaml.safe_load(file.read_text())["scrape_configs"]
        if job["job_name"] == "ray"
    ]
    assert relabelled == [relabelled[0]] * 3


def exported(metric: Metric) -> Iterator[str]:
    if metric.kind == "histogram":
        yield from (f"{metric.name}_{part}" for part in ("bucket", "count", "sum"))
    else:
        yield metric.name


def test_expressions_of_dashboards_are_valid(tmp_path: Path) -> None:
    asked = [expression for dashboard in dashboards().values() for expression in expressions(dashboard)]
    assert len(asked) > 30
    rules = [{"record": f"panel:{place}", "expr": expression} for place, expression in enumerate(asked)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", file)


def test_dashboards_and_rules_use_existing_metrics() -> None:
    exported_names = {name for metric in METRICS for name in exported(metric)}
    in_dashboards = {
        name for board in dashboards().values() for each in expressions(board) for name in metrics_in(each)
    }
    in_rules = {
        name
        for group in yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"]
        for rule in group["rules"]
        for name in metrics_in(rule["expr"])
    }
    assert in_dashboards | in_rules <= exported_names | OF_VLLM
    shown = {metric.name for metric in METRICS if in_dashboards & set(exported(metric))}
    assert shown == {metric.name for metric in METRICS}, "every metric is on a dashboard"


def test_expressions_use_existing_labels() -> None:
    labels = {name: {"run", "le", *metric.labels} for metric in METRICS for name in exported(metric)}
    for dashboard in dashboards().values():
        for expression in expressions(dashboard):
            for name, matchers in re.findall(r"\b(kgqa_\w+)\{([^}]*)\}", expression):
                assert set(re.findall(r"(\w+)=", matchers)) <= labels[name], expression


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_can_be_drawn(panel: dict[str, Any]) -> None:
    assert panel["type"] == "timeseries"
    assert panel["datasource"] == {"type": "prometheus", "uid": provisioned_source()["uid"]}
    assert panel["fieldConfig"]["defaults"]["unit"] in {"ops", "s", "short", "percentunit"}
    assert panel["targets"]
    assert all(target["expr"] and target["legendFormat"] for target in panel["targets"])
    references = [target["refId"] for target in panel["targets"]]
    assert len(references) == len(set(references))


@pytest.mark.parametrize("name", sorted(dashboards()))
def test_a_dashboard_is_complete(name: str) -> None:
    dashboard = dashboards()[name]
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= dashboard.keys()
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in dashboard["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)), "no panel covers another"
    assert max(x for x, _ in cells) < 24
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", "".join(target for target in raw_expressions(dashboard))))
    assert used - {"__rate_interval"} == variables


def raw_expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def provisioned_source() -> dict[str, Any]:
    provisioning = MONITORING / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    return source


def test_grafana_provisions_the_dashboards_and_the_data_source() -> None:
    provisioning = MONITORING / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "kgqa.yaml").read_text())["providers"]
    mounted = yaml.safe_load((MONITORING.parent / "docker" / "compose.yaml").read_text())["services"]["grafana"][
        "volumes"
    ]
    inside = {volume.split(":")[1]: volume.split(":")[0] for volume in mounted}
    assert inside[provider["options"]["path"]] == "../monitoring/grafana/dashboards"
    assert inside["/etc/grafana/provisioning"] == "../monitoring/grafana/provisioning"
    assert provisioned_source()["url"] == "http://prometheus:9090"
