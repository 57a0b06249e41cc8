from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from rewrite.backend.calibration import calibrate, suite
from rewrite.backend.calibration.suite import Network
from rewrite.cli.app import main
from rewrite.engine.cost import machine, microbench
from rewrite.engine.cost.constants import DEFAULTS
from rewrite.engine.cost.machine import Machine


def tiny(net: Network) -> None:
    net.output(net.add("Gelu", [net.input(64, 64)]))


@pytest.fixture(autouse=True)
def own_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A profile of this test's own, limits that are known, and one network."""
    monkeypatch.setattr(machine, "profile_path", lambda: tmp_path / "machine" / "cpu.json")
    limits = dataclasses.replace(Machine(isa=machine.isa_name()), source="calibrated")
    monkeypatch.setattr(microbench, "calibrate", lambda _: limits)
    monkeypatch.setattr(suite, "NETWORKS", {"tiny": tiny})


def run(*words: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["calibrate", *words])
    assert not end.value.code


def test_what_is_measured_is_shown_stored_and_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    run("--show")
    assert "measured on this machine" not in capsys.readouterr().out
    run("--seconds", "1")
    shown = capsys.readouterr().out
    assert "1 kernel: geometric-mean error" in shown
    assert str(machine.profile_path()) in shown
    assert machine.load().constants != DEFAULTS
    run("--show")
    assert "measured on this machine" in capsys.readouterr().out


def test_limits_alone_keep_the_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = machine.load().constants
    monkeypatch.setattr(calibrate, "calibrate", None)
    run("--limits")
    assert machine.load().source == "calibrated"
    assert machine.load().constants == usual
