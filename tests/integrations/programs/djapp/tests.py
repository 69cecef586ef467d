"""Tests that hold a lock of the same name at the same time, in different workers."""

from __future__ import annotations

import os
import time
from pathlib import Path

from django.test import TestCase
from record import note

from holdfast.integrations.django import locks


class Together:
    def test_it(self) -> None:
        with locks.lock("same", wait=0):
            note("test", ",".join(locks.urls), locks.settings.prefix)
            end = time.monotonic() + 30
            while Path(os.environ["RECORD"]).read_text().count(" test ") < 2:
                assert time.monotonic() < end, "the other test does not run"
                time.sleep(0.02)


class FirstTest(Together, TestCase):
    pass


class SecondTest(Together, TestCase):
    pass
