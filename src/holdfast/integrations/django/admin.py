"""Locks in Django's admin: which are held and waited for, and taking one away from its holder.

Knows Django's admin, and the client for threads. Django loads it if the admin is installed.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from ...errors import HoldfastError, message_of
from .locks import locks
from .models import Lock

MOST = 500  # locks of a page


@admin.register(Lock)
class LockAdmin(admin.ModelAdmin):  # type: ignore[misc]  # (Django has no types)
    """The pages for users with the permission `holdfast.view_lock`.

    Those who have `holdfast.release_lock` too can release a lock. The admin's history has the
    reason.
    """

    def get_urls(self) -> list[Any]:
        """Return a page for all locks, and one for each."""
        allowed = permission_required("holdfast.view_lock", raise_exception=True)
        pages = {"": (self._all, "changelist"), "<path:quoted>/change/": (self._one, "change")}
        view = self.admin_site.admin_view
        return [path(it, view(allowed(page)), name=f"holdfast_lock_{name}") for it, (page, name) in pages.items()]

    def _all(self, request: HttpRequest) -> HttpResponse:
        """List the locks that are held."""
        pattern, rows = request.GET.get("q") or "*", []
        try:
            rows = sorted(islice(locks.survey(pattern), MOST), key=lambda it: it.name)
        except HoldfastError as error:
            messages.error(request, message_of(error))
        return self._page(request, "list", "Locks", pattern=pattern, rows=rows, full=len(rows) == MOST)

    def _one(self, request: HttpRequest, quoted: str) -> HttpResponse:
        """Show who holds a lock and who waits for it, or release it."""
        name, may = unquote(quoted), request.user.has_perm("holdfast.release_lock")
        try:
            if request.method == "POST":
                if not may:
                    raise PermissionDenied
                self._release(request, name)
                return HttpResponseRedirect(request.path)
            status = locks.inspect(name)
        except HoldfastError as error:
            messages.error(request, message_of(error))
            return HttpResponseRedirect(reverse("admin:holdfast_lock_changelist", current_app=self.admin_site.name))
        return self._page(request, "form", name, status=status, may=may and status.state != "free")

    def _release(self, request: HttpRequest, name: str) -> None:
        reason = request.POST.get("reason", "").strip()
        if not (reason and request.POST.get("sure")):
            messages.error(request, "The lock was not released: say why, and that you are sure.")
        # The holder that the page has shown, and no later one.
        elif locks.force_release(name, f"{reason} ({request.user})", request.POST.get("only") or None):
            self.log_change(request, Lock(name), f"Released: {reason}")
            messages.success(request, f"The lock {name} was released.")
        else:
            messages.warning(request, f"The lock {name} was not released: its holder has changed.")

    def _page(self, request: HttpRequest, kind: str, title: str, **context: Any) -> HttpResponse:
        request.current_app = self.admin_site.name
        context |= {**self.admin_site.each_context(request), "opts": self.opts, "title": title}
        return TemplateResponse(request, f"admin/holdfast/lock/change_{kind}.html", context)
