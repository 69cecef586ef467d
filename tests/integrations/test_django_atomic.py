"""Django's transactions, settings and test cases, in one process on SQLite."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import wraps
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext
from django.core.checks import run_checks
from django.core.management import BaseCommand, CommandError, call_command, get_commands
from django.db import models, transaction
from django.http import HttpResponse
from django.test import AsyncClient, Client, TestCase, override_settings
from django.urls import include, path, re_path
from django.utils.decorators import method_decorator
from django.views import View
from integrations.stage import PROGRAMS

import holdfast
from holdfast import ConfigError, Holdfast, LockBusy, LockLost, Misuse, StaleFence, current
from holdfast.embedded import Nodes
from holdfast.integrations.django import Singleton, alocks, locks
from holdfast.integrations.django.checks import check_views
from holdfast.integrations.django.locks import clients, forget


@pytest.fixture(scope="module")
def site(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_NODES", ",".join(nodes.urls))
        patch.setenv("LOCK_PREFIX", "atomic:")
        patch.setenv("RECORD", str(tmp_path_factory.mktemp("commands") / "record"))
        Path(os.environ["RECORD"]).touch()
        patch.syspath_prepend(PROGRAMS)
        import djsite

        call_command("migrate", verbosity=0)
        with djsite.connection.cursor() as cursor:
            cursor.execute("CREATE TABLE counter (value integer)")
            cursor.execute("INSERT INTO counter VALUES (0)")
        yield djsite
        djsite.connection.close()

        clients.close()
        sys.modules.pop("djsite")


@pytest.fixture
def other(site: Any, nodes: Nodes) -> Iterator[Holdfast]:
    with Holdfast(*nodes.urls, prefix="atomic:", ttl=2, max_ttl=4) as client:
        # On a busy machine, connecting takes long, and operators' calls do not wait for it.
        client.ready(30)
        yield client


def test_the_lock_is_held_until_after_the_commit(site: Any, other: Holdfast) -> None:
    seen = []
    with site.locked_atomic("a"):
        transaction.on_commit(lambda: seen.append(other.is_locked("a")))
    assert seen == [True]
    assert not other.is_locked("a")


def test_inside_another_transaction_it_is_refused_before_there_is_a_lock(site: Any, other: Holdfast) -> None:
    # If it were to take the lock, it would wait for this one.
    with other.lock("a", wait=5), transaction.atomic(), pytest.raises(Misuse, match=r"use @locked_view, or @transaction"):
        with site.locked_atomic("a", wait=0.1):
            pass


def test_a_lost_lock_rolls_back(site: Any, other: Holdfast) -> None:
    def body() -> None:
        with site.locked_atomic("a") as lease:
            site.value(1)
            other.force_release("a", "for this test")
            assert lease.lost.wait(10)

    with pytest.raises(LockLost):
        body()
    assert site.value() == 0


@pytest.mark.parametrize("path", ["/lost/1", "/alost/1"])
def test_a_request_that_loses_its_lock_is_503_and_rolled_back(
    site: Any, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """Also under ASGI. The log has one line."""

    async def ask() -> Any:
        answer = await AsyncClient().get(path)
        await alocks.close()
        return answer

    answer = asyncio.run(ask()) if path == "/alost/1" else Client().get(path)
    forget(setting="HOLDFAST")
    assert (answer.status_code, answer.json()["type"]) == (503, "about:holdfast/lost")
    assert site.value() == 0
    assert [it.name for it in caplog.records].count("holdfast.web") == 1


def test_a_busy_lock_is_409(site: Any, other: Holdfast) -> None:
    """Also one that the view itself wants."""
    with other.lock("counter:1", wait=5):
        answer = Client().get("/busy/1")
        assert (answer.status_code, answer.headers["content-type"]) == (409, "application/problem+json")
        assert 1 <= int(answer.headers["retry-after"]) <= 2
    assert Client().get("/busy/1").status_code == 200
    inner = Client().get("/raises")
    assert (inner.status_code, inner.headers["retry-after"]) == (409, "7")


def test_without_the_middleware_a_locked_view_does_not_run(site: Any) -> None:
    with override_settings(MIDDLEWARE=[]):
        with pytest.raises(ConfigError, match="a locked view needs"):
            Client().get("/marked/1")
        assert ("holdfast.E003", "djsite.marked has a lock that nobody takes.") in [(it.id, it.msg) for it in check_views()]
    assert site.value() == 0


def test_a_late_holder_is_refused_by_its_fence(site: Any, other: Holdfast) -> None:
    with site.locked_atomic("b") as first:
        early = first.fence
    with site.locked_atomic("b") as lease:
        site.guard(lease)
        site.value(1)

    def late() -> None:
        with transaction.atomic():
            site.guard({"b": early})
            site.value(1000)

    with pytest.raises(StaleFence):
        late()
    assert site.value() == 1


def feed(url: str) -> bool:
    return current().held


def test_a_task_of_django_holds_its_lock(site: Any, other: Holdfast) -> None:
    tasks = pytest.importorskip("django.tasks", reason="Django 6 has them")
    read = tasks.task(site.locks.locked("feed:{url}", wait=0)(feed))
    assert read.enqueue("a").return_value
    with other.lock("feed:a"):
        assert read.enqueue("a").errors[0].exception_class_path == "holdfast.errors.LockBusy"


def test_a_second_lock_of_a_view_is_refused(site: Any) -> None:
    """The middleware would take the outer one only."""

    def view(request: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"view has a lock already"):
        site.locked_view("a")(site.locked_view("b")(view))


@pytest.fixture
def pages(site: Any, other: Holdfast) -> Iterator[Any]:
    """A browser for a view with the lock "page" that is reached in several ways. It notes whether the lock is held."""
    browser = Client()
    browser.ran = []

    def body(*_: Any) -> Any:
        browser.ran.append(other.is_locked("page"))
        return HttpResponse()

    page = site.locked_view("page")(body)
    viewed = type("Page", (View,), {"get": body})
    ways = {
        "plain": page,
        "wrapped": wraps(page)(lambda request: page(request)),
        "decorated-class": method_decorator(site.locked_view("page"), name="dispatch")(viewed).as_view(),
        "hidden": lambda request: page(request),
        "other": site.locked_view("other")(lambda request: page(request)),
    }
    with override_settings(ROOT_URLCONF=tuple(path(name, view) for name, view in ways.items())):
        yield browser


@pytest.mark.parametrize("way", ["hidden", "other"])
def test_a_view_whose_lock_nobody_took_does_not_run(pages: Any, way: str) -> None:
    """The middleware takes the lock that it sees on what the URL leads to."""
    with pytest.raises(ConfigError, match=r"nobody took the lock of the view .*body: .* Write @locked_view above"):
        pages.get(f"/{way}")
    assert pages.ran == []


@pytest.mark.parametrize("way", ["plain", "wrapped", "decorated-class"])
def test_a_view_whose_lock_the_middleware_sees_runs_with_it(pages: Any, other: Holdfast, way: str) -> None:
    assert pages.get(f"/{way}").status_code == 200
    assert pages.ran == [True]
    assert not other.is_locked("page")


def test_the_lease_of_a_view_is_the_current_one(site: Any, other: Holdfast) -> None:
    """In functions and methods, sync and async, and in an action of Django REST framework."""
    from rest_framework.decorators import action
    from rest_framework.response import Response
    from rest_framework.routers import SimpleRouter
    from rest_framework.viewsets import ViewSet

    def told() -> str:
        return f"{holdfast.current().name} {other.is_locked(holdfast.current().name)}"

    def view(request: Any, pk: int) -> Any:
        return HttpResponse(told())

    async def asynchronous(request: Any, pk: int) -> Any:
        return HttpResponse(f"{holdfast.aio.current().name} {await asyncio.to_thread(other.is_locked, f'a:{pk}')}")

    class Page(View):  # type: ignore[misc]  # (Django has no types)
        @site.locked_view("get:{pk}")
        def get(self, request: Any, pk: int) -> Any:
            return HttpResponse(told())

        def post(self, request: Any, pk: int) -> Any:
            return HttpResponse(other.is_locked(f"get:{pk}"))

    class Orders(ViewSet):  # type: ignore[misc]  # (as above)
        @action(detail=True, methods=["post"])
        @site.locked_view("order:{pk}", wait=0)
        def pay(self, request: Any, pk: str) -> Any:
            return Response(told())

    router = SimpleRouter()
    router.register("orders", Orders, basename="order")
    urls = (
        path("view/<int:pk>", site.locked_view("view:{pk}")(view)),
        path("async/<int:pk>", transaction.non_atomic_requests(site.locked_view("a:{pk}")(asynchronous))),
        path("page/<int:pk>", Page.as_view()),
        path("", include(router.urls)),
    )
    with override_settings(ROOT_URLCONF=urls):
        browser = Client()
        assert [browser.get(f"/{it}/7").content for it in ("view", "page")] == [b"view:7 True", b"get:7 True"]
        assert browser.head("/page/7").status_code == 200
        assert browser.post("/page/7").content == b"False"
        assert browser.post("/orders/7/pay/").json() == "order:7 True"
        with other.lock("order:7"):
            assert browser.post("/orders/7/pay/").status_code == 409
        # As DRF's own errors: one of the handler's locks, and a value that makes no name.
        for it in ("/orders/7[once]/pay/", f"/orders/{'x' * 600}/pay/"):
            answer = browser.post(it)
            assert (answer.status_code, answer.json()["type"]) == (422, "about:holdfast/name")

        async def asked() -> Any:
            found = (await AsyncClient().get("/async/7")).content
            await alocks.close()
            return found

        assert asyncio.run(asked()) == b"a:7 True"
    assert not any(other.is_locked(it) for it in ("view:7", "get:7", "a:7", "order:7"))


def test_checks_of_views(site: Any) -> None:
    """Mistakes that a request would show, or nobody."""
    locks, locked_view = site.locks, site.locked_view

    def made(name: str) -> Any:
        def view(request: Any, **captured: Any) -> None: ...

        view.__qualname__ = name
        return view

    first, second = made("first"), made("second")
    for it in (first, second):
        locked_view("x")(it) if it is first else locks.locked("x")(it)
    twice = made("twice")
    inside = locks.locked("x")(made("inside"))

    @method_decorator(locks.locked("x"), name="dispatch")
    class Whole(View):  # type: ignore[misc]  # (Django has no types)
        pass

    class One(View):  # type: ignore[misc]  # (as above)
        @locks.locked("x")
        def post(self, request: Any) -> None: ...

    class Wrong(View):  # type: ignore[misc]  # (as above)
        @locked_view("{number}")
        def post(self, request: Any, pk: int) -> None: ...

    urls = (
        path("first", first),
        path("second", second),
        path("twice", twice),
        path("with-its-lock", locked_view("x")(twice)),
        path("inside", inside),
        path("outside", transaction.non_atomic_requests(locks.locked("x")(made("outside")))),
        path("limited", locks.limited("x", 1, 1)(made("limited"))),
        path("whole", Whole.as_view()),
        path("one", One.as_view()),
        path("<int:pk>", Wrong.as_view()),
        path("<int:pk>/", include([path("<kind>", locked_view("{pk}{kind:>5}{extra.id}")(made("right")), {"extra": 1})])),
        re_path(r"^(\d+)/(\d+)$", locked_view("{0}{1}")(made("numbered"))),
        re_path(r"^(\d+)$", locked_view("{}{}")(made("few"))),
    )
    with override_settings(ROOT_URLCONF=urls):
        found = [(it.id.removeprefix("holdfast."), it.msg.split()[0].rpartition(".")[2]) for it in check_views()]
    assert sorted(found) == [
        *[("E005", it) for it in ("first", "second")],
        *[("E006", it) for it in ("Wrong", "few")],
        *[("E007", it) for it in ("One", "Whole", "inside")],
    ]
    with pytest.raises(ConfigError, match="is no template"):
        locked_view("{pk")
    with pytest.raises(ConfigError, match="unknown lock option 'tll'"):
        locked_view("{pk}", tll=3)


@pytest.mark.parametrize("behind", [(), ("djsite.blocking",)], ids=["async", "sync"])
def test_a_client_that_leaves_while_a_sync_view_waits_for_its_lock_leaves_none_behind(
    site: Any, other: Holdfast, behind: tuple[str, ...]
) -> None:
    """Under ASGI: Django cancels the request, and the thread that waits knows nothing of that."""

    async def main() -> None:
        async with ThreadSensitiveContext():
            asked = asyncio.ensure_future(AsyncClient().get("/hold/1?seconds=0"))
            while not other.inspect("held:1").queue:
                await asyncio.sleep(0)
            asked.cancel()
            began = time.monotonic()
            with pytest.raises(asyncio.CancelledError):
                await asked
            # What it says may still be on its way to the nodes.
            while other.inspect("held:1").queue:
                await asyncio.sleep(0)
            assert time.monotonic() - began < 4, "it has waited for as long as its view does"

    middleware = ["holdfast.integrations.django.Middleware", *behind]
    with other.lock("held:1"), override_settings(MIDDLEWARE=middleware):
        asyncio.run(main())
    with other.lock("held:1", wait=0):
        pass


@pytest.mark.parametrize("behind", [(), ("djsite.blocking",)], ids=["async", "sync"])
def test_an_async_view_hands_its_lease_over(site: Any, other: Holdfast, behind: tuple[str, ...]) -> None:
    """It is one for asyncio, also if a middleware knows no asyncio."""

    async def ask() -> Any:
        async with ThreadSensitiveContext():
            answer = await AsyncClient().get("/hands/1")
        await alocks.close()
        return answer

    forget(setting="HOLDFAST")
    with override_settings(MIDDLEWARE=["holdfast.integrations.django.Middleware", *behind]):
        ticket = asyncio.run(ask()).content.decode()
    forget(setting="HOLDFAST")
    other.adopt(ticket).release()


def test_a_project_without_pages_can_be_checked(site: Any) -> None:
    with override_settings(MIDDLEWARE=[], ROOT_URLCONF=None):
        assert check_views() == []


def test_locked_atomic_is_no_decorator(site: Any) -> None:
    """The name would not be filled, and a coroutine would run without the lock."""
    with pytest.raises(ConfigError, match=r"write `with locked_atomic\(...\):` in the function"):

        @site.locked_atomic("stock:{sku}")
        async def restock(sku: str) -> None: ...


def test_a_command_that_would_run_without_its_lock_is_refused(site: Any) -> None:
    type("Command", (Singleton, BaseCommand), {})
    with pytest.raises(ConfigError, match=r"Singleton comes first, .* class Command\(Singleton, BaseCommand\)"):
        type("Command", (BaseCommand, Singleton), {})


def test_changed_settings_make_a_new_client(site: Any) -> None:
    before = locks.settings.prefix
    with override_settings(HOLDFAST={"PREFIX": "changed:"}):
        assert (locks.settings.prefix, alocks.settings.prefix) == ("changed:", "changed:")
        with locks.lock("a", wait=5):
            pass
    assert locks.settings.prefix == before


def test_a_test_case_of_djangos_may_use_it(site: Any) -> None:
    """TestCase wraps each test in a transaction."""

    class Case(TestCase):  # type: ignore[misc]  # (Django has no types)
        def test_it(self) -> None:
            with site.locked_atomic("c"):
                site.value(5)
            assert site.value() == before + 5

    before = site.value()
    Case.setUpClass()
    result = Case("test_it").run()
    Case.tearDownClass()
    assert result is not None
    assert result.wasSuccessful(), result.errors + result.failures
    assert site.value() == before


@pytest.fixture(scope="module")
def stock(site: Any) -> Any:
    from holdfast.integrations.django.fenced import FencedModel

    class Stock(FencedModel):  # type: ignore[misc]  # (Django has no types)
        sku = models.CharField(max_length=20)
        count = models.IntegerField(default=0)

        class Meta:
            app_label = "holdfast"

    with site.connection.schema_editor() as editor:
        editor.create_model(Stock)
    return Stock


def test_rows_refuse_a_late_holder(site: Any, stock: Any) -> None:
    """Also if it would change rows that nobody has written since: all of them, or none."""
    for sku in ("a", "b"):
        stock.objects.create(sku=sku)
    with site.locks.lock("stock", wait=5) as late:
        pass
    with site.locks.lock("stock", wait=5) as lease:
        assert stock.objects.fenced(lease).filter(sku="a").update(count=1) == 1
        assert stock.objects.filter(sku="a").fenced(lease).update(count=2) == 1, "the same holder may write again"
        assert stock.objects.fenced(lease).filter(sku="none").update(count=3) == 0
    with pytest.raises(StaleFence) as refused:
        stock.objects.fenced(late).all().update(count=1000)
    assert (refused.value.fence, refused.value.seen) == (late.fence, lease.fence)
    assert list(stock.objects.order_by("sku").values_list("sku", "count", "fence")) == [("a", 2, lease.fence), ("b", 0, 0)]
    assert stock.objects.filter(sku="b").update(count=5) == 1, "without a lease it is Django's own"


def test_a_lease_without_a_fence_is_refused(site: Any, stock: Any) -> None:
    with site.locks.lock("x", "y", wait=5) as several, pytest.raises(Misuse, match="several names"):
        stock.objects.fenced(several)


def command(site: Any, *words: str) -> tuple[object, str, str]:
    """Run a command of `manage.py` in this process. Returns its exit status, and what it printed."""
    out, err, status = StringIO(), StringIO(), 0
    try:
        with redirect_stdout(out):
            call_command(*words, stdout=out, stderr=err)
    except CommandError as error:
        err.write(str(error))
        status = error.returncode
    except SystemExit as ended:
        status = ended.code
    return status, out.getvalue(), err.getvalue()


def test_operators_look_at_locks_and_nodes_with_the_settings_of_the_project(site: Any, other: Holdfast) -> None:
    assert command(site, "holdfast", "ls") == (0, "", "")
    with other.lock("order:7", wait=5) as lease:
        assert command(site, "holdfast", "ls", "order:*") == (0, "order:7\n", "")
        assert lease.token in command(site, "holdfast", "inspect", "order:7")[1]
    status, said, _ = command(site, "holdfast", "nodes", "--json")
    assert (status, json.loads(said)["up"]) == (0, 5)
    assert "'order:7' is free" in command(site, "holdfast", "inspect", "order:7")[1]


@pytest.mark.parametrize("words", [(), ("run", "a", "--", "true"), ("ls", "--nodes", "redis://b")])
def test_what_needs_nodes_of_its_own_is_refused(site: Any, words: tuple[str, ...]) -> None:
    assert command(site, "holdfast", *words)[0] == 64


def test_without_a_majority_or_nodes_operators_see_why(
    site: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with override_settings(HOLDFAST={"NODES": ["redis://127.0.0.1:1"], "TTL": 0.5, "OUTAGE": 0.2}):
        status, said, _ = command(site, "holdfast", "nodes")
        assert (status, "Connection refused" in said) == (69, True)
        assert command(site, "holdfast", "ls")[0] == 69
    with override_settings(HOLDFAST={"NODES": ["redis://a"], "TLL": 1}):
        assert command(site, "holdfast", "nodes")[0] == 78
        assert "unknown setting 'TLL'" in capfd.readouterr().err
    monkeypatch.delenv("HOLDFAST_NODES")
    with override_settings(HOLDFAST={"PREFIX": "atomic:"}):
        assert command(site, "holdfast", "ls")[:2] == (78, "")
    assert capfd.readouterr().err == "holdfast: no nodes: name them in the settings of the application, or set HOLDFAST_NODES\n"


def checked(settings: dict[str, Any], *, deploy: bool = False) -> list[tuple[str, str]]:
    """What `check` finds in these settings: ids, and what they say."""
    with override_settings(HOLDFAST=settings):
        return [(it.id, it.msg) for it in run_checks(tags=["holdfast"], include_deployment_checks=deploy)]


@pytest.mark.parametrize(
    "setting, told",
    [
        ({"TTLL": 1}, "unknown setting 'TTLL'"),
        ({"TTL": "abc"}, "TTL must be a number of seconds, not 'abc'"),
        ({"TTL": 50}, "ttl is 50 s, and max_ttl 30 s"),
        ({"SHARDS": {"a": ["redis://a"]}}, "shards= is instead of nodes"),
    ],
)
def test_with_servers_of_its_own_other_settings_are_checked(
    site: Any, setting: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nodes, "start", None)
    ((found, said),) = checked({"NODES": "Local", **setting})
    assert (found, told in said) == ("holdfast.E002", True), said
    assert checked({"NODES": "local", "SHARDS": 2, "TTL": 5}) == []


AWAY = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]


@pytest.mark.parametrize(
    "setting, found, deployed",
    [
        ({}, [], []),
        ({"NODES": []}, ["E001"], ["E001", "E004"]),
        ({"NODES": ["redis://a", "redis://a"]}, ["E002"], ["E002", "E004"]),
        ({"NODES": AWAY}, [], ["E004"]),
        ({"NODES": AWAY[:2]}, ["W001"], ["E004", "W001"]),
        ({"TTL": 10}, [], []),
        ({"TTL": 11}, ["W002"], ["W002"]),
        ({"TTL": 11, "MAX_TTL": 30}, [], []),
        ({"RESTART_GUARD": "off"}, [], ["W004"]),
        ({"NODES": "local"}, [], ["W003"]),
        ({"NODES": "local", "TTLL": 1}, ["E002"], ["E002", "W003"]),
    ],
)
def test_settings_are_checked_and_deployment_asks_the_nodes(
    site: Any, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any], found: list[str], deployed: list[str]
) -> None:
    monkeypatch.delenv("HOLDFAST_NODES")
    monkeypatch.setattr(Nodes, "start", None)
    for deploy, ids in ((False, found), (True, deployed)):
        told = checked({"NODES": nodes.urls, "NODE_TIMEOUT": 0.2, "OUTAGE": 0.2, **setting}, deploy=deploy)
        assert sorted(it for it, _ in told) == [f"holdfast.{it}" for it in ids]


def test_a_command_of_ones_own_runs_in_one_process_at_a_time(site: Any, other: Holdfast) -> None:
    from djapp.management.commands.nightly import Command

    get_commands()["nightly"] = Command()
    ran = Path(os.environ["RECORD"])
    assert command(site, "nightly") == (0, "cleaned up\n", "")
    assert command(site, "nightly", "--fail")[0] == 3, "its own status"
    with other.lock("manage:nightly", wait=5):
        before = ran.read_text()
        assert command(site, "nightly", "--lock-skip") == (0, "", "manage:nightly is busy: the command is not run\n")
        assert command(site, "nightly", "--lock-wait", "0.1s")[0] == 75
        assert ran.read_text() == before
    with pytest.raises(LockBusy, match="inner"):
        command(site, "nightly", "--inner")


def test_exit_codes_of_the_command_that_runs_another_one(site: Any, other: Holdfast) -> None:
    with other.lock("manage:check", wait=5):
        assert command(site, "locked", "--wait", "0.1", "check")[0] == 75
        assert command(site, "locked", "--skip", "check")[::2] == (0, "manage:check is busy: the command is not run\n")
        assert command(site, "locked", "--name", "another", "check")[0] == 0
    with override_settings(HOLDFAST={"NODES": AWAY, "OUTAGE": 0.2}):
        status, _, said = command(site, "locked", "--wait", "0.5", "check")
        assert (status, "could not acquire 'manage:check'" in said) == (69, True)
    with pytest.raises(CommandError, match="'soon' is no duration"):
        call_command("locked", "--wait", "soon", "check")


def test_a_command_that_loses_its_lock_fails(site: Any, other: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    from djapp.management.commands.nightly import Command

    def robbed(self: Any, *args: Any, **options: Any) -> None:
        other.force_release("manage:nightly", "for this test")
        # The nodes tell the holder by a message, which takes its time on a busy machine.
        deadline = time.monotonic() + 10
        while site.locks.leases() and time.monotonic() < deadline:
            time.sleep(0.01)

    monkeypatch.setattr(Command, "handle", robbed)
    get_commands()["nightly"] = Command()
    assert command(site, "nightly")[0] == 76


@pytest.mark.parametrize("path, policy", [("limited", '"default";q=100;w=60'), ("alimited", '"60";q=2;w=60, "3600";q=9;w=3600')])
def test_requests_above_a_rate_are_429(site: Any, other: Holdfast, path: str, policy: str) -> None:
    # A client of another event loop may be closed.
    forget(setting="HOLDFAST")

    async def ask() -> list[Any]:
        answers = [await AsyncClient().get(f"/{path}/{it}") for it in (1, 1, 1, 2)]
        await alocks.close()
        return answers

    answers = asyncio.run(ask())
    assert [it.status_code for it in answers] == [200, 200, 429, 200]
    assert answers[0].headers["ratelimit-policy"] == policy
    assert int(answers[2].headers["retry-after"]) >= 1
