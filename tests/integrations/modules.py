"""What the modules with tests of frameworks need, and which of them start processes."""

from __future__ import annotations

NEEDS = {
    "test_apscheduler.py": "apscheduler",
    "test_asgi.py": "httpx",
    "test_beats.py": "celery",
    "test_celery.py": "celery",
    "test_celery_beat.py": "celery",
    "test_django.py": "django",
    "test_django_admin.py": "django",
    "test_django_atomic.py": "django",
    "test_django_commands.py": "django",
    "test_dramatiq.py": "dramatiq",
    "test_fastapi.py": "fastapi",
    "test_fastapi_processes.py": "fastapi",
    "test_flask.py": "flask",
    "test_idempotency.py": "httpx",
    "test_pytest.py": "xdist",
}
LONG = {
    "test_apscheduler.py",
    "test_beats.py",
    "test_celery.py",
    "test_django.py",
    "test_django_admin.py",
    "test_django_commands.py",
    "test_dramatiq.py",
    "test_fastapi_processes.py",
    "test_flask.py",
    "test_pipelines.py",
    "test_pytest.py",
    "test_queues.py",
}
