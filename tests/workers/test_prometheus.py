"""The alerts and the dashboard of deploy/ ask for what workers really show, and Prometheus understands them."""

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import temporalio.bridge
import yaml

from schemas.telemetry import Metric
from tests.support.processes import free_port
from tests.support.server import DevServer, running_server
from tests.workers.test_telemetry import a_worker, run_task, scrape, short_task, with_telemetry

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yaml"
PATIENCE_SECONDS = 60

pytestmark = pytest.mark.slow  # needs Prometheus, which is installed for the proofs only


@pytest.fixture(scope="module")
def promtool() -> str:
    """Debian's tool; `sh deploy/system-packages.sh proof` installs it."""
    found = which("promtool")
    assert found, "promtool is missing: apt-get install -y --no-install-recommends prometheus"
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> list[str]:
    panels = json.loads((DEPLOY / "grafana" / "surefoot.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    return [
        re.sub(r"\$__(range|rate_interval)", "5m", query) for query in [*asked, *[rule["expr"] for rule in rules()]]
    ]


def metrics_of(query: str) -> set[str]:
    return set(re.findall(r"\b(?:surefoot|temporal)_\w+", query))


def test_the_queries_name_metrics_that_exist() -> None:
    ours = {f"{metric.value}_total" for metric in Metric}
    asked = {name for query in queries() for name in metrics_of(query)}
    assert {name for name in asked if name.startswith("surefoot_")} == ours, "each of ours is shown somewhere"
    core = b"".join(path.read_bytes() for path in Path(temporalio.bridge.__path__[0]).glob("*.so"))
    for name in asked - ours:
        inside = re.sub(r"(_seconds_bucket|_total)$", "", name.removeprefix("temporal_"))
        assert inside.encode() in core, f"Temporal's core knows no {name}"


def test_the_rules_are_sound_and_fire_when_they_should(promtool: str, tmp_path: Path) -> None:
    def series(name: str, values: str) -> dict[str, str]:
        return {"series": name, "values": values}

    def at(minutes: int, alert: str, *labels: dict[str, str]) -> dict[str, Any]:
        severity = {rule["alert"]: rule["labels"]["severity"] for rule in rules()}[alert]
        expected = [{"exp_labels": {"severity": severity, **found}} for found in labels]
        return {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": expected}

    unknown = {"tool": "run", "status": "unknown"}
    case = {
        "interval": "1m",
        "input_series": [
            # one unknown effect, of a series that was not there before; then nothing for long
            series('surefoot_actions_total{tool="run",status="unknown"}', "_x10 1x40"),
            series('surefoot_actions_total{tool="run",status="succeeded"}', "0+1x50"),
            series('surefoot_outcomes_total{kind="FAILED",reason="Fault"}', "1x20 2x30"),
            series('surefoot_outcomes_total{kind="FINISHED",reason=""}', "0+1x50"),
            series('surefoot_model_calls_total{model="m",status="answered"}', "0+8x50"),
            series('surefoot_model_calls_total{model="m",status="ambiguous"}', "0x20 0+2x30"),
            series('surefoot_model_calls_total{model="m",status="ModelQuota"}', "0x30 0+1x20"),
            series('surefoot_model_microusd_total{model="m"}', "0+500000x50"),
            series('up{job="surefoot"}', "1x40 0x10"),
        ],
        "alert_rule_test": [
            at(8, "SurefootUnknownEffect"),
            at(12, "SurefootUnknownEffect", unknown),
            at(40, "SurefootUnknownEffect"),
            at(19, "SurefootTaskFailed"),
            at(22, "SurefootTaskFailed", {"kind": "FAILED", "reason": "Fault"}),
            at(18, "SurefootModelsUnanswered"),
            at(45, "SurefootModelsUnanswered", {"model": "m"}),
            at(28, "SurefootModelsRefused"),
            at(36, "SurefootModelsRefused", {"model": "m", "status": "ModelQuota"}),
            at(10, "SurefootSpendsFast"),
            at(48, "SurefootSpendsFast", {}),
            at(40, "SurefootWorkerDown"),
            at(45, "SurefootWorkerDown", {"job": "surefoot"}),
        ],
    }
    bare = tmp_path / "rules.yaml"  # texts for people are no behaviour
    texts = [{name: value for name, value in rule.items() if name != "annotations"} for rule in rules()]
    bare.write_text(yaml.safe_dump({"groups": [{"name": "surefoot", "rules": texts}]}))
    path = tmp_path / "rules.test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(bare)], "evaluation_interval": "1m", "tests": [case]}))
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(path)]):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    config = DEPLOY / "prometheus" / "prometheus.yaml"
    subprocess.run([promtool, "check", "config", str(config)], capture_output=True, check=True)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[DevServer]:
    with running_server(tmp_path / "home") as server:
        yield server


def test_prometheus_scrapes_a_worker_and_answers_every_query(home: DevServer, promtool: str, tmp_path: Path) -> None:
    address, own = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = with_telemetry(home.settings, prometheus=address)
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [address]}]
    path = tmp_path / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    worker = a_worker(settings)
    program = str(Path(promtool).with_name("prometheus"))
    command = [program, f"--config.file={path}", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={own}"]
    with (tmp_path / "prometheus.log").open("w") as log:
        prometheus = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        run_task(settings, short_task(settings), "task-scraped")
        finished = 'sum(surefoot_outcomes_total{kind="FINISHED"})'
        _until(lambda: _ask(own, finished) == [1.0], tmp_path / "prometheus.log")
        for query in queries():
            _ask(own, query)
        assert _ask(own, "sum(surefoot_model_calls_total)") == [3.0]
        shown = {line.split("{")[0] for line in scrape(address).splitlines()}
        failures = {name for name in {n for q in queries() for n in metrics_of(q)} if "failed" in name}
        assert {name for query in queries() for name in metrics_of(query)} - shown <= failures
    finally:
        prometheus.kill()
        prometheus.wait()
        worker.stop()


def _ask(address: str, query: str) -> list[float]:
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{query}: {error.read().decode()}") from error
    return [float(item["value"][1]) for item in found["data"]["result"]]


def _until(condition: Any, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if condition():
                return
        except urllib.error.URLError:
            pass  # it is not up yet
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)
