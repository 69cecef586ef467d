"""Where settings come from: flags, environment, files and profiles; who may read a file; and the working directory, never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.kit import Command

from holdfast import ConfigError
from holdfast.cli import configuration as module
from holdfast.cli.configuration import configuration, credentials
from holdfast.embedded import Nodes

TOML = """\
nodes = ["redis://a", "redis://b", "redis://c"]
max_ttl = "1m"

[profile.staging]
nodes = "redis://staging"
"""


@pytest.fixture(autouse=True)
def no_system_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "SYSTEM_FILE", str(tmp_path / "etc/config.toml"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose user's file has TOML in it."""
    written(tmp_path / ".config/holdfast/config.toml", TOML)
    return tmp_path


def written(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def found(home: Path, flags: dict[str, Any] | None = None, **environment: str) -> dict[str, Any]:
    return configuration(flags or {}, {"HOME": str(home), **environment}).values


# ------------------------------------------------ which place wins


def test_nothing_is_set() -> None:
    assert configuration({}, {}).values == {}


def test_what_holds_locks_for_other_processes_has_no_guardian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_GUARDIAN", "1")
    monkeypatch.setenv("HOLDFAST_NODES", "redis://a")
    assert not configuration({}, {}).client().settings.guardian


def test_the_users_file(home: Path) -> None:
    assert found(home) == {"nodes": ["redis://a", "redis://b", "redis://c"], "max_ttl": 60.0}


def test_the_systems_file_fills_what_the_users_file_leaves_open(home: Path) -> None:
    written(home / "etc/config.toml", 'max_ttl = 20\nprefix = "shop:"\n')
    config = configuration({}, {"HOME": str(home)})
    assert (config.values["max_ttl"], config.values["prefix"]) == (60.0, "shop:")


def test_the_file_that_is_named_comes_before_the_users(home: Path) -> None:
    other = written(home / "other.toml", "max_ttl = 20\n")
    assert found(home, {"config": str(other)})["max_ttl"] == 20
    assert found(home, HOLDFAST_CONFIG=str(other))["max_ttl"] == 20
    assert found(home, {"config": str(other)})["nodes"][0] == "redis://a", "what it leaves open comes from the next one"


def test_the_environment_comes_before_files_and_flags_before_it(home: Path) -> None:
    # (The client itself reads the environment.)
    config = configuration({}, {"HOME": str(home), "HOLDFAST_MAX_TTL": "20"})
    assert "max_ttl" not in config.values
    config = configuration({"max_ttl": 10.0}, {"HOME": str(home), "HOLDFAST_MAX_TTL": "20"})
    assert config.values["max_ttl"] == 10.0


def test_shards_of_a_file_do_not_replace_nodes_that_come_first(home: Path) -> None:
    written(home / ".config/holdfast/config.toml", '[shards]\na = ["redis://a"]\nb = ["redis://b"]\n')
    assert found(home)["shards"] == {"a": ["redis://a"], "b": ["redis://b"]}
    assert found(home, HOLDFAST_NODES="redis://c") == {}
    assert found(home, {"nodes": ["redis://c"]}) == {"nodes": ["redis://c"]}
    # Semicolons separate shards in HOLDFAST_NODES. Nothing reads another variable.
    assert found(home, HOLDFAST_SHARDS="redis://c")["shards"] == {"a": ["redis://a"], "b": ["redis://b"]}


def test_nodes_of_a_nearer_place_hide_shards_of_a_farther_one(home: Path) -> None:
    written(home / "etc/config.toml", 'shards = [["redis://x"]]\n')
    assert "shards" not in found(home)


def test_xdg_config_home(home: Path) -> None:
    written(home / "xdg/holdfast/config.toml", 'owner = "me"\n')
    assert found(home, XDG_CONFIG_HOME=str(home / "xdg")) == {"owner": "me"}


def test_a_profile_comes_before_the_rest_of_its_file(home: Path) -> None:
    for profile in (found(home, {"profile": "staging"}), found(home, HOLDFAST_PROFILE="staging")):
        assert profile == {"nodes": ["redis://staging"], "max_ttl": 60.0}
    with pytest.raises(ConfigError, match=r"no configuration file has a table \[profile.stagng\]"):
        found(home, {"profile": "stagng"})


def test_a_profile_with_shards_hides_the_nodes_of_its_file(home: Path) -> None:
    file = written(home / "x.toml", 'nodes = "redis://a"\n[profile.big]\nshards = [["redis://b"], ["redis://c"]]\n')
    values = found(home, {"config": str(file), "profile": "big"})
    assert values["shards"] == [["redis://b"], ["redis://c"]]
    assert "nodes" not in values


def test_the_working_directory_is_never_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("config.toml", "holdfast.toml", ".holdfast.toml", "pyproject.toml", ".config/holdfast/config.toml"):
        written(home / "cwd" / name, 'nodes = "redis://evil"\n[tool.holdfast]\nnodes = "redis://evil"\n')
    monkeypatch.chdir(home / "cwd")
    assert found(home)["nodes"][0] == "redis://a"
    # Without a home, a relative path would be that of the working directory.
    assert configuration({}, {}).values == {}
    assert configuration({}, {"HOME": ""}).values == {}


# ------------------------------------------------ what is wrong with a file

WRONG = {
    "an unknown setting": ('node = "redis://a"', "unknown setting 'node'. Valid settings are nodes, shards,"),
    "no TOML": ("nodes = [", "cannot be read"),
    "a number for a text": ("prefix = 7", "prefix is text, not 7"),
    "a wrong duration": ('ttl = "soon"', "'soon' is no duration"),
    "profiles that are no tables": ("profile = 7", r"profiles are tables, \[profile.NAME\]"),
    "nodes and shards": ('nodes = "redis://a"\nshards = [["redis://b"]]', "nodes and shards are both set"),
    "a certificate without a key": ('cert = "x"', "cert and key belong together"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_cannot_work_is_refused(case: str, tmp_path: Path) -> None:
    text, message = WRONG[case]
    file = written(tmp_path / "x.toml", text)
    with pytest.raises(ConfigError, match=message):
        found(tmp_path, {"config": str(file)})


def test_a_file_that_is_named_must_exist_and_others_need_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        found(tmp_path, {"config": str(tmp_path / "none")})
    assert found(tmp_path) == {}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_password_in_a_file_that_others_may_use_is_refused(mode: int, tmp_path: Path) -> None:
    file = written(tmp_path / "x.toml", 'nodes = ["redis://user:hunter2@a"]\n', mode)
    with pytest.raises(ConfigError, match=r"password .*`chmod 600") as refused:
        found(tmp_path, {"config": str(file)})
    assert "hunter2" not in str(refused.value)
    file.chmod(0o600)
    assert found(tmp_path, {"config": str(file)})["nodes"] == ["redis://user:hunter2@a"]
    # (A user without a password is no secret.)
    assert found(tmp_path, {"config": str(written(tmp_path / "y.toml", 'nodes = ["redis://user@a"]'))})


# ------------------------------------------------ credentials


def test_credentials_are_read_each_time(tmp_path: Path) -> None:
    file = written(tmp_path / "secret", "ben:one\n", 0o600)
    read = credentials(str(file))
    assert read("any node") == ("ben", "one")
    written(file, "ben:two:three\n", 0o600)
    assert read("any node") == ("ben", "two:three")
    written(file, "four\n", 0o600)
    assert read("any node") == "four"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_credentials_that_others_may_read_are_refused(mode: int, tmp_path: Path) -> None:
    file = written(tmp_path / "secret", "ben:one\n", mode)
    with pytest.raises(ConfigError, match=r"other users may read .*: `chmod 600"):
        credentials(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        credentials(str(tmp_path / "none"))


# ------------------------------------------------ as a user has it


def test_the_command_uses_a_file_and_says_what_is_wrong_with_it(nodes: Nodes, tmp_path: Path) -> None:
    urls = json.dumps(list(nodes.urls))
    written(tmp_path / ".config/holdfast/config.toml", f'nodes = {urls}\nttl = "5s"\n[profile.dead]\nnodes = "redis://127.0.0.1:1"\n')
    holdfast = Command(tmp_path, {})
    assert '"ttl": 5.0' in holdfast.run("hold", "x", input="").stdout, "the ttl of the file"
    assert '"ttl": 4.0' in holdfast.run("hold", "--ttl", "4s", "x", input="").stdout
    assert '"ttl": 3.0' in holdfast.run("hold", "x", input="", env={"HOLDFAST_TTL": "3"}).stdout
    assert holdfast.run("run", "--profile", "dead", "-n", "x", "true").returncode == 69
    written(tmp_path / ".config/holdfast/config.toml", 'node = "redis://a"')
    wrong = holdfast.run("run", "x", "true")
    assert wrong.returncode == 78
    assert "unknown setting 'node'" in wrong.stderr


def test_the_command_uses_credentials(tmp_path: Path) -> None:
    with Nodes(1, tcp=True) as nodes:
        address = nodes.urls[0].removeprefix("redis://:")
        password, _, host = address.partition("@")
        file = written(tmp_path / "secret", password + "\n", 0o600)
        holdfast = Command(tmp_path, {**nodes.environment, "HOLDFAST_NODES": f"redis://{host}"})
        assert holdfast.run("run", "-n", "x", "true").returncode == 77
        assert holdfast.run("run", "--credentials-file", str(file), "x", "true").returncode == 0
        assert holdfast.run("run", "x", "true", env={"HOLDFAST_CREDENTIALS_FILE": str(file)}).returncode == 0
        file.chmod(0o644)
        assert holdfast.run("run", "--credentials-file", str(file), "x", "true").returncode == 78
