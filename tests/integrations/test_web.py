"""Which status an error becomes, and what no response may show."""

from __future__ import annotations

import json
import logging

import pytest

from holdfast import errors
from holdfast.integrations import web
from holdfast.integrations.web import Statuses, rate_headers

SECRETS = ("token-of-the-holder", "redis://10.0.0.7", "invoice:42")


def test_b8_a_template_takes_no_value_that_another_process_would_write_differently() -> None:
    assert web.filled("order:{pk}:{}", ("a",), {"pk": 7}) == "order:7:a"
    with pytest.raises(errors.ConfigError, match=r"filled from the URL, which captures pk: {pk} is <object object at .* such as {pk.id}"):
        web.filled("order:{pk}", (), {"pk": object()})


def busy(left: float | None) -> errors.LockBusy:
    return errors.LockBusy("invoice:42", 1.0, "token-of-the-holder", left)


def no_quorum() -> errors.NoQuorum:
    return errors.NoQuorum("invoice:42", 1.0, {"redis://10.0.0.7": OSError("refused")}, 2)


CASES = {
    "busy": (busy(7.2), 409, "busy", "8"),
    "busy for long": (busy(500.0), 409, "busy", "60"),
    "busy, and nobody knows for how long": (busy(None), 409, "busy", "1"),
    "limited": (errors.RateLimited("api", 0.0, None, 10, 60.0, 90.5), 429, "rate-limited", "91"),
    "no quorum": (no_quorum(), 503, "unavailable", "10"),
    "closed": (errors.closed(), 503, "unavailable", "10"),
    "lost": (errors.LockLost("invoice:42", "expired", 7), 503, "lost", None),
    "name": (errors.ConfigError("'invoice:42[once]' cannot be a lock's name", "bad_name"), 422, "name", None),
    "stale fence": (errors.StaleFence("invoice:42", 7), 412, "fence", None),
    "missing fence": (errors.BadFence("none"), 428, "fence", None),
    "bad fence": (errors.BadFence("none", "x"), 400, "fence", None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_status_of_an_error(case: str) -> None:
    error, status, kind, after = CASES[case]
    found = Statuses().answer(error, "GET /x")
    headers, body = dict(found.headers), json.loads(found.body)
    assert (found.status, body["status"], body["type"]) == (status, status, f"about:holdfast/{kind}")
    assert headers["content-type"] == "application/problem+json"
    assert headers.get("retry-after") == after


@pytest.mark.parametrize("error", [errors.ConfigError("x"), *(errors.Misuse("x", it) for it in ("other", "not_held", "wrong_loop"))])
def test_a_mistake_in_the_program_is_no_answer(error: errors.HoldfastError) -> None:
    with pytest.raises(errors.HoldfastError) as raised:
        Statuses().answer(error, "GET /x")
    assert raised.value is error


@pytest.mark.parametrize("case", CASES)
def test_no_response_shows_a_holder_an_address_or_a_name_and_the_log_has_all(case: str, caplog: pytest.LogCaptureFixture) -> None:
    error = CASES[case][0]
    with caplog.at_level(logging.DEBUG, "holdfast.web"):
        found = Statuses().answer(error, "GET /x")
    shown = found.body.decode() + str(found.headers)
    assert [it for it in SECRETS if it in shown] == []
    assert error.message in caplog.text
    assert "GET /x" in caplog.text


def test_names_are_shown_where_that_is_wanted() -> None:
    found = Statuses(names=True, busy=423).answer(busy(1.0), "GET /x")
    assert (found.status, json.loads(found.body)["lock"]) == (423, "invoice:42")
    with pytest.raises(errors.ConfigError, match="409 or 423, not 404"):
        Statuses(busy=404)


def test_load_is_no_warning_an_outage_is_one_and_a_loss_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "holdfast.web"):
        for case in ("busy", "limited", "no quorum", "lost"):
            Statuses().answer(CASES[case][0], "GET /x")
    assert [it.levelname for it in caplog.records] == ["DEBUG", "DEBUG", "WARNING", "ERROR"]


def test_the_headers_of_a_rate() -> None:
    assert dict(rate_headers([(10, 60.0)], 3, 12.1)) == {
        "ratelimit": '"default";r=3;t=13',
        "ratelimit-policy": '"default";q=10;w=60',
    }
    assert dict(rate_headers([(10, 60.0), (100, 3600)], 3, 12.1)) == {
        "ratelimit": '"all";r=3;t=13',
        "ratelimit-policy": '"60";q=10;w=60, "3600";q=100;w=3600',
    }
