"""The files in `deploy` work: their schemas, their commands as real servers, and what they have to say for locks to be safe.

Docker and Kubernetes are not needed. The commands run as they are, with another port and folder.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import redis
import yaml
from nemesis.processes import until

from holdfast import ConfigError, Holdfast, events
from holdfast.embedded import find_server

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parent.parent / "deploy"
PASSWORD = "pa55 w0rd"
# Compose does not start without this variable.
NEEDED = "${HOLDFAST_PASSWORD:?choose a password for the nodes}"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text().replace(NEEDED, PASSWORD))
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
VERSIONS = ("1.27", "1.37")  # of Kubernetes: the first with a stable `minReadySeconds`, with room, and the newest that is known
GUARD = 32  # seconds: max_ttl + 2, by default
TTL = 10  # seconds, by default


# ------------------------------------------------ how they are run


@contextlib.contextmanager
def server(command: list[str], files: Mapping[str, str], folder: Path) -> Iterator[int]:
    """Run a container's command as a process. Gives its port.

    Args:
        command: Of the container. Its first word is the server.
        files: What is mounted: the text of each file by its path in the container.
        folder: Where the files and the data are put instead.
    """
    assert command[0] == "valkey-server"
    folder.mkdir()
    places = {path: folder / path.strip("/").replace("/", "-") for path in files}
    for path, place in places.items():
        text = files[path]
        for other, elsewhere in places.items():
            text = text.replace(other, str(elsewhere))
        place.write_text(text.replace("dir /data", f"dir {folder}"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    said = [find_server(), *(str(places.get(it, it)) for it in command[1:])]
    own = ["--port", str(port), "--dir", str(folder), "--bind", "127.0.0.1"]
    with (folder / "log").open("w") as log, subprocess.Popen([*said, *own], stdout=log, stderr=log) as process:
        try:
            until(lambda: socket.create_connection(("127.0.0.1", port)), told=f"the server of {folder / 'log'}").close()
            yield port
        finally:
            process.kill()


def use(urls: list[str], operator: list[str]) -> None:
    """Use all primitives on these nodes, and then repair them. Clients must be content with the nodes."""
    told: list[events.Event] = []
    adopts = [sys.executable, "-m", "holdfast", "nodes", "adopt", "--nodes", " ".join(operator)]
    subprocess.run(adopts, check=True, timeout=30, stdout=subprocess.DEVNULL)
    with Holdfast(*urls, observer=told.append, owner="test") as locks:
        locks.ready(15)
        with locks.lock("a", "b", wait=5) as lease:
            assert lease.fences
            lease.extend(5)
        with locks.rwlock("c").read():
            pass
        with locks.rwlock("c").write():
            pass
        with locks.semaphore("d", 2, wait=5):
            pass
        assert locks.rate("e", 1, 60).take()
        assert locks.once("f", keep=60).run(lambda: 7) == 7
        assert locks.fill("g", 60, lambda: 8).get().value == 8
        assert locks.latch("h", 1).arrive("me")
        leadership = locks.election("i", "me").campaign()
        leadership.resign()
    with Holdfast(*operator) as locks:
        assert locks.repair().left_out == ()
        assert locks.inspect("a").state == "free"
    assert [it for it in told if isinstance(it, events.NodeEvent) and it.state in ("down", "warned")] == []


# ------------------------------------------------ Compose


def started(service: Mapping[str, Any], folder: Path) -> contextlib.AbstractContextManager[int]:
    """Run a service of the Compose file."""
    files = {it["target"]: COMPOSE["configs"][it["source"]]["content"] for it in service["configs"]}
    return server(service["command"], files, folder)


def test_the_compose_file_starts_five_nodes_that_clients_are_content_with(tmp_path: Path) -> None:
    with ExitStack() as nodes:
        ports = [nodes.enter_context(started(it, tmp_path / name)) for name, it in COMPOSE["services"].items()]
        assert len(ports) == 5
        urls = [f"redis://:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{port}" for port in ports]
        use(urls, urls)
        with pytest.raises(ConfigError, match="password required"):
            Holdfast(*(f"redis://127.0.0.1:{port}" for port in ports)).ready(5)


def test_the_health_check_of_the_compose_file_tells_a_node_that_is_well(tmp_path: Path) -> None:
    _, service = min(COMPOSE["services"].items())
    with started(service, tmp_path / "node") as port:
        assert healthy(service["healthcheck"]["test"][1], port, {"REDISCLI_AUTH": PASSWORD})
        assert not healthy(service["healthcheck"]["test"][1], port, {"REDISCLI_AUTH": "wrong"})
    assert not healthy(service["healthcheck"]["test"][1], port, {"REDISCLI_AUTH": PASSWORD})


def healthy(script: str, port: int, environment: Mapping[str, str]) -> bool:
    """Run a check as the container's shell would."""
    program = shutil.which("valkey-cli") or shutil.which("redis-cli")
    if program is None:
        pytest.skip("no command line client of Valkey or Redis is installed")
    script = re.sub(r"\bvalkey-cli\b", f"{program} -p {port}", script)
    checked = subprocess.run(["sh", "-c", script], env=dict(environment), capture_output=True, check=False, timeout=30)
    return checked.returncode == 0


