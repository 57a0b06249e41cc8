from __future__ import annotations

import dataclasses
import json
import os
import stat
from pathlib import Path

import pytest
from rewrite.engine.cost import machine, microbench
from rewrite.engine.cost.constants import DEFAULTS, NAMES
from rewrite.engine.cost.machine import Machine

HERE = machine.isa_name()


def test_stored_and_loaded(tmp_path: Path) -> None:
    constants = dataclasses.replace(DEFAULTS, product=0.9)
    profile = Machine(cpu="test", isa=HERE, flops=5e10, constants=constants, family="A-1-2", source="calibrated")
    path = machine.store(profile, tmp_path / "deep" / "cpu.json")
    assert machine.load(path) == profile
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
    assert [p.name for p in path.parent.iterdir()] == ["cpu.json"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format": 2}', "\x00\xff", '{"format": 99, "cpu": "x"}', '{"format": 1, "cpu": "x"}'],
)
def test_a_damaged_profile_is_ignored_with_a_warning(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cpu.json"
    path.write_text(text, encoding="latin-1")
    with pytest.warns(UserWarning, match=r"ignoring the machine profile .*cpu\.json .*calibrate"):
        assert machine.load(path) == machine.default()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flops", 0),
        ("flops", True),
        ("flops", "fast"),
        ("bandwidths", [1e9]),
        ("sizes", [1, 2, 3]),
        ("isa", "z80"),
        ("isa", ["avx2"]),
        ("family", None),
        ("constants", {}),
        ("constants", dict.fromkeys(NAMES, 1e9)),
        ("constants", dict.fromkeys(NAMES, float("nan"))),
        ("constants", dict.fromkeys([*NAMES, "more"], 1.0)),
    ],
)
def test_impossible_figures_are_refused(tmp_path: Path, field: str, value: object) -> None:
    path = machine.store(Machine(isa=HERE), tmp_path / "cpu.json")
    data = json.loads(path.read_text())
    assert machine.load(path).isa == HERE
    path.write_text(json.dumps({**data, field: value}))
    with pytest.warns(UserWarning, match="ignoring the machine profile"):
        machine.load(path)


def test_a_profile_of_another_vector_extension_is_refused(tmp_path: Path) -> None:
    path = machine.store(Machine(isa="neon" if HERE != "neon" else "avx2"), tmp_path / "cpu.json")
    with pytest.warns(UserWarning, match="kernels here use"):
        assert machine.load(path) == machine.default()


def test_a_profile_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = machine.store(Machine(isa=HERE), tmp_path / "cpu.json")
    path.chmod(0o666)
    with pytest.warns(UserWarning, match="others may write to it"):
        machine.load(path)


def test_without_a_profile_the_shipped_one_is_used(tmp_path: Path) -> None:
    found = machine.load(tmp_path / "none.json")
    assert found.source in ("default", "shipped")
    assert found.flops > 1e9
    assert found.bandwidth(1000) > found.bandwidth(1 << 40)


def test_a_shipped_profile_is_that_of_the_model_or_else_of_the_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = [Machine(isa=HERE, flops=n * 1e9, family=f"Maker-{n}-{n}", source="shipped") for n in (3, 4)]
    monkeypatch.setattr(machine, "_shipped", lambda: [Machine(isa="none", family="Maker-4-4"), *profiles])
    found = {}
    for family in ("Maker-4-4", "Maker-9-9", "Other-4-4", ""):
        monkeypatch.setattr(machine, "family", lambda family=family: family)
        found[family] = machine.default().flops / 1e9
    typical = machine._DEFAULTS[HERE].flops / 1e9
    assert found == {"Maker-4-4": 4, "Maker-9-9": 3, "Other-4-4": typical, "": typical}


def test_each_extension_has_its_own_file(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = machine.profile_path()
    monkeypatch.setenv("REWRITE_MAX_ISA", "portable")
    assert machine.profile_path() != whole


def test_shipped_profiles_are_valid() -> None:
    for found in machine._shipped():
        assert found.source == "shipped"
        assert found.family.count("-") == 2
        assert found.rounded() == found


@pytest.mark.parametrize("with_compiler", [True, False])
def test_calibration(with_compiler: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not with_compiler:
        monkeypatch.setattr(microbench, "c_compilers", list)
    found = microbench.calibrate(seconds=0.5)
    assert found.source == "calibrated"
    assert found.flops > 1e9
    assert list(found.bandwidths) == sorted(found.bandwidths, reverse=True)
    assert machine.load(machine.store(found, tmp_path / "cpu.json")) == found


def test_a_compiler_that_fails_leaves_the_shipped_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microbench, "c_compilers", lambda: [["/bin/false"]])
    assert microbench.calibrate(seconds=0.2).source == "calibrated"


@pytest.mark.parametrize(
    ("features", "intel", "bf16", "vectors"),
    [
        ({"avx512bw"}, True, 0.8, 0.8),
        ({"avx512bw", "avx512_bf16"}, True, 1.0, 1.0),
        ({"avx512bw", "avx512_bf16"}, False, 2.0, 2.0),
        ({"avx512bw", "avx512_bf16", "amx_bf16"}, True, 8.0, 1.0),
        ({"avx2"}, True, 0.8, 0.8),
    ],
)
def test_rates_of_bf16(
    features: set[str], intel: bool, bf16: float, vectors: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors of pairs are no faster than floats on Intel's CPUs: without tiles nothing is lowered there."""
    monkeypatch.setattr(machine.hardware, "cpu_features", lambda: frozenset(features))
    monkeypatch.setattr(machine.hardware, "is_intel", lambda: intel)
    found = machine.rates.__wrapped__()
    assert (found["bf16"], found["bf16 vectors"]) == (bf16, vectors)
