"""The files that come with the package: a dashboard for Grafana, and alert rules for Prometheus.

Knows where the files lie. Must not know what is in them.
"""

from __future__ import annotations

from importlib.resources import files

__all__ = ["alerts", "dashboard"]


def dashboard() -> str:
    """Return the dashboard for Grafana 10 and newer, as JSON to import.

    Returns:
        The text of the file. Write it to a file of yours, or paste it into Grafana's import dialog.
    """
    return files(__package__).joinpath("grafana.json").read_text(encoding="utf-8")


def alerts() -> str:
    """Return the alert rules for Prometheus, as YAML.

    Returns:
        The text of the file, for `rule_files:` of your Prometheus.
    """
    return files(__package__).joinpath("alerts.yaml").read_text(encoding="utf-8")
