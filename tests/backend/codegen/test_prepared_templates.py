"""Prepared templates: used where they fit, and otherwise translated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jinja2
import pytest
from rewrite.backend.codegen import prepared_templates, render
from rewrite.backend.codegen.prepared_templates import PreparedTemplates, prepare


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the templates that were translated."""
    names: list[str] = []
    compile_template = jinja2.Environment.compile

    def noted(self: jinja2.Environment, source: str, name: str, *rest: object) -> object:
        names.append(name)
        return compile_template(self, source, name, *rest)  # type: ignore[call-overload]

    monkeypatch.setattr(jinja2.Environment, "compile", noted)
    return names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.j2").write_text("a {{ x }}")
    (tmp_path / "b.j2").write_text("{% include 'a.j2' %} b")
    prepare(environment(tmp_path), tmp_path / "prepared")
    return tmp_path


def environment(folder: Path) -> Callable[[PreparedTemplates], jinja2.Environment]:
    return lambda cache: jinja2.Environment(loader=jinja2.FileSystemLoader(folder), bytecode_cache=cache)


def rendered(folder: Path) -> str:
    return environment(folder)(PreparedTemplates(folder / "prepared")).get_template("b.j2").render(x=1)


def test_prepared_templates_are_not_translated(folder: Path, translated: list[str], tmp_path: Path) -> None:
    translated.clear()
    assert rendered(folder) == "a 1 b"
    assert rendered(folder.rename(tmp_path.parent / "elsewhere")) == "a 1 b"
    assert translated == []


@pytest.mark.parametrize("change", ["text", "jinja", "python", "damage", "missing"])
def test_templates_that_do_not_fit_are_translated(
    folder: Path, translated: list[str], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "prepared"
    if change == "text":
        (folder / "a.j2").write_text("A {{ x }}")
    elif change == "jinja":
        monkeypatch.setattr(prepared_templates, "version", lambda package: "3.0")
    elif change == "python":
        monkeypatch.setattr(prepared_templates.importlib.util, "MAGIC_NUMBER", b"0")
    elif change == "damage":
        file.write_bytes(file.read_bytes()[:-10])
    else:
        file.unlink()
    translated.clear()
    assert rendered(folder) == ("A 1 b" if change == "text" else "a 1 b")
    assert translated == (["a.j2"] if change == "text" else ["b.j2", "a.j2"])


def test_all_templates_of_kernels_are_prepared(tmp_path: Path, translated: list[str]) -> None:
    render.prepare_templates(tmp_path / "prepared")
    names = {name for name in render.TEMPLATES if name.endswith(".j2")}
    assert set(translated) == names
    translated.clear()
    found = render._environment_with(PreparedTemplates(tmp_path / "prepared"))
    for name in names:
        found.get_template(name)
    assert translated == []
