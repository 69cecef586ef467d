"""Strangers and neighbours: what the door of a gateway keeps out, and for whom it keeps room."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
import redis
from cli.kit import Command
from serve.serving import certified, gateway_app, served, serving, write_tokens

from holdfast import ConfigError, Misuse
from holdfast.aio import Holdfast
from holdfast.embedded import Nodes
from holdfast.serve import identity
from holdfast.serve.answering import PING, respond
from holdfast.serve.problems import KINDS, Problem
from holdfast.serve.server import Connections

ID = "a-lease-at-the-door"
NOBODY = 65534


@pytest.fixture
def url(holdfast: Command) -> Iterator[str]:
    with served(holdfast, "--no-page") as (url, _):
        yield url


def held(client: httpx.Client, name: str, lease: str = ID, **more: Any) -> dict[str, Any]:
    answer = client.put(f"/v1/leases/{lease}", json={"names": [name], **more})
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_where_everybody_is_one_client_no_list_has_ids(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        held(client, "door:listed")
        assert [it["id"] for it in client.get("/v1/leases").json()["leases"]] == [None]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user as well")
def test_on_a_unix_socket_users_are_clients(holdfast: Command) -> None:
    with TemporaryDirectory() as folder:
        # The folders of pytest are closed to other users.
        os.chmod(folder, 0o755)
        place = f"{folder}/gateway.sock"

        def stolen(path: str, *words: str) -> str:
            """What another user gets."""
            found = ["curl", "-sS", "--unix-socket", place, f"http://localhost{path}", *words]
            return subprocess.run(found, user=NOBODY, capture_output=True, text=True, cwd="/", check=True).stdout

        with served(holdfast, "--drain", "100ms", at=("--listen", f"unix:{place}")) as (url, process):
            assert url == f"unix:{place}"
            with httpx.Client(transport=httpx.HTTPTransport(uds=place), base_url="http://localhost") as client:
                lease = held(client, "door:user")["id"]
                (own,) = client.get("/v1/leases").json()["leases"]
                assert (own["client"], own["id"]) == ("uid:0", lease)
                assert [it["id"] for it in json.loads(stolen("/v1/leases"))["leases"]] == [None]
                assert json.loads(stolen(f"/v1/leases/{lease}", "-X", "DELETE"))["type"] == "/problems/unknown-lease"
                assert client.post(f"/v1/leases/{lease}/keepalive", json={}).status_code == 200
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        assert not Path(place).exists()


def test_a_unix_socket_is_taken_over_from_a_gateway_that_died_and_from_no_other(holdfast: Command, tmp_path: Path) -> None:
    words = ("--listen", f"unix:{tmp_path}/gateway.sock")
    with served(holdfast, at=words) as (_, process):
        assert "in use" in holdfast.run("serve", *words).stderr
        process.kill()
        process.wait()
    with served(holdfast, at=words) as (_, process):
        (tmp_path / "gateway.sock").unlink()
        process.terminate()
        assert process.wait(20) == 0
    (tmp_path / "file").write_text("not a socket")
    assert "no socket" in holdfast.run("serve", "--listen", f"unix:{tmp_path}/file").stderr


def opened(url: str) -> socket.socket:
    host, port = url.rpartition("/")[2].split(":")
    return socket.create_connection((host, int(port)), 20)


BEGUN = b"POST /v1/keepalive HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"


def test_sockets_of_strangers_do_not_shut_the_gateway(holdfast: Command) -> None:
    with served(holdfast, "--no-page", "--max-connections", "60") as (url, _), ExitStack() as stack:
        with httpx.Client(base_url=url) as steady:
            held(steady, "door:steady")
            for at in range(240):
                stack.enter_context(opened(url)).sendall(BEGUN if at % 2 else b"")
            # The connection that has a lease is still there; and each new one gets in.
            begun = time.monotonic()
            for _ in range(4):
                assert steady.post(f"/v1/leases/{ID}/keepalive", json={}).status_code == 200
                assert httpx.post(f"{url}/v1/leases/{ID}/keepalive", json={}).status_code == 200
            assert time.monotonic() - begun < 3


def until_closed(stranger: socket.socket) -> float:
    """After how many seconds a connection is closed, and what was said before."""
    began = time.monotonic()
    stranger.settimeout(30)
    try:
        while stranger.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - began


def test_a_body_that_does_not_come_ends_the_connection(url: str) -> None:
    with opened(url) as stranger:
        stranger.sendall(BEGUN)
        assert 5 < until_closed(stranger) < 20


def test_a_handshake_that_does_not_come_ends_the_connection(holdfast: Command, tmp_path: Path) -> None:
    words, context = certified(tmp_path)
    with served(holdfast, *words) as (url, _):
        with opened(url) as stranger:
            assert until_closed(stranger) < 20
        port = url.rpartition(":")[2]
        assert httpx.get(f"https://localhost:{port}/healthz", verify=context).status_code == 200


@pytest.mark.parametrize("length,status", [(9, b"401"), (70_000, b"413")])
def test_a_request_is_refused_before_its_body(holdfast: Command, tmp_path: Path, length: int, status: bytes) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.touch(0o600)
    words = ("--tokens", str(tokens)) if status == b"401" else ()
    with served(holdfast, *words) as (url, _), opened(url) as stranger:
        head = f"PUT /v1/leases/{ID} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        stranger.sendall(head.encode())
        stranger.settimeout(3)
        assert stranger.recv(4096).split()[1] == status


def test_whose_connection_makes_room() -> None:
    pairs = [socket.socketpair() for _ in range(9)]
    ours, theirs = [it[0] for it in pairs], [it[1] for it in pairs]
    for it in theirs:
        it.settimeout(0.01)

    def cut(it: int) -> bool:
        try:
            return theirs[it].recv(1) == b""
        except TimeoutError:
            return False

    # Four in all, and one of each client or stranger that is not the only one.
    connections = Connections(8)
    assert all(connections.come(it, "a") for it in ours[:2])
    connections.known(ours[0], "ann")
    connections.known(ours[1], "ann")
    # An address has two strangers at most: the third takes the place of the first.
    assert all(connections.come(it, "b") for it in ours[2:5])
    assert [cut(it) for it in range(5)] == [False, False, True, False, False]
    assert [connections.cut(it) for it in ours[:5]] == [False, False, True, False, False]
    # One that has ended is not counted any more, and neither is one that has shown who it is.
    connections.gone(ours[3])
    connections.known(ours[4], "ben")
    for at, it in enumerate(ours[5:9]):
        assert connections.come(it, "bc"[at // 2])
    full = Connections(1)
    assert full.come(ours[5], "a")
    full.known(ours[5], "ann")
    assert not full.come(ours[6], "a")
    for it in (*ours, *theirs):
        it.close()


def test_a_new_token_is_in_no_file(holdfast: Command, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    importer = '[client.importer]\nsha256 = "old" # of last year\nscopes = [\n  "lock:invoice:*",\n]\n'
    tokens.write_text(f'# ours\n{importer}[client.other]\ncertificate = "x"\n')
    tokens.chmod(0o640)
    before = tomllib.loads(tokens.read_text())["client"]
    made = [holdfast.run("serve", "--new-token", "importer", "--tokens", str(tokens)).stdout.split() for _ in range(2)]
    assert [len(it) for it in made] == [1, 1]
    found = tomllib.loads(tokens.read_text())["client"]
    assert found == {**before, "importer": {**before["importer"], "sha256": hashlib.sha256(made[1][0].encode()).hexdigest()}}
    assert not [it for (it,) in made if it in tokens.read_text()]
    assert tokens.read_text().startswith("# ours\n")
    assert tokens.stat().st_mode & 0o777 == 0o640
    assert sorted(it.name for it in tmp_path.glob("tokens*")) == ["tokens.toml"]
    # A new file is for its owner alone, and a new client has usual scopes.
    holdfast.run("serve", "--new-token", "importer", "--tokens", str(tmp_path / "new.toml"))
    assert (tmp_path / "new.toml").stat().st_mode & 0o777 == 0o600
    assert next(iter(identity.read(str(tmp_path / "new.toml")).tokens.values())).scopes == ("lock:*", "look:*")
    # Without a file, it would be lost or end in one that others read.
    refused = holdfast.run("serve", "--new-token", "importer")
    assert (refused.returncode, refused.stdout, "--tokens FILE" in refused.stderr) == (64, "", True)
    tokens.write_text('[client."importer"]\nsha256 = "x"\n')
    refused = holdfast.run("serve", "--new-token", "importer", "--tokens", str(tokens))
    assert (refused.returncode, "by hand" in refused.stderr) == (78, True), refused.stderr
    assert tokens.read_text() == '[client."importer"]\nsha256 = "x"\n'


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620])
def test_a_file_of_tokens_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.touch()
    tokens.chmod(0o640)
    identity.read(str(tokens))
    tokens.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        identity.read(str(tokens))


# Results of work that JSON cannot say, or that nobody could read.
UNFIT = {
    "no number": b"NaN",
    "infinite": b"-Infinity",
    "too large a number": b"1e400",
    "deep": b"[" * 800 + b"]" * 800,
    "a lone surrogate": b'"\\ud800"',
    "a lone surrogate in a key": b'{"\\ud800": [1]}',
}


@pytest.mark.parametrize("value", UNFIT)
async def test_a_result_that_nobody_could_read_is_refused_before_it_is_kept(client: httpx.AsyncClient, value: str) -> None:
    key = f"door:unfit {value}"
    lease = (await client.put(f"/v1/once/{key}", json={"keep_ms": 60_000})).json()["id"]

    async def kept(said: bytes) -> httpx.Response:
        body = b'{"lease": "%s", "value": %s}' % (lease.encode(), said)
        return await client.put(f"/v1/once/{key}/result", content=body, headers={"content-type": "application/json"})

    assert (await kept(b'[%s, "\\ud83d\\ude00", 1.5]' % UNFIT[value])).status_code in (400, 422)
    # Its lease goes on, and so does the key.
    assert (await kept(b'["\\ud83d\\ude00", 1.5, 1.0]')).json()["value"] == ["\N{GRINNING FACE}", 1.5, 1.0]
    assert (await client.put(f"/v1/once/{key}", json={"keep_ms": 60_000})).json()["done"]
    # It can be forgotten, and is done again then.
    assert (await client.delete(f"/v1/once/{key}")).json() == {"key": key, "forgotten": True}
    again = await client.put(f"/v1/once/{key}", json={"keep_ms": 60_000})
    assert again.status_code == 201
    busy = await client.delete(f"/v1/once/{key}")
    assert (busy.status_code, busy.json()["type"]) == (409, "/problems/busy")
    await client.delete(f"/v1/leases/{again.json()['id']}")
    assert (await client.delete(f"/v1/once/{key}")).json()["forgotten"] is False


@pytest.mark.parametrize("result", [float("nan"), json.loads("[" * 500 + "]" * 500)], ids=["that cannot be kept", "that is too deep"])
async def test_a_result_of_another_program_is_no_fault_of_the_gateway(client: httpx.AsyncClient, locks: Holdfast, result: object) -> None:
    async def work() -> object:
        return result

    with contextlib.suppress(Misuse):
        await locks.once("door:other", keep=60).run(work)
    answer = await client.put("/v1/once/door:other", json={"keep_ms": 60_000})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/no-result")
    assert "DELETE /v1/once/" in answer.json()["detail"]
    assert (await client.delete("/v1/once/door:other")).json()["forgotten"]


ALL = '"lock:*", "look:*", "lead:*", "once:*"'


async def test_a_token_that_was_revoked_ends_waits_and_streams(locks: Holdfast, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens, ann=ALL, ben=ALL, eve=ALL)
    async with serving(gateway_app(locks, tokens=str(tokens))) as live, httpx.AsyncClient(base_url=live.url, timeout=30) as client:

        async def asked(who: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
            answer = await client.request(method, path, json=body, headers={"authorization": f"Bearer {who}"})
            return answer.status_code, answer.json().get("type", answer.json().get("state", "")).removeprefix("/problems/")

        async def followed(who: str, seen: list[str]) -> None:
            headers = {"authorization": f"Bearer {who}"}
            async with client.stream("GET", "/v1/elections/door:revoked/events", headers=headers) as stream:
                async for line in stream.aiter_lines():
                    seen += [line] if line.startswith("data: ") else []

        held = await locks.lock("door:revoked").acquire()
        await asked("eve", "PUT", f"/v1/leases/{ID}-own", {"names": ["door:own"]})
        wanted = {"names": ["door:revoked"], "wait_ms": 20_000}
        waits = [asyncio.create_task(asked(it, "PUT", f"/v1/leases/{ID}-{it}", wanted)) for it in ("ann", "ben", "eve")]
        watch = asyncio.create_task(asked("eve", "GET", f"/v1/leases/{ID}-own?wait_ms=20000"))
        seen: dict[str, list[str]] = {"ann": [], "eve": []}
        streams = {it: asyncio.create_task(followed(it, lines)) for it, lines in seen.items()}
        async with asyncio.timeout(20):
            while live.gateway.leases.waiting < 3 or not all(seen.values()):
                await asyncio.sleep(0.01)
            # ben may not lock any more, and eve is gone.
            write_tokens(tokens, ann=ALL, ben='"look:*"')
            live.gateway.reload()
            # At once: nothing has happened that it could be told of, and a ping comes only each 10 s.
            async with asyncio.timeout(PING / 2):
                await streams["eve"]
            assert await waits[1] == (403, "forbidden")
            assert await waits[2] == (401, "unauthenticated")
            leading = await locks.election("door:revoked", "another").campaign()
            while len(seen["ann"]) < 2:
                await asyncio.sleep(0.01)
            assert len(seen["eve"]) == 1
            await held.release()
            assert await waits[0] == (201, "held")
            # The nodes still have eve's lease. It is not shown to its token.
            hold = next(it for it in live.gateway.leases if it.client.name == "eve")
            hold.changed()
            assert await watch == (401, "unauthenticated")
        streams["ann"].cancel()
        await leading.release()


async def test_no_answer_has_a_token_of_a_holder(client: httpx.AsyncClient, locks: Holdfast, nodes: Nodes, caplog: Any) -> None:
    reader = await locks.rwlock("door:read").read().acquire()
    lease = await locks.lock("door:token").acquire()
    waiter = asyncio.create_task(locks.lock("door:token", wait=30).acquire())
    for url in nodes.urls:
        with redis.Redis.from_url(url) as node:
            node.set("door:foreign", "a-secret-of-a-program", px=60_000)
    said, secrets = "", [lease.token, reader.token, "a-secret-of-a-program"]

    async def asked(method: str, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        nonlocal said
        answer = await client.request(method, path, json=body, headers=headers)
        said += answer.text
        found: dict[str, Any] = answer.json()
        return found

    async with asyncio.timeout(20):
        while len((found := await locks.inspect("door:token")).queue) < 1:
            await asyncio.sleep(0.05)
    secrets.append(found.queue[0].token)
    own = await asked("PUT", f"/v1/leases/{ID}", {"names": ["door:own"]})
    secrets.append((await locks.inspect("door:own")).holder or "")
    for name in ("door:token", "door:foreign", "door:read"):
        await asked("GET", f"/v1/locks/{name}")
        await asked("PUT", f"/v1/leases/{ID}-{len(said)}", {"names": [name]})
        waits = await asked("PUT", f"/v1/leases/{ID}-{len(said)}", {"names": [name], "wait_ms": 10})
        await asked("DELETE", f"/v1/leases/{waits['id']}")
        await asked("GET", f"/ui/lock?name={name}")
    await asked("GET", "/v1/locks?pattern=door:*")
    await asked("DELETE", "/v1/locks/door:token", {"reason": "a test"}, **{"if-match": '"first-comes-nobody"'})
    # What an inspection shows says whose lock it is, and so does the token, for those who have it.
    shown = (await asked("GET", "/v1/locks/door:foreign"))["holder"]
    assert (await asked("DELETE", "/v1/locks/door:foreign", {"reason": "a test"}, **{"if-match": f'"{shown}"'}))["nodes"] >= 3
    assert (await asked("DELETE", "/v1/locks/door:token", {"reason": "a test"}, **{"if-match": f'"{lease.token}"'}))["nodes"] >= 3
    audit = "".join(it.getMessage() for it in caplog.records if it.name == "holdfast.audit")
    assert [it for it in secrets if it in said + audit] == []
    assert own["fence"] > 0
    await (await waiter).release()
    await reader.release()


async def test_a_prefix_is_watched(locks: Holdfast, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens, ann='"look:door:watched:*"')
    seen: list[tuple[str, str, int]] = []
    waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ann = {"authorization": "Bearer ann"}
    application = gateway_app(locks, tokens=str(tokens))
    async with serving(application) as live, httpx.AsyncClient(base_url=live.url, timeout=30, headers=ann) as client:
        first = await locks.lock("door:watched:a").acquire()
        other = await locks.lock("door:hidden").acquire()
        async with asyncio.timeout(30), client.stream("GET", "/v1/locks", params={"prefix": "door:"}) as stream:
            kind = ""
            async for line in stream.aiter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: {"):
                    said = json.loads(line.removeprefix("data: "))
                    seen.append((kind, said["name"], said.get("waiting", 0)))
                    if len(seen) == 1:
                        waiter = asyncio.create_task(locks.lock("door:watched:a", wait=20).acquire())
                    elif len(seen) == 2:
                        await first.release()
                    elif len(seen) == 3:
                        await (await waiter).release()
                    else:
                        break
        assert seen == [(it, "door:watched:a", many) for it, many in (("held", 0), ("held", 1), ("held", 0), ("free", 0))]
        # Of names that it may not see, it is told nothing; and the two ways to ask exclude each other.
        assert (await client.get("/v1/locks", params={"prefix": "a", "pattern": "b"})).status_code == 400
        await other.release()


def raw(url: str, request: str) -> tuple[int, dict[str, Any]]:
    """The status and the body of the answer to a request that no client would send like this."""
    with opened(url) as connection:
        connection.sendall(request.encode())
        connection.settimeout(20)
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body) if body else {}


def test_what_the_server_says_of_bad_requests_does_not_reach_stderr(holdfast: Command) -> None:
    with served(holdfast) as (url, process):
        with opened(url) as stranger:
            stranger.sendall(b"nonsense\r\n\r\n")
            assert b"400" in stranger.recv(4096)
        upgrade = "GET /v1/nodes HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n\r\n"
        assert raw(url, upgrade)[0] == 200
        process.send_signal(signal.SIGTERM)
        assert "draining" in process.communicate(timeout=20)[1].splitlines()[0]


# An answer's lines, and those of every kind of problem, in each shell that people use.
@pytest.mark.parametrize("shell", ["sh", "bash", "zsh"])
def test_lines_can_be_read_by_every_shell(shell: str) -> None:
    for problem in [Problem(it, "it's \"$HOME\" `a`\n!b \\", name="x; y", left_ms=3) for it in KINDS]:
        scope: dict[str, Any] = {"type": "http", "headers": [(b"accept", b"text/plain")], "holdfast.instance": "an id"}
        lines = bytes(respond(scope, problem).body).decode()
        script = 'set -eu; eval "$1"; printf "%s|%s|%s|%s" "$state" "$detail" "$code" "$left_ms"'
        done = subprocess.run([shell, "-c", script, shell, lines], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{problem.kind}|{problem.detail}|{problem.status}|3"
