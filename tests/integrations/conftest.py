"""Which tests of frameworks can run: those whose framework is installed.

Tests with processes of a framework take long, so that they run under `./task guests` only.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

NEEDS = {
    "test_apscheduler.py": "apscheduler",
    "test_asgi.py": "httpx",
    "test_celery.py": "celery",
    "test_celery_beat.py": "celery",
    "test_django.py": "django",
    "test_django_atomic.py": "django",
    "test_dramatiq.py": "dramatiq",
    "test_fastapi.py": "fastapi",
    "test_fastapi_processes.py": "fastapi",
    "test_flask.py": "flask",
    "test_idempotency.py": "httpx",
    "test_pytest.py": "xdist",
}
LONG = {
    "test_apscheduler.py",
    "test_celery.py",
    "test_django.py",
    "test_dramatiq.py",
    "test_fastapi_processes.py",
    "test_flask.py",
    "test_pytest.py",
}

collect_ignore = [it for it, framework in NEEDS.items() if find_spec(framework) is None]
if not os.environ.get("HOLDFAST_GUESTS"):
    collect_ignore += sorted(LONG)
