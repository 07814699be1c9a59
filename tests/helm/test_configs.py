"""The chart's config maps are read by the programs' own classes: a wrong key or value fails here, not in a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.programs import program
from services.common.config import ConfigError, load
from tests.helm.chart import CI, config_files, render

COMPONENTS = ("gateway", "tokenizer", "detokenizer", "worker")


def read(name: str, content: str, folder: Path) -> Any:
    file = folder / f"{name}.yaml"
    file.write_text(content)
    config, _ = load(program(name).config(), ["--config", str(file)], prog=name)
    return config


@pytest.mark.parametrize("values", CI)
def test_every_rendered_config_is_read_by_its_program(values: str, tmp_path: Path) -> None:
    manifests = render(values)
    files = config_files(manifests)
    assert {component.partition("-")[0] for component in files} == set(COMPONENTS)
    for name, content in files.values():
        config = read(name, content, tmp_path)
        for key, value in yaml.safe_load(content).items():
            held = getattr(config, key)
            assert held == value or held == tuple(value if isinstance(value, list) else [value]), (name, key)


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_wrong_key_is_named(component: str, tmp_path: Path) -> None:
    manifests = render("default-values.yaml", f"{component}.config.max_runing_requests=1")
    files = {name.partition("-")[0]: found for name, found in config_files(manifests).items()}
    with pytest.raises(ConfigError, match="max_runing_requests"):
        read(*files[component], tmp_path)


def test_a_key_of_yours_wins_over_the_charts(tmp_path: Path) -> None:
    files = config_files(render("default-values.yaml", "tokenizer.config.drain_timeout=7", 'tokenizer.config.log_format="text"'))
    config = read(*files["tokenizer"], tmp_path)
    assert (config.drain_timeout, config.log_format) == (7, "text")
