"""Who may do what, and who is not even heard."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import resource
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve.serving import PATIENT, client_of, gateway_app, gateway_of, serving

from holdfast import ConfigError
from holdfast.aio import Holdfast
from holdfast.cli.options import parser_of
from holdfast.serve import audit, http, identity, load, server
from holdfast.serve.http import HttpConnection
from holdfast.serve.identity import Identity
from holdfast.serve.load import Lag, Limits
from holdfast.serve.options import Options
from holdfast.serve.server import ListenAddress

TOKENS = {"importer": "a-token-of-the-importer", "watcher": "a-token-of-the-watcher", "operator": "a-token-of-the-operator"}


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    path.touch(0o600)
    path.write_text(f"""
        [client.importer]
        sha256 = "{digest(TOKENS["importer"])}"
        scopes = ["lock:invoice:*", "rate:mail", "once:import:*", "look:invoice:*", "look:?"]
        max_leases = 2
        note = "nightly"
        [client.watcher]
        sha256 = "{digest(TOKENS["watcher"])}"
        scopes = ["look:*", "metrics"]
        [client.operator]
        sha256 = "{digest(TOKENS["operator"])}"
        scopes = ["look:*", "lock:*", "read:*", "lead:*", "force:invoice:*"]
        certificate = "{"ab" * 32}"
    """)
    return path


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"bearer {TOKENS[name]}"}


def lease(name: str, **more: Any) -> dict[str, Any]:
    return {"names": [name], **more}


PUT = "/v1/leases/a-lease-of-the-table"
# What is asked, with which body; and what the importer, the watcher, the operator and a stranger get.
TABLE: list[tuple[str, str, dict[str, Any] | None, tuple[int, int, int, int]]] = [
    ("PUT", PUT, lease("invoice:1"), (201, 403, 201, 401)),
    ("PUT", PUT, lease("other"), (403, 403, 201, 401)),
    ("PUT", PUT, lease("xinvoice:1"), (403, 403, 201, 401)),
    ("PUT", PUT, {"names": ["invoice:1", "other"]}, (403, 403, 201, 401)),
    ("PUT", PUT, lease("invoice:1", kind="read"), (403, 403, 201, 401)),
    ("PUT", PUT, lease("invoice:1", kind="election"), (403, 403, 201, 401)),
    ("GET", PUT, None, (404, 404, 404, 401)),
    ("DELETE", PUT, None, (404, 404, 404, 401)),
    ("GET", "/v1/leases", None, (200, 200, 200, 401)),
    # A pattern for every name of one character covers the name "*", and not every name.
    ("GET", "/v1/nodes", None, (403, 200, 200, 401)),
    ("GET", "/v1/locks?pattern=nothing", None, (200, 200, 200, 401)),
    ("GET", "/v1/locks/invoice:7", None, (200, 200, 200, 401)),
    ("GET", "/v1/locks/other", None, (403, 200, 200, 401)),
    ("GET", "/v1/locks?names=invoice:7&names=invoice:8", None, (200, 200, 200, 401)),
    ("GET", "/v1/locks?names=invoice:7&names=other", None, (403, 200, 200, 401)),
    ("GET", "/v1/elections/other", None, (403, 200, 200, 401)),
    ("DELETE", "/v1/locks/invoice:7", {"reason": "a test"}, (403, 403, 404, 401)),
    ("DELETE", "/v1/locks/invoice:7", {"reason": "a test", "name": "other"}, (403, 403, 403, 401)),
    ("POST", "/v1/rates/mail/take", {"limit": 100, "period_ms": 1000}, (200, 403, 403, 401)),
    ("PUT", "/v1/once/other", {"keep_ms": 1000}, (403, 403, 403, 401)),
    ("GET", "/metrics", None, (403, 200, 403, 401)),
    ("GET", "/healthz", None, (200, 200, 200, 200)),
    ("GET", "/openapi.json", None, (200, 200, 200, 200)),
]


@pytest.mark.parametrize("method,path,body,statuses", TABLE, ids=[f"{it[0]} {it[1]} {it[2] or ''}" for it in TABLE])
async def test_who_may_do_what(
    locks: Holdfast, tokens: Path, method: str, path: str, body: dict[str, Any] | None, statuses: tuple[int, ...]
) -> None:
    found = []
    for who in ("importer", "watcher", "operator", ""):
        headers = bearer(who) if who else {"authorization": "Bearer a-token-of-nobody"}
        async with client_of(locks, tokens=str(tokens), allow_force=True) as client:
            answer = await client.request(method, path, json=body, headers={**headers, "if-match": "*"})
            found.append(answer.status_code)
            if answer.status_code == 201:
                # The next one is to find it free.
                await client.delete(path, headers={**headers})
    assert tuple(found) == statuses


async def test_a_lease_belongs_to_its_client(locks: Holdfast, tokens: Path) -> None:
    async with client_of(locks, tokens=str(tokens)) as client:
        said = (await client.put(PUT, json=lease("invoice:own", label="x"), headers=bearer("importer"))).json()
        for method, path in (("GET", ""), ("POST", "/keepalive"), ("DELETE", ""), ("GET", "/events")):
            body = {} if method == "POST" else None
            answer = await client.request(method, f"/v1/leases/{said['id']}{path}", json=body, headers=bearer("operator"))
            assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-lease")
        # Of others, an operator sees everything but what could be used.
        (seen,) = (await client.get("/v1/leases", headers=bearer("operator"))).json()["leases"]
        assert (seen["client"], seen["names"], seen["id"]) == ("importer", ["invoice:own"], None)
        assert (await locks.inspect("invoice:own")).note == "importer: nightly: x"
        statuses = [
            (await client.put(f"/v1/leases/a-lease-number-{at}", json=lease(f"invoice:{at}"), headers=bearer("importer"))).status_code
            for at in range(2)
        ]
        assert statuses == [201, 429]


async def test_force_needs_the_gateway_s_consent(locks: Holdfast, tokens: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = await locks.lock("invoice:force").acquire()
    for options in ({"tokens": str(tokens)}, {}):
        async with client_of(locks, **options) as client:
            headers = {**bearer("operator"), "if-match": "*"}
            answer = await client.request("DELETE", "/v1/locks/invoice:force", json={"reason": "x"}, headers=headers)
            assert answer.status_code == 403
            (noted,) = [json.loads(it.getMessage()) for it in caplog.records if it.name == "holdfast.audit"]
            assert (noted["event"], noted["name"], noted["scope"]) == ("forbidden", "invoice:force", "--allow-force")
            caplog.clear()
    assert held.held
    await held.release()


async def test_strangers_pages_and_rebound_names_are_refused(client: httpx.AsyncClient) -> None:
    for host, status in {"localhost:7420": 201, "evil.example:7420": 421, "": 421, "127.0.0.1.evil.org": 421, "[::1]:7420": 200}.items():
        answer = await client.put(PUT, json=lease("host"), headers={"host": host})
        assert answer.status_code == status, host
        assert not [it for it in answer.headers if it.startswith("access-control")]
    for origin, status in {"http://evil.example": 403, "null": 403, "http://localhost:7420": 200}.items():
        answer = await client.put(PUT, json=lease("host"), headers={"origin": origin})
        assert answer.status_code == status, origin
    preflight = await client.options(PUT, headers={"origin": "http://evil.example", "access-control-request-method": "PUT"})
    assert preflight.status_code == 405


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("size,kind", [(65_536, "malformed"), (65_537, "too-large")])
async def test_a_body_is_bounded_also_without_a_length(client: httpx.AsyncClient, whole: bool, size: int, kind: str) -> None:
    async def pieces() -> Any:
        yield b" " * 1024
        yield b" " * (size - 1024)

    answer = await client.put(PUT, content=b" " * size if whole else pieces(), headers={"content-type": "application/json"})
    assert answer.json()["type"] == f"/problems/{kind}"


async def test_the_audit_log(locks: Holdfast, tokens: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "audit.jsonl"
    with caplog.at_level(logging.DEBUG):
        async with client_of(locks, tokens=str(tokens), audit=str(log), allow_force=True) as client:
            held = await locks.lock("invoice:audit").acquire()
            await client.get("/v1/nodes", headers={"authorization": "Bearer a-secret-of-a-stranger"})
            await client.get("/v1/nodes", headers=bearer("importer"))
            headers = {**bearer("operator"), "if-match": f'"{held.token}"'}
            forced = await client.request("DELETE", "/v1/locks/invoice:audit", json={"reason": "stuck"}, headers=headers)
            log.rename(tmp_path / "rotated")
            gateway = gateway_of(client)
            gateway.reload()
            await client.get("/v1/nodes")
    first, second, third = [json.loads(it) for it in (tmp_path / "rotated").read_text().splitlines()]
    assert (first["event"], second["event"], second["scope"]) == ("unauthenticated", "forbidden", "look:*")
    assert (third["event"], third["client"], third["reason"], third["nodes"] >= 3) == ("force", "operator", "stuck", True)
    # Each is about one request, from an address.
    assert {it["address"] for it in (first, second, third)} == {"127.0.0.1"}
    assert len({it["request"] for it in (first, second, third)}) == 3
    assert third["request"] == forced.headers["x-request-id"]
    assert json.loads(log.read_text())["event"] == "unauthenticated"
    assert log.stat().st_mode & 0o077 == 0
    # No token of a client is in any log.
    said = caplog.text + log.read_text() + (tmp_path / "rotated").read_text()
    assert not [it for it in (*TOKENS.values(), "a-secret-of-a-stranger") if it in said]
    gateway.audit.close()
    await held.lost.wait()


@pytest.mark.parametrize(
    "text,why",
    [
        ("[client.a]\nscopes = []", "needs `sha256`"),
        ('[client.a]\nsha256 = "abc"', "64 digits"),
        (f'[client.a]\nsha256 = "{"0" * 64}"\nscopes = ["lok:*"]', "lock, read, look, lead, rate, once or force"),
        (f'[client.a]\nsha256 = "{"0" * 64}"\nscope = []', "unknown setting"),
        (f'[client.a]\nsha256 = "{"0" * 64}"\nmax_leases = 0', "at least 1"),
        (f'[client.a]\nsha256 = "{"0" * 64}"\nnote = "{"x" * 257}"', "at most 256"),
        (f'[client.a]\ncertificate = "{"0" * 64}"\n[client.b]\ncertificate = "{"0" * 64}"', "same token or certificate"),
        (f'[client.a]\nsha256 = "{"0" * 64}"\n[client.b]\nsha256 = "{"0" * 64}"', "same token"),
        (f'[client.a]\nsha256 = "{"0" * 64}"\nmax_leases = 1\nnote = "{"x" * 256}"', ""),
        ("[clients.a]", "tables"),
        ("[", "cannot be read"),
    ],
)
def test_a_wrong_file_of_tokens(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(ConfigError, match=why) if why else contextlib.nullcontext():
        identity.read(str(path))


def test_patterns_cover_whole_names_and_cases() -> None:
    client = Identity("a", ("lock:invoice:*", "look:[ab]?"))
    assert [client.may("lock", it) for it in ("invoice:1", "xinvoice:1", "Invoice:1", "invoice")] == [True, False, False, False]
    assert [client.may("look", it) for it in ("a1", "c1", "a12")] == [True, False, False]
    assert not client.may("loc", "k:invoice:1")


def test_a_proxy_says_whose_certificate_it_is(tokens: Path) -> None:
    clients = identity.read(str(tokens))
    headers = {b"x-forwarded-client-cert": b'By=x;Hash="' + b"0" * 64 + b'",By=y;Hash=' + b"AB" * 32 + b';Subject="CN=a"'}

    def who(address: str, *trusted: str) -> Identity | None:
        return identity.identify({"client": (address, 1)}, headers, clients, trusted)

    found = who("10.1.2.3", "10.0.0.0/8")
    assert found is not None
    assert found.name == "operator"
    assert who("11.1.2.3", "10.0.0.0/8") is None
    assert who("10.1.2.3") is None
    assert who("a path", "10.0.0.0/8") is None


def test_requests_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(10)
    assert [limits.take("a", 100.0) for _ in range(11)] == [*[0.0] * 10, 0.1]
    assert limits.take("b", 100.0) == 0.0
    assert limits.take("a", 100.1) == 0.0
    assert limits.take("a", 100.1) == pytest.approx(0.1)
    assert limits.take("a", 1000.0) == 0.0
    # More than all count for all, and who was quiet for longest is forgotten first.
    monkeypatch.setattr(load, "MOST", 2)
    assert [limits.take(it, 1000.0, 99) for it in "bcdcb"] == pytest.approx([0.0, 0.0, 0.0, 1.0, 0.0])


async def test_too_many_requests_are_refused_but_not_keepalives(locks: Holdfast) -> None:
    async with client_of(locks, max_requests=3) as client:
        answers = await asyncio.gather(*[client.get("/v1/leases") for _ in range(30)])
        assert {it.status_code for it in answers} == {200, 429}
        answer = await client.post("/v1/leases/some-unknown-lease/keepalive", json={})
        assert answer.status_code == 404


async def test_a_busy_gateway_serves_keepalives_first(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.put(PUT, json=lease("busy gateway"))
    monkeypatch.setattr(Lag, "late", property(lambda lag: PATIENT + 1))
    answer = await client.put("/v1/leases/another-lease-here", json=lease("busy gateway 2"))
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/overloaded")
    assert (await client.get("/v1/locks")).status_code == 503
    assert (await client.post(f"{PUT}/keepalive", json={})).status_code == 200
    assert (await client.get("/readyz")).status_code == 503
    assert (await client.delete(PUT)).status_code == 200
    monkeypatch.setattr(Lag, "late", property(lambda lag: 1.3 + PATIENT))
    assert (await client.get("/healthz")).status_code == 503


async def test_the_lag_of_the_loop_is_seen() -> None:
    lag = Lag()
    measuring = asyncio.create_task(lag.measure())
    await asyncio.sleep(0.15)
    assert lag.late < 0.25
    os.sched_yield()
    time.sleep(0.6)
    assert lag.late > 0.3
    measuring.cancel()
    await asyncio.wait((measuring,))
    assert lag.late == 0.0


async def test_headers_that_do_not_come_end_the_connection(locks: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST", 0.3)
    async with serving(gateway_app(locks), http=HttpConnection) as live:
        host, port = live.url.removeprefix("http://").split(":")

        async def slow(first: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(first)
            async with asyncio.timeout(5):
                answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return answer

        whole = f"GET /healthz HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode()
        assert await slow(b"") == b""
        assert await slow(b"GET /healthz HTTP/1.1\r\nhost: ") == b""
        # Also those of a second request on the same connection.
        assert (await slow(whole + b"GET /hea")).count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    "address,asks,why",
    [
        (ListenAddress(), False, ""),
        (ListenAddress(host="::1"), False, ""),
        (ListenAddress(host="localhost"), False, ""),
        (ListenAddress(host="0.0.0.0"), True, "without TLS there"),
        (ListenAddress(host="10.0.0.7", cert="a", key="b"), False, "without tokens there"),
        (ListenAddress(host="10.0.0.7", cert="a", key="b"), True, ""),
        (ListenAddress(host="gateway.example"), False, "without TLS and tokens there"),
        (
            ListenAddress(host="a", insecure=True),
            False,
            "INSECURE: everybody who reaches a:7420 can use it, or listen: it has no TLS and tokens",
        ),
        (ListenAddress(cert="a"), True, "belong together"),
        (ListenAddress(client_ca="a"), True, "needs --server-cert"),
    ],
)
def test_addresses_that_others_reach_need_tls_and_tokens(address: ListenAddress, asks: bool, why: str) -> None:
    if why and not address.insecure:
        with pytest.raises(ConfigError, match=why):
            address.check(asks)
    else:
        assert address.check(asks) == why


def test_what_clients_call_an_address() -> None:
    addresses = [ListenAddress(host="::1", cert="a", key="b"), ListenAddress(host="unix:/a"), ListenAddress(scheme="redis")]
    assert [it.url(7) for it in addresses] == ["https://[::1]:7", "unix:/a", "redis://127.0.0.1:7"]


@pytest.mark.parametrize("hard,wanted,most", [(4096, 823, 823), (4096, 825, 825), (4096, 9000, 3896), (-1, 9000, 9000), (1023, 9000, 823)])
def test_there_are_as_many_connections_as_descriptors(monkeypatch: pytest.MonkeyPatch, hard: int, wanted: int, most: int) -> None:
    limits = {"now": (1023, hard)}
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda what, now: limits.update(now=now))
    assert server.most_connections(wanted) == most
    assert limits["now"][0] == max(1023, most + 200)


def test_options_that_cannot_work(locks: Holdfast) -> None:
    for options in ({"max_leases": 0}, {"max_streams": True}, {"tokens_file": "x"}):
        with pytest.raises(ConfigError):
            gateway_app(locks, **options)
    assert Options().host_names == ("localhost", "127.0.0.1", "[::1]")


def test_limits_of_the_command_and_of_an_application_are_the_same() -> None:
    given = vars(parser_of("serve").parse_args([]))
    limits = {it: value for it, value in given.items() if it.startswith("max_") and hasattr(Options, it)}
    assert "max_lag" in limits
    assert limits == {it: getattr(Options(), it) for it in limits}


@pytest.mark.parametrize("path", ["/v1/locks/healthz", "/v1/locks/x%2Freadyz", "/v1/elections/keepalive"])
async def test_a_name_that_looks_like_a_probe_is_limited_and_shed(locks: Holdfast, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    async with client_of(locks, max_requests=2) as client:
        answers = [await client.get(path) for _ in range(4)]
        answers.append(await client.put("/v1/once/w%2Fhealthz", json={"keep_ms": 1000}))
        assert 429 in {it.status_code for it in answers}
        monkeypatch.setattr(Lag, "late", property(lambda lag: PATIENT + 1))
        assert {(await client.get(path)).status_code for _ in range(3)} <= {429, 503}
        assert (await client.get("/readyz")).status_code == 503


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_probes_answer_under_every_name(locks: Holdfast, path: str) -> None:
    await locks.ready()
    async with client_of(locks) as client:
        for host in ("10.1.2.3:7420", "gateway-7.pods.example", ""):
            assert (await client.get(path, headers={"host": host})).status_code == 200
        assert (await client.head(path)).status_code == 200


async def test_a_client_has_a_quota_of_keepalives(locks: Holdfast, tokens: Path) -> None:
    async with client_of(locks, tokens=str(tokens), max_keepalives=1_000, max_requests=50) as client:

        async def kept(who: str, leases: list[str]) -> httpx.Response:
            return await client.post("/v1/keepalive", json={"leases": leases}, headers=bearer(who))

        began = asyncio.get_running_loop().time()
        many = [f"some-lease-of-many-{at:04}" for at in range(500)]
        answers = [it for _ in range(5) for it in await asyncio.gather(*[kept("importer", many) for _ in range(8)])]
        took = asyncio.get_running_loop().time() - began
        served = [it for it in answers if it.status_code == 200]
        assert 2 <= len(served) <= 2 * (1 + took) + 1
        refused = next(it for it in answers if it.status_code == 429)
        assert (refused.json()["type"], refused.json()["what"]) == ("/problems/too-many", "keepalives")
        # Its neighbour has a quota of its own.
        assert (await kept("operator", many[:1])).status_code == 200
        # Nobody has one without a token.
        statuses = [(await client.post(f"{PUT}/keepalive", json={})).status_code for _ in range(120)]
        assert {401, 429} == set(statuses)


async def test_a_client_has_a_quota_of_streams(locks: Holdfast, tokens: Path) -> None:
    async with client_of(locks, tokens=str(tokens), max_streams=2, max_streams_in_all=3) as client:
        gateway = gateway_of(client)

        async def status(who: str) -> int:
            return (await client.head("/v1/elections/invoice:1/events", headers=bearer(who))).status_code

        assert await status("importer") == 200
        of = {it.name: it for it in gateway.clients.tokens.values()}
        gateway.streams.update({asyncio.Event(): of["importer"], asyncio.Event(): of["importer"]})
        assert (await status("importer"), await status("watcher")) == (429, 200)
        gateway.streams[asyncio.Event()] = of["operator"]
        assert await status("watcher") == 429


def test_an_audit_log_that_cannot_be_written_ends_no_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").mkdir()
    log = audit.Audit(str(tmp_path / "log/audit.jsonl"))
    (tmp_path / "log").rename(tmp_path / "elsewhere")
    log.note("force", name="orders", nodes=0)
    assert "FileNotFoundError" in capsys.readouterr().err
    log.close()


async def test_refusals_do_not_fill_the_audit_log(locks: Holdfast, tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "SUMMARY", 0.3)
    log = tmp_path / "audit.jsonl"
    async with client_of(locks, tokens=str(tokens), audit=str(log)) as client:
        for _ in range(100):
            await client.get("/v1/nodes", headers={"authorization": "Bearer nobody"})
        await client.get("/v1/nodes", headers=bearer("importer"))
        await asyncio.sleep(0.5)
        gateway_of(client).audit.close()
    lines = [json.loads(it) for it in log.read_text().splitlines()]
    events = [it["event"] for it in lines]
    assert (len(events) < 60, events.count("forbidden"), events[-1]) == (True, 1, "left-out")
    # None is forgotten.
    counted = sum(it["count"] for it in lines if it["event"] == "left-out")
    assert (counted + events.count("unauthenticated"), lines[-1]["of"], lines[-1]["address"]) == (100, "unauthenticated", "127.0.0.1")


async def test_what_is_refused_by_its_name_or_its_page_is_in_the_audit_log(locks: Holdfast, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with client_of(locks, audit=str(log)) as client:
        await client.get("/v1/nodes", headers={"host": "evil.example:80"})
        await client.put(PUT, json=lease("x"), headers={"origin": "http://evil.example"})
        gateway_of(client).audit.close()
    first, second = [json.loads(it) for it in log.read_text().splitlines()]
    assert (first["event"], first["host"]) == ("misdirected", "evil.example:80")
    assert (second["event"], second["scope"], second["origin"]) == ("forbidden", "origin", "http://evil.example")


async def test_whose_connection_it_is_is_noted_and_strangers_are_counted_by_address(locks: Holdfast, tokens: Path) -> None:
    noted, address = set[str](), "10.0.0.7"

    def client(**options: Any) -> httpx.AsyncClient:
        application = gateway_app(locks, **options)

        async def arriving(scope: Any, receive: Any, send: Any) -> None:
            arrived = identity.Arrived(address, known=noted.add)
            await application({**scope, "state": {identity.ARRIVED: arrived}}, receive, send)

        return httpx.AsyncClient(transport=httpx.ASGITransport(arriving), base_url="http://localhost:7420")

    async with client() as anybody, client(tokens=str(tokens), max_requests=1) as known:
        for method, path, body, who in (
            ("GET", "/v1/nodes", None, set()),
            ("PUT", PUT, lease("noted"), {"local"}),
            ("POST", "/v1/keepalive", {"leases": ["x" * 20]}, set()),
            ("POST", "/v1/keepalive", {"leases": [PUT.rpartition("/")[2]]}, {"local"}),
            ("PUT", f"{PUT}-2", lease("noted", wait_ms=1), {"local"}),
        ):
            noted.clear()
            await anybody.request(method, path, json=body)
            assert noted == who, path
        assert (await known.get("/v1/nodes", headers=bearer("watcher"))).status_code == 200
        assert "watcher" in noted
        for address, status in (("a", 401), ("a", 429), ("b", 401)):  # noqa: B007  # it is used by the client
            answer = await known.get("/v1/nodes")
            assert (answer.status_code, "asks who you are" in answer.text) == (status, status == 401)