def test_compose_does_not_start_without_a_password() -> None:
    assert "HOLDFAST_PASSWORD" not in str(COMPOSE), "NEEDED stands for it everywhere"


def test_the_nodes_of_the_compose_file_are_independent() -> None:
    services = COMPOSE["services"].values()
    assert len({it["ports"][0] for it in services}) == len({it["volumes"][0] for it in services}) == len(services) == 5
    assert all(it["ports"][0].startswith("127.0.0.1:") for it in services), "nobody else can reach them"
    assert {it["volumes"][0].partition(":")[0] for it in services} == set(COMPOSE["volumes"])


# ------------------------------------------------ Kubernetes


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifest_is_what_kubernetes_understands(version: str) -> None:
    for document in KUBERNETES:
        kubernetes_validate.validate(document, version, strict=True)


def test_the_manifest_has_what_locks_need() -> None:
    """Without these, locks would not be safe, or nodes would depend on each other."""
    by_kind = {it["kind"]: it for it in KUBERNETES}
    assert set(by_kind) == {"Secret", "ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"}
    nodes, budget, service = (by_kind[it]["spec"] for it in ("StatefulSet", "PodDisruptionBudget", "Service"))
    pod, labels = nodes["template"]["spec"], nodes["template"]["metadata"]["labels"]
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert (apart["labelSelector"]["matchLabels"], apart["topologyKey"]) == (labels, "kubernetes.io/hostname"), "two on one machine"
    assert nodes["replicas"] in (3, 5, 7)
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, labels), "more than one can be drained at a time"
    assert nodes["minReadySeconds"] > GUARD + TTL, "the next node is replaced before the restart guard is over"
    assert service["selector"] == nodes["selector"]["matchLabels"] == labels
    assert nodes["serviceName"] == by_kind["Service"]["metadata"]["name"]
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"], "clients cannot address each node"
    assert not re.search("replicaof|slaveof", str([pod["containers"], by_kind["ConfigMap"]["data"]]))
    assert pod["terminationGracePeriodSeconds"] >= 10, "a node has no time to write what it keeps"
    assert "user default off" in by_kind["Secret"]["stringData"]["users.acl"]


def container() -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """The command of the manifest's container, the files that are mounted, and the container."""
    by_kind = {it["kind"]: it for it in KUBERNETES}
    pod = by_kind["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    sources = {"config": by_kind["ConfigMap"]["data"], "secret": by_kind["Secret"]["stringData"]}
    mounts = {it["name"]: it["mountPath"] for it in container["volumeMounts"]}
    files = {f"{mounts[name]}/{file}": text for name, texts in sources.items() for file, text in texts.items()}
    return container["command"], files, container


def test_the_manifest_s_command_starts_nodes_with_the_users_that_clients_need(tmp_path: Path) -> None:
    command, files, container_ = container()
    with ExitStack() as nodes:
        ports = [nodes.enter_context(server(command, files, tmp_path / str(it))) for it in range(3)]
        urls = {who: [f"redis://{who}:change-me-{who}@127.0.0.1:{port}" for port in ports] for who in ("app", "operator")}
        use(urls["app"], urls["operator"])
        with pytest.raises(ConfigError, match="password required"):
            Holdfast(*(f"redis://127.0.0.1:{port}" for port in ports)).ready(5)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            _, _, script = container_[probe]["exec"]["command"]
            assert healthy(script, ports[0], {}), probe
        with redis.Redis(port=ports[0], username="probe", password="any") as node, pytest.raises(redis.ResponseError):
            node.get("x")


def test_the_constants_are_those_of_the_library() -> None:
    with Holdfast("redis://a") as locks:
        assert locks.settings.guard == GUARD
        assert timedelta(seconds=locks.settings.ttl) == timedelta(seconds=TTL)
