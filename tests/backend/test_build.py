"""Building and the cache of kernels: what is compiled when, damage, eviction, other users' directories."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rewrite.backend import build as building
from rewrite.backend.build import build
from rewrite.backend.cache import Cache
from rewrite.backend.kernel_graph import Kernel, Step
from rewrite.backend.pipeline import compile_graph, standard_policy
from rewrite.backend.plan import plan_graph
from rewrite.backend.render import kernel_name, render_kernel
from rewrite.backend.target import detect
from rewrite.errors import UserError

from . import models

OWNERS = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners here")


@pytest.fixture(scope="module")
def kernels() -> tuple[Kernel, ...]:
    return plan_graph(models.chain(), standard_policy(), detect(), 1).kernels


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_a_second_build_compiles_nothing(kernels: tuple[Kernel, ...], cache: Cache) -> None:
    assert build(kernels, detect(), cache).compiled == len(kernels)
    again = build(kernels, detect(), cache)
    assert again.compiled == 0
    assert set(again.addresses) == {kernel_name(k, detect()) for k in kernels}


def test_only_missing_kernels_are_compiled(kernels: tuple[Kernel, ...], cache: Cache) -> None:
    build(kernels, detect(), cache)
    more = plan_graph(models.long_chain(1), standard_policy(), detect(), 1).kernels
    assert build([*kernels, *more], detect(), cache).compiled == len(set(more) - set(kernels))


def test_names_depend_on_everything_that_counts(kernels: tuple[Kernel, ...]) -> None:
    kernel = kernels[0]
    other = Kernel(kernel.template, {**kernel.params, "unused_by_the_template": 1})
    assert kernel_name(kernel, detect()) != kernel_name(other, detect())
    assert kernel_name(kernel, detect()) == kernel_name(Kernel(kernel.template, dict(kernel.params)), detect())
    assert render_kernel(kernel, detect()) == render_kernel(kernel, detect())


@pytest.mark.parametrize("damage", [b"", b"not a library", None])
def test_a_damaged_module_is_made_anew(kernels: tuple[Kernel, ...], cache: Cache, damage: bytes | None) -> None:
    build(kernels, detect(), cache)
    [module] = cache.root.glob("kernels/*/*.so")
    module.write_bytes(module.read_bytes()[:-100] if damage is None else damage)
    with pytest.warns(UserWarning, match="checksum is wrong"):
        assert build(kernels, detect(), cache).compiled == len(kernels)
    assert build(kernels, detect(), cache).compiled == 0


def test_a_damaged_manifest_or_index_is_made_anew(kernels: tuple[Kernel, ...], cache: Cache) -> None:
    build(kernels, detect(), cache)
    [manifest] = cache.root.glob("kernels/*/*.json")
    manifest.write_text("{")
    with pytest.warns(UserWarning, match="manifest is damaged"):
        assert build(kernels, detect(), cache).compiled == len(kernels)
    index = next(cache.root.glob("kernels/*/index/*"))
    index.write_text("../../evil")
    with pytest.warns(UserWarning, match="index is damaged"):
        assert build(kernels, detect(), cache).compiled >= 1


def test_info_and_clear(kernels: tuple[Kernel, ...], cache: Cache) -> None:
    assert cache.info().modules == 0
    build(kernels, detect(), cache)
    info = cache.info()
    assert (info.modules, info.kernels) == (1, len(kernels))
    assert cache.clear() >= info.size
    assert cache.info().modules == 0


def test_the_oldest_modules_go_when_it_is_full(kernels: tuple[Kernel, ...], cache: Cache) -> None:
    build(kernels, detect(), cache)
    [first] = cache.root.glob("kernels/*/*.so")
    os.utime(first, (1, 1))
    cache.limit = first.stat().st_size + 100
    more = plan_graph(models.long_chain(1), standard_policy(), detect(), 1).kernels
    build(more, detect(), cache)
    assert not first.exists()
    assert cache.info().modules == 1


def test_the_root_is_private(kernels: tuple[Kernel, ...], cache: Cache) -> None:
    build(kernels, detect(), cache)
    assert cache.root.stat().st_mode & 0o077 == 0


@OWNERS
def test_another_users_directory_is_refused(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.prepare()
    monkeypatch.setattr(os, "geteuid", lambda: cache.root.stat().st_uid + 1)
    with pytest.raises(UserError, match=r"cannot be trusted: it belongs to another user\nWhat is in it is executed"):
        cache.prepare()


@OWNERS
def test_directories_that_others_may_write_to_are_closed(kernels: tuple[Kernel, ...], cache: Cache) -> None:
    build(kernels, detect(), cache)
    [room] = cache.root.glob("kernels/*")
    inside = [cache.root, room.parent, room, room / "index"]
    for path in inside:
        path.chmod(0o777)
    assert build(kernels, detect(), cache).compiled == 0
    assert {path.stat().st_mode & 0o777 for path in inside} == {0o700}


def _opened(path: Path) -> None:
    path.chmod(0o666)


def _linked(path: Path) -> None:
    elsewhere = path.rename(path.parent.parent.parent.parent / path.name)
    path.symlink_to(elsewhere)


def _given_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, -1)


@OWNERS
@pytest.mark.parametrize("change", [_opened, _linked, _given_away])
@pytest.mark.parametrize("what", ["*.so", "*.json"])
def test_what_others_could_have_written_is_made_anew(
    kernels: tuple[Kernel, ...], cache: Cache, what: str, change: Callable[[Path], None]
) -> None:
    build(kernels, detect(), cache)
    [file] = cache.root.glob(f"kernels/*/{what}")
    change(file)
    reason = {_opened: "others may write to it", _linked: "it is a link", _given_away: "it belongs to another user"}
    with pytest.warns(UserWarning, match=f"unusable .others could have written it: {reason[change]}"):
        assert build(kernels, detect(), cache).compiled == len(kernels)
    assert not file.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600
    assert build(kernels, detect(), cache).compiled == 0


@OWNERS
@pytest.mark.parametrize("change", [_opened, _linked, _given_away])
def test_an_index_that_others_could_have_written_is_not_believed(
    kernels: tuple[Kernel, ...], cache: Cache, change: Callable[[Path], None]
) -> None:
    build(kernels, detect(), cache)
    index = next(cache.root.glob("kernels/*/index/*"))
    change(index)
    assert build(kernels, detect(), cache).compiled == 1
    assert build(kernels, detect(), cache).compiled == 0


def test_a_root_that_cannot_be_made(kernels: tuple[Kernel, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="REWRITE_CACHE_DIR"):
        build(kernels, detect(), Cache(tmp_path / "file" / "cache"))


def test_the_environment_names_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path / "there"))
    assert Cache().root == tmp_path / "there"


def test_sources_are_kept_on_request(tmp_path: Path) -> None:
    compile_graph(models.chain(), threads=1, cache_dir=tmp_path / "cache", keep_source=tmp_path / "source")
    [source] = (tmp_path / "source").glob("*.pyx")
    assert "def table():" in source.read_text()


def test_a_full_disk_is_told(kernels: tuple[Kernel, ...], cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rewrite.backend.cache.write_atomic", full)
    with pytest.raises(UserError, match="No space left on device"):
        build(kernels, detect(), cache)


def test_chunks_are_balanced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "usable_cores", lambda: 2)
    rendered = [building.Rendered(f"k{i}", "", float(1 + i % 4)) for i in range(40)]
    chunks = building._chunks(rendered)
    loads = [sum(k.weight for k in chunk) for chunk in chunks]
    assert len(chunks) == 2
    assert abs(loads[0] - loads[1]) <= 4
    assert sorted(k.name for chunk in chunks for k in chunk) == sorted(k.name for k in rendered)


def test_steps_carry_their_nodes() -> None:
    [step] = [i for i in plan_graph(models.chain(), standard_policy(), detect(), 1).items if isinstance(i, Step)]
    assert set(step.nodes) == {"add", "relu", "sigmoid", "mul"}
    assert np.all([isinstance(n, str) for n in step.nodes])
