"""The application: its label, and its checks."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register


class HoldfastConfig(AppConfig):  # type: ignore[misc]  # (Django has no types)
    """holdfast as a Django application."""

    name = "holdfast.integrations.django"
    label = "holdfast"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks."""
        from .checks import check_deployment, check_nodes, check_settings, check_views

        for check in (check_settings, check_views):
            register(check, "holdfast")
        for check in (check_deployment, check_nodes):
            register(check, "holdfast", deploy=True)
