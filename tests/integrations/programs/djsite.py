"""A Django project in one file, with ATOMIC_REQUESTS: a counter in a database, and the ways to lock it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from django.conf import settings

if not settings.configured:
    postgres = os.environ.get("POSTGRES")
    settings.configure(
        SECRET_KEY="a test",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="djsite",
        USE_TZ=True,
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql" if postgres else "django.db.backends.sqlite3",
                "NAME": "postgres" if postgres else ":memory:",
                "USER": "tester",
                "HOST": postgres or "",
                "ATOMIC_REQUESTS": True,
            }
        },
        INSTALLED_APPS=["holdfast.integrations.django", *os.environ.get("APPS", "").split()],
        TEST_RUNNER=os.environ.get("RUNNER", "django.test.runner.DiscoverRunner"),
        MIDDLEWARE=["holdfast.integrations.django.Middleware"],
        HOLDFAST={
            "TTL": "2",
            "PREFIX": os.environ.get("LOCK_PREFIX", "django:"),
            "MAX_TTL": "4",
            **({"NODES": "local"} if "LOCAL" in os.environ else {}),
        },
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": [], "DEFAULT_PERMISSION_CLASSES": []},
        LOGGING={
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {"console": {"class": "logging.StreamHandler"}},
            "loggers": {"django.request": {"handlers": ["console"], "level": "ERROR"}},
        },
    )

import django

django.setup()

from django.core.asgi import get_asgi_application
from django.core.management import BaseCommand, execute_from_command_line, get_commands
from django.core.wsgi import get_wsgi_application
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from record import note

from holdfast.aio import current
from holdfast.errors import LockBusy
from holdfast.integrations.django import guard, limited_view, locked_atomic, locked_view, locks


class Migrate(BaseCommand):
    """Stands for a migration: what it does must not happen twice at the same time."""

    def handle(self, *args: Any, **options: Any) -> None:
        note("enter", "migrate")
        time.sleep(0.2)
        note("leave", "migrate")


get_commands()["slow"] = Migrate()


def value(change: int = 0, pause: float = 0.003) -> int:
    """Read the counter, and write it back as a program does that computes in between."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT value FROM counter")
        found: int = cursor.fetchone()[0]
        if change:
            time.sleep(pause)
            cursor.execute("UPDATE counter SET value = %s", [found + change])
    return found


def inside(request: HttpRequest) -> HttpResponse:
    """The trap: the lock is given back before the commit."""
    with locks.lock("counter"):
        value(1)
    time.sleep(0.003)  # renders the page
    return HttpResponse("done")


@locked_view("counter:{pk}")
def marked(request: HttpRequest, pk: int) -> HttpResponse:
    value(1)
    time.sleep(0.003)
    return HttpResponse("done")


@transaction.non_atomic_requests
def atomic(request: HttpRequest) -> HttpResponse:
    with locked_atomic("counter") as lease:
        guard(lease)
        value(1)
    return HttpResponse("done")


@locked_view("counter:{pk}", max_hold=0.2)
def lost(request: HttpRequest, pk: int) -> HttpResponse:
    value(1000)
    time.sleep(0.7)
    return HttpResponse("done")


@transaction.non_atomic_requests
@locked_view("counter:{pk}", max_hold=0.2)
async def alost(request: HttpRequest, pk: int) -> HttpResponse:
    await asyncio.sleep(0.7)
    return HttpResponse("done")


@locked_view("counter:{pk}", wait=0)
def busy(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse("done")


@locked_view(lambda request, pk: f"held:{pk}", wait=5)
def hold(request: HttpRequest, pk: int) -> HttpResponse:
    note("enter", pk)
    time.sleep(float(request.GET["seconds"]))
    note("leave", pk)
    return HttpResponse("done")


@transaction.non_atomic_requests
@locked_view("async:{pk}", wait=5)
async def asynchronous(request: HttpRequest, pk: int) -> HttpResponse:
    note("enter", f"async:{pk}")
    note("leave", f"async:{pk}")
    return HttpResponse("done")


@transaction.non_atomic_requests
@locked_view("handed:{pk}", wait=5)
async def hands(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse(await current().hand_over(3))


@limited_view(lambda request, pk: request.resolver_match.url_name, 100, 60, burst=2, key="{pk}")
def limited(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse("done")


@transaction.non_atomic_requests
@limited_view("alimited", [(2, 60), (9, 3600)], key="{pk}")
async def alimited(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse("done")


def raises(request: HttpRequest) -> HttpResponse:
    raise LockBusy("inner", 0.0, None, 7.0)


def look(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(value()))


def blocking(get_response: Any) -> Any:
    """A middleware that knows no asyncio."""
    return lambda request: get_response(request)


urlpatterns = [
    path("inside", inside),
    path("marked/<int:pk>", marked),
    path("atomic", atomic),
    path("lost/<int:pk>", lost),
    path("alost/<int:pk>", alost),
    path("busy/<int:pk>", busy),
    path("hold/<int:pk>", hold),
    path("async/<int:pk>", asynchronous),
    path("hands/<int:pk>", hands),
    path("limited/<int:pk>", limited, name="limited"),
    path("alimited/<int:pk>", alimited),
    path("raises", raises),
    path("value", look),
]

application = get_wsgi_application()
asgi = get_asgi_application()

if __name__ == "__main__":
    execute_from_command_line(["manage.py", *sys.argv[1:]])
