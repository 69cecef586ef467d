"""What the nemesis does to servers is what it says."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import AsyncIterator

import pytest
from nemesis.servers import ALWAYS, CUT, EMPTY, EVERY_SECOND, FORGETFUL, KEPT, Servers

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the nemesis knows Linux's processes only")]
LONG = 100_000


@pytest.fixture
async def three() -> AsyncIterator[Servers]:
    servers = Servers([FORGETFUL, EVERY_SECOND, ALWAYS])
    await servers.start()
    yield servers
    servers.close()


async def test_what_they_find_of_their_past(three: Servers) -> None:
    forgetful, careful, always = three
    for it in three:
        assert await it.ask("SET", "old", "x", "PX", LONG) == "OK"
    before = careful.written
    for it in three:
        await it.ask("SET", "new", "x", "PX", LONG)
    assert careful.written > before
    runs = {it.run_id for it in three}
    careful.kill(second_ago=before + 10)
    await careful.start(CUT)
    assert await careful.ask("KEYS", "*") == ["old"]
    careful.kill()
    await careful.start(EMPTY)
    assert await careful.ask("KEYS", "*") == []
    always.kill()
    await always.start(KEPT)
    assert sorted(await always.ask("KEYS", "*")) == ["new", "old"]
    await forgetful.shutdown()
    assert not forgetful.alive
    await forgetful.start(KEPT)
    assert await forgetful.ask("KEYS", "*") == []
    assert not runs & {it.run_id for it in three}


async def test_standing_still_and_a_disk_that_is_full(three: Servers) -> None:
    one = three[1]
    one.freeze()
    with pytest.raises(OSError):
        await one.ask("PING", patience=0.1)
    assert one.state() == "T"
    one.thaw()
    assert await one.ask("PING") == "PONG"
    one.fill_disk(1)
    await one.ask("SET", "a", "x", "PX", LONG)
    assert "MISCONF" in str(await one.ask("SET", "b", "x", "PX", LONG))
    one.fill_disk(None)
    deadline = time.monotonic() + 10
    while await one.ask("SET", "b", "x", "PX", LONG) != "OK":
        assert time.monotonic() < deadline


@pytest.mark.skipif(shutil.which("cc") is None, reason="the shim that sets clocks needs a compiler")
async def test_a_clock_is_set_and_right_again_after_a_restart(three: Servers) -> None:
    one = three[0]
    for step, offset in ((-0.5, -0.5), (0.25, -0.25)):
        one.step(step)
        time.sleep(0.15)
        low, high = await one.ahead()
        assert low - 0.01 < offset < high + 0.01
    one.kill()
    await one.start()
    low, high = await one.ahead()
    assert low - 0.01 < 0.0 < high + 0.01
