from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from rewrite.engine.cost import machine, microbench
from rewrite.engine.cost.kernel_constants import NAMES, KernelConstants
from rewrite.engine.cost.machine import Machine


def test_stored_and_loaded(tmp_path: Path) -> None:
    constants = KernelConstants(product=1.25)
    profile = Machine(cpu="test", isa="avx2", flops=5e10, constants=constants, source="calibrated")
    path = machine.store(profile, tmp_path / "deep" / "cpu.json")
    assert machine.load(path) == profile
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
    assert [p.name for p in path.parent.iterdir()] == ["cpu.json"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format": 1}', "\x00\xff", '{"format": 99, "cpu": "x"}'],
)
def test_a_damaged_profile_is_ignored_with_a_warning(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cpu.json"
    path.write_text(text, encoding="latin-1")
    with pytest.warns(UserWarning, match=r"ignoring the machine profile .*cpu\.json .*calibrate"):
        assert machine.load(path) == machine.default()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flops", 0), ("flops", True), ("flops", "fast"), ("bandwidths", [1e9]), ("sizes", [1, 2, 3]), ("isa", "z80"),
        ("constants", None), ("constants", {"product": 1.0}), ("constants", dict.fromkeys(NAMES, 1e9)),
        ("constants", dict.fromkeys(NAMES, "1")), ("constants", {**dict.fromkeys(NAMES, 1.0), "warp": 1.0}),
    ],
)  # fmt: skip
def test_impossible_figures_are_refused(tmp_path: Path, field: str, value: object) -> None:
    path = machine.store(Machine(isa="avx2"), tmp_path / "cpu.json")
    data = json.loads(path.read_text())
    assert machine.load(path).isa == "avx2"
    path.write_text(json.dumps({**data, field: value}))
    with pytest.warns(UserWarning, match="ignoring the machine profile"):
        machine.load(path)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX modes")
def test_a_profile_that_others_could_have_written_is_not_used(tmp_path: Path) -> None:
    path = machine.store(Machine(isa="avx2"), tmp_path / "own" / "cpu.json")
    path.chmod(0o666)
    with pytest.warns(UserWarning, match="others may write to it"):
        assert machine.load(path) == machine.default()


def test_the_digest_tells_profiles_apart() -> None:
    one, other = (Machine(constants=KernelConstants(product=p)) for p in (1.0, 1.25))
    assert one.digest() == Machine(constants=KernelConstants(product=1.0)).digest()
    assert one.digest() != other.digest()


def test_bytes_take_longer_the_further_away_they_are() -> None:
    found = Machine(sizes=(32 << 10, 1 << 20, 16 << 20))
    times = [found.seconds_per_byte(2.0**exponent) for exponent in range(8, 30)]
    assert times == sorted(times)
    assert times[0] == pytest.approx(1 / found.bandwidths[0])
    assert times[-1] == pytest.approx(1 / found.bandwidths[3])
    assert found.weight_seconds(1000) > 2 * found.seconds_per_byte(1000)


def test_kernels_for_another_extension_have_none_of_this_cpus_other_features() -> None:
    assert machine.rates("avx2")["bf16"] == 0.8
    assert machine.rates("portable")["int8"] == 0.4
    assert machine.default("avx2").isa == "avx2"


def test_without_a_profile_the_shipped_one_is_used(tmp_path: Path) -> None:
    found = machine.load(tmp_path / "none.json")
    assert found.source == "default"
    assert found.flops > 1e9
    assert found.bandwidth(1000) > found.bandwidth(1 << 40)


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


@pytest.mark.parametrize(
    ("features", "rate", "filtered"),
    [({"avx2"}, 1.6, 1.8), ({"avx2", "avx_vnni"}, 4.0, 0.0), ({"avx2", "avx512bw"}, 1.2, 0.0), (set[str](), 0.4, 0.0)],
)
def test_rates_of_bytes(features: set[str], rate: float, filtered: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an instruction for four bytes, only kernels for AVX2 unpack them before they multiply, or filter them."""
    monkeypatch.setattr(machine.hardware, "cpu_features", lambda: frozenset(features))
    found = machine.rates.__wrapped__()
    assert (found["int8 vectors"], found["int8"], found["int8 winograd"]) == (rate, rate, filtered)
