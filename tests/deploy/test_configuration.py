"""What stands in deploy/ agrees with what the code does."""

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

from stores.search_attributes import SEARCH_ATTRIBUTES
from stores.settings import PREFIX, Settings
from tests.deploy.validators import DEPLOY
from tests.support.server import DevServer, client_of
from workers.health import CHECK_SECONDS
from workers.roles import GRACE
from workers.server import DYNAMIC_CONFIG, find_server
from workers.supervisor import WORKER_GRACE_SECONDS

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
PODS = ("kubernetes/base/workspace.yaml", "kubernetes/worker/worker.yaml")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def pod(name: str) -> dict[str, Any]:
    """Return the specification of the pods of the first document."""
    spec: dict[str, Any] = documents(name)[0]["spec"]["template"]["spec"]
    return spec


def test_the_server_in_deploy_gets_the_dynamic_configuration_of_the_embedded_one() -> None:
    given = documents("temporal/dynamicconfig.yaml")[0]
    embedded = {key: json.loads(value) for key, _, value in (item.partition("=") for item in DYNAMIC_CONFIG)}
    assert {key: [item["value"] for item in values] for key, values in given.items()} == {
        key: [value] for key, value in embedded.items()
    }


def test_the_namespace_script_makes_what_runs_need_and_may_be_repeated(server: DevServer) -> None:
    async def connected() -> Client:
        return await client_of(server.settings)

    client = asyncio.run(connected())
    environ = {
        "PATH": f"{find_server(server.settings).parent}:{os.environ['PATH']}",
        "TEMPORAL_ADDRESS": client.service_client.config.target_host,
        "TEMPORAL_NAMESPACE": "deployed",
        "TEMPORAL_RETENTION": "168h",
    }
    for _ in range(2):
        script = ["sh", str(DEPLOY / "temporal" / "namespace.sh")]
        done = subprocess.run(script, env=environ, capture_output=True, text=True, timeout=110, check=False)
        assert done.returncode == 0, done.stderr

    async def registered() -> dict[str, int]:
        again = await client_of(server.settings)
        request = ListSearchAttributesRequest(namespace="deployed")
        return dict((await again.operator_service.list_search_attributes(request)).custom_attributes)

    found = asyncio.run(registered())
    assert {key.name: int(key.indexed_value_type) for key in SEARCH_ATTRIBUTES}.items() <= found.items()
    assert {name for name in found if name.startswith("Surefoot")} == {key.name for key in SEARCH_ATTRIBUTES}


@pytest.mark.parametrize("path", ["Dockerfile", "compose.yaml", "worker.env.example", *PODS], ids=str)
def test_only_settings_that_exist_are_set(path: str) -> None:
    """An unknown one is refused, and a worker with it would not start."""
    names = re.findall(rf"\b{PREFIX}(\w+)\b", (DEPLOY / path).read_text())
    assert {name.partition("__")[0].lower() for name in names} <= set(Settings.model_fields)


def test_the_settings_of_the_cluster_exist() -> None:
    data = documents("kubernetes/base/settings.yaml")[0]["data"]
    own = {name.removeprefix(PREFIX).lower() for name in data if name.startswith(PREFIX)}
    assert own <= set(Settings.model_fields)
    assert {"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"} <= set(data)


@pytest.mark.parametrize("name", PODS)
def test_pods_are_stopped_and_asked_as_workers_need_it(name: str) -> None:
    spec = pod(name)
    (container,) = spec["containers"]
    assert spec["terminationGracePeriodSeconds"] >= GRACE.total_seconds() + WORKER_GRACE_SECONDS
    assert spec["enableServiceLinks"] is False
    port = re.search(r"SUREFOOT_HEALTH__ADDRESS=0\.0\.0\.0:(\d+)", DOCKERFILE)
    assert port is not None
    assert container["ports"] == [{"name": "health", "containerPort": int(port[1])}]
    for probe, path in (("startupProbe", "/live"), ("livenessProbe", "/live"), ("readinessProbe", "/ready")):
        assert container[probe]["httpGet"] == {"path": path, "port": "health"}
    assert container["readinessProbe"]["timeoutSeconds"] > CHECK_SECONDS + 1
    assert f"USER {spec['securityContext']['runAsUser']}:" in DOCKERFILE


def test_a_build_has_one_name_in_its_kustomization() -> None:
    kustomization = documents("kubernetes/worker/kustomization.yaml")[0]
    build = kustomization["images"][0]["newTag"]
    assert kustomization["nameSuffix"] == f"-{build}"
    assert kustomization["labels"][0]["pairs"] == {"app.kubernetes.io/version": build}
    (container,) = pod("kubernetes/worker/worker.yaml")["containers"]
    source = next(item for item in container["env"] if item["name"] == "SUREFOOT_DEPLOYMENT__BUILD_ID")
    assert source["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['app.kubernetes.io/version']"


def test_no_secret_stands_in_a_file() -> None:
    for path in sorted(Path(DEPLOY).rglob("*")):
        if path.suffix in (".yaml", ".sh", ".example") or path.name == "Dockerfile":
            text = path.read_text()
            assert re.search(r"(?im)^\W*\w*(password|pwd|api_key)\w*[:=][ \t]*[^\s$]", text) is None, path
