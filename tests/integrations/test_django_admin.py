"""Locks in Django's admin, in one process on SQLite and real servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from holdfast import Holdfast, LockLost
from holdfast.embedded import Nodes

INSIDE = ["sessions.middleware.SessionMiddleware", "auth.middleware.AuthenticationMiddleware", "messages.middleware.MessageMiddleware"]
READS = ["request", "auth", "messages"]


@pytest.fixture(scope="module")
def site(nodes: Nodes) -> Iterator[None]:
    import django
    from django.conf import settings

    contrib = ["admin", "auth", "contenttypes", "sessions", "messages"]
    paths = ["django.template.context_processors.request", *(f"django.contrib.{it}.context_processors.{it}" for it in READS[1:])]
    settings.configure(
        SECRET_KEY="a test",
        ROOT_URLCONF=__name__,
        USE_TZ=True,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["holdfast.integrations.django", *(f"django.contrib.{it}" for it in contrib)],
        MIDDLEWARE=[f"django.contrib.{it}" for it in INSIDE],
        TEMPLATES=[
            {"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {"context_processors": paths}}
        ],
        HOLDFAST={"NODES": nodes.urls, "PREFIX": "admin:"},
    )
    django.setup()
    from django.contrib import admin
    from django.core.management import call_command
    from django.urls import path

    from holdfast.integrations.django.locks import clients

    globals()["urlpatterns"] = [path("admin/", admin.site.urls)]
    call_command("migrate", verbosity=0)
    call_command("makemigrations", "holdfast", "--check", "--dry-run", verbosity=0)
    yield
    clients.close()


def browser(name: str, *permissions: str) -> Any:
    """A browser of somebody who may do this."""
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    found = Client()
    found.force_login(user)
    return found


@pytest.mark.usefixtures("site")
def test_locks_are_shown_and_released_by_those_who_may(nodes: Nodes) -> None:
    from django.contrib.admin.models import LogEntry
    from django.contrib.auth.models import User

    stranger, admin, viewer, operator = browser("s"), browser("a"), browser("v", "view_lock"), browser("o", "view_lock", "release_lock")
    page = "/admin/holdfast/lock/order_3A7/change/"
    with Holdfast(*nodes.urls, prefix="admin:") as holder, Holdfast(*nodes.urls, prefix="admin:") as waiter:
        lease = holder.lock("order:7", note="<b>pays</b>").acquire()
        said = {"reason": "stuck", "sure": "1", "only": lease.token}
        assert [it.get(page).status_code for it in (stranger, viewer, operator)] == [403, 200, 200]
        assert [it.post(page, said).status_code for it in (stranger, viewer)] == [403, 403]
        assert lease.held
        shown = viewer.get("/admin/holdfast/lock/?q=order:*").content.decode()
        assert page in shown
        # Others find no link to the page, and those who may do all find no page to add one.
        User.objects.filter(username="a").update(is_superuser=True)
        for who, links in ((stranger, set()), (viewer, {"lock/"}), (admin, {"lock/"})):
            assert set(re.findall('"/admin/holdfast/(lock[^"]*)', who.get("/admin/").content.decode())) == links
        assert "&lt;b&gt;pays&lt;/b&gt;" in shown
        assert "No lock is held" in viewer.get("/admin/holdfast/lock/?q=other:*").content.decode()
        assert "Why:" not in viewer.get(page).content.decode()

        for refused in ({**said, "sure": ""}, {**said, "reason": " "}, {**said, "only": "another"}):
            assert "was not released" in operator.post(page, refused, follow=True).content.decode()
        assert lease.held
        thread = Thread(target=lambda: waiter.lock("order:7", wait=30).acquire().release())
        thread.start()
        while "waits for it" not in (whole := operator.get(page).content.decode()):
            pass
        assert lease.token in whole
        assert "The lock order:7 was released." in operator.post(page, said, follow=True).content.decode()
        thread.join()
        assert lease.lost.wait(10)
        with pytest.raises(LockLost):
            lease.release()
    assert [it.change_message for it in LogEntry.objects.all()] == ["Released: stuck"]


@pytest.mark.usefixtures("site")
def test_without_a_majority_a_page_says_so() -> None:
    from django.test import override_settings

    operator = browser("u", "view_lock", "release_lock")
    with override_settings(HOLDFAST={"NODES": ["redis://127.0.0.1:1"], "NODE_TIMEOUT": 0.2}):
        for told in (operator.get("/admin/holdfast/lock/"), operator.get("/admin/holdfast/lock/a/change/", follow=True)):
            assert "127.0.0.1:1" in told.content.decode()
