"""Values from the environment, from files and from directories, where properties name them."""

from __future__ import annotations

import pytest

from kraftcore.config import ConfigError, NodeConfig
from kraftcore.config.providers import resolve
from kraftcore.config.storage_properties import load_server_file

CLASS = "org.apache.kafka.common.config.provider."
NAMES = {
    "config.providers": "env,file, dir",
    "config.providers.env.class": CLASS + "EnvVarConfigProvider",
    "config.providers.file.class": CLASS + "FileConfigProvider",
    "config.providers.dir.class": CLASS + "DirectoryConfigProvider",
}


@pytest.fixture
def secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("KC_SECRET", "from ${env:HOME}")
    (tmp_path / "secrets.properties").write_text("a.b = hunter2\\u00e9\nü=ö€😀\n", encoding="utf-8")
    (tmp_path / "word").write_text("one\nline\n")
    return tmp_path


def _resolved(text: str, **more: str) -> str:
    return resolve(NAMES | {key.replace("_", "."): value for key, value in more.items()} | {"x": text})["x"]


def test_variables_are_replaced_once_wherever_they_stand(secrets):
    path = secrets / "secrets.properties"
    assert _resolved("${env:KC_SECRET}") == "from ${env:HOME}"
    assert _resolved(f'password="${{file:{path}:a.b}}" ${{file:{path}:ü}};') == 'password="hunter2é" ö€😀;'
    assert _resolved(f"<${{dir:{secrets}:word}}>") == "<one\nline\n>"
    assert _resolved("$ {env:X} ${none} ${other:a:b}") == "$ {env:X} ${none} ${other:a:b}"


def test_without_providers_nothing_is_replaced():
    assert resolve({"x": "${env:HOME}"}) == {"x": "${env:HOME}"}


def test_bounds_of_providers(secrets):
    allowed = {"config_providers_env_param_allowlist.pattern": "KC_.*"}
    assert _resolved("${env:KC_SECRET}", **allowed)
    with pytest.raises(ConfigError, match=r"x: there is nothing for \$\{env:HOME\}"):
        _resolved("${env:HOME}", **allowed)
    for kind, key in (("file", "secrets.properties:a.b"), ("dir", ":word")):
        path = f"${{{kind}:{secrets}" + (f"/{key}}}" if kind == "file" else f"{key}}}")
        parameter = f"config.providers.{kind}.param.allowed.paths"
        assert _resolved(path, **{parameter: f"{secrets},/"})
        assert _resolved(path, **{parameter: str(secrets)})
        (secrets / "other").mkdir(exist_ok=True)
        with pytest.raises(ConfigError, match="not among allowed.paths"):
            _resolved(path, **{parameter: f"{secrets}/other"})
        with pytest.raises(ConfigError, match="not among allowed.paths"):
            _resolved(
                path.replace(f"{secrets}/", f"{secrets}/other/../").replace(f"{secrets}:", f"{secrets}/other/..:"),
                **{parameter: f"{secrets}/other"},
            )
        with pytest.raises(ConfigError, match="is not absolute, or not there"):
            _resolved(path, **{parameter: "relative"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${env:KC_MISSING}", "there is nothing for ${env:KC_MISSING}"),
        ("${env:path:KC_SECRET}", "environment variables have no path"),
        ("${file:a.b}", "a path is missing"),
        ("${file:HERE/none:a}", "cannot look up"),
        ("${file:HERE/secrets.properties:none}", "there is nothing for"),
        ("${file:HERE/broken:a}", "broken \\u escape"),
        ("${dir:HERE:none}", "there is nothing for"),
        ("${dir:HERE:../word}", "there is nothing for"),
        ("${dir:HERE/none:word}", "there is nothing for"),
    ],
)
def test_what_finds_nothing_is_an_error_that_names_the_setting_and_no_value(secrets, text, reason):
    (secrets / "broken").write_text("a=hunter2\\u12")
    with pytest.raises(ConfigError) as caught:
        _resolved(text.replace("HERE", str(secrets)))
    assert str(caught.value).startswith("x: ")
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"config.providers": "a"}, "config.providers.a.class is missing"),
        ({"config.providers": "a", "config.providers.a.class": "my.Vault"}, "a class of Java's"),
        (NAMES | {"config.providers.env.param.allowlist.pattern": "("}, "is no regular expression"),
    ],
)
def test_providers_that_cannot_be_are_refused(given, reason):
    with pytest.raises(ConfigError) as caught:
        resolve(given)
    assert reason in str(caught.value)


def test_server_files_have_them(secrets):
    lines = [f"{key}={value}" for key, value in NAMES.items()]
    path = secrets / "server.properties"
    more = "process.roles=controller\nlog.dirs=/x\nlisteners=C://:9093\ncontroller.listener.names=C\n"
    path.write_text("\n".join([*lines, f"node.id=${{dir:{secrets}:id}}", more, "controller.quorum.voters=7@h:9093"]))
    (secrets / "id").write_text("7")
    config = NodeConfig.from_properties(path)
    assert config.node_id == 7
    assert not config.ignored
    assert load_server_file(str(path)).node_id == 7
    (secrets / "id").unlink()
    with pytest.raises(ConfigError) as caught:
        NodeConfig.from_properties(path)
    assert str(caught.value).startswith(f"{path}:5: node.id: there is nothing for")
