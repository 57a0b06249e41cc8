"""Records of tuned kernels: which are used, and what damage, other machines and several writers do."""

from __future__ import annotations

import json
import os
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from rewrite.backend.ir.schedule import DEFAULT, Knob, Space, Tunable
from rewrite.backend.ir.target import Target, make_target
from rewrite.backend.schedules.records import Machine, Record, RecordFile, is_current, template_version
from rewrite.errors import UserError
from rewrite.system.store import Store

SPACE = Space(("gemm",), (Knob("near", (0, 8)),))
KERNEL = Tunable("key", "gemm 1x2x3", SPACE, None)
TARGET = make_target("portable")


def record(point: dict[str, int | str] | None = None, target: Target = TARGET, key: str = "key") -> Record:
    return Record(
        machine=Machine.of(target),
        threads=1,
        kernel="gemm 1x2x3",
        key=key,
        templates=template_version(SPACE.templates),
        point={"near": 8} if point is None else point,
        default_us=10.0,
        tuned_us=8.0,
        noise=0.01,
        difference=0.0,
        tried=(({"near": 8}, 0.8), ({"near": 0}, "crash")),
    )


@pytest.fixture
def file(tmp_path: Path) -> RecordFile:
    return RecordFile(Store(tmp_path / "cache"))


def point_of(file: RecordFile, target: Target = TARGET, kernel: Tunable = KERNEL) -> object:
    schedules = file.read().schedules(target)
    return DEFAULT if schedules is None else schedules.point(kernel)


def test_a_record_comes_back_as_it_was(file: RecordFile) -> None:
    file.append([record()])
    assert list(file.read().latest.values()) == [record()]
    assert point_of(file) == {"near": 8}
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_the_last_record_of_a_kernel_holds_and_measurements_add_up(file: RecordFile) -> None:
    file.append([record()])
    file.append([replace(record({"near": 0}), tried=(({}, 1.0),))])
    [found] = file.read().latest.values()
    assert found.point == {"near": 0}
    assert len(found.tried) == 3


def test_features_of_measurements_come_back_in_one_table(file: RecordFile) -> None:
    described = replace(record(), features=({"m": 3.0, "tiles.mr": 4.0}, {"m": 3.0, "panel": 0.25}))
    file.append([described])
    assert list(file.read().latest.values()) == [described]
    line = json.loads(file.path.read_text())
    assert line["features"] == ["m", "panel", "tiles.mr"]
    assert line["values"] == [[3.0, None, 4.0], [3.0, 0.25, None]]
    file.append([record()])  # by a version that knew no features
    [found] = file.read().latest.values()
    assert found.features == (*described.features, {}, {})
    assert len(found.tried) == 4


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ({"features": ["m"], "values": [[1.0]]}, "not as many features as measurements"),
        ({"features": ["m"], "values": [[1.0], [1.0, 2.0]]}, "features are not a table"),
        ({"features": ["m"], "values": [["x"], [1.0]]}, "a feature is not a number"),
        ({"features": [3], "values": []}, "a feature is not a text"),
    ],
)
def test_damaged_features_are_reported(file: RecordFile, damage: dict[str, object], problem: str) -> None:
    file.append([record()])
    file.path.write_text(json.dumps({**json.loads(file.path.read_text()), **damage}) + "\n")
    with pytest.warns(UserWarning, match=problem):
        assert point_of(file) == DEFAULT


def test_the_digest_changes_with_the_records(file: RecordFile) -> None:
    digests = [file.read().digest]
    for near in (0, 8):
        file.append([record({"near": near})])
        digests.append(file.read().digest)
    assert digests[0] == ""
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    "other", [replace(TARGET, l2=TARGET.l2 * 2), replace(TARGET, features=("avx_vnni",)), replace(TARGET, isa="neon")]
)
def test_a_record_of_another_machine_is_not_used(file: RecordFile, other: Target) -> None:
    file.append([record(target=other)])
    assert point_of(file) == DEFAULT
    assert point_of(file, other) == {"near": 8}


def test_a_record_for_other_templates_is_not_used(file: RecordFile) -> None:
    file.append([replace(record(), templates="gemm@0000000000000000")])
    assert point_of(file) == DEFAULT
    assert not is_current(replace(record(), templates="gemm@0000000000000000"))
    assert is_current(record())


def test_a_point_outside_of_the_space_is_not_used(file: RecordFile) -> None:
    file.append([record({"near": 5})])
    with pytest.warns(UserWarning, match=r"gemm 1x2x3 is not used: near=5"):
        assert point_of(file) == DEFAULT


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(record().line()), **fields}) + "\n"


@pytest.mark.parametrize(
    "line",
    [
        "not JSON\n",
        "[]\n",
        "\x00\xff\n",
        "[" * 100_000 + "\n",
        record().line()[:100] + "\n",
        changed(point=[1]),
        changed(point={"near": None}),
        changed(point={"near": 1.5}),
        changed(tuned_us="fast"),
        changed(tuned_us=-1),
        changed(key=""),
        changed(tried=[[{}]]),
        changed(tried=7),
        changed(machine={"cpu": "x", "isa": "y", "caches": [1]}),
    ],
)
def test_damaged_lines_are_skipped_with_a_message(file: RecordFile, line: str) -> None:
    file.append([record()])
    with open(file.path, "a", encoding="latin-1") as opened:
        opened.write(line)
    file.append([record(key="other")])
    with pytest.warns(UserWarning, match=r"line 2: .*--prune"):
        assert [r.key for r in file.read().latest.values()] == ["key", "other"]
    assert file.prune(is_current) == (2, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(file.read().latest) == 2


def test_another_version_of_the_format_is_left_alone(file: RecordFile) -> None:
    file.append([record()])
    file.path.write_text(changed(format=99) + record(key="other").line())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [r.key for r in file.read().latest.values()] == ["other"]


def test_a_line_of_a_writer_that_was_killed_costs_only_itself(file: RecordFile) -> None:
    file.append([record()])
    with open(file.path, "a") as opened:
        opened.write(record(key="torn").line()[:60])
    file.append([record(key="after")])
    with pytest.warns(UserWarning, match="line 2"):
        assert [r.key for r in file.read().latest.values()] == ["key", "after"]


def test_several_writers_lose_nothing(file: RecordFile) -> None:
    def write(writer: int) -> None:
        mine = RecordFile(Store(file.path.parents[1]))
        for number in range(20):
            mine.append([record(key=f"{writer} {number}")])
            if writer == 0 and number % 5 == 0:
                mine.prune(lambda _: True)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(file.read().latest) == 80


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners and modes")
def test_records_that_others_could_have_written_are_not_used(file: RecordFile) -> None:
    file.append([record()])
    file.path.chmod(0o666)
    with pytest.warns(UserWarning, match="others may write to it"):
        assert file.read().latest == {}


def test_pruning_keeps_the_last_record_of_each_kernel(file: RecordFile) -> None:
    old = replace(record(key="old"), templates="gemm@0000000000000000")
    file.append([record({"near": 0}), record(), old])
    assert file.prune(is_current) == (1, 2)
    assert [r.point for r in file.read().latest.values()] == [{"near": 8}]
    assert len(file.path.read_text().splitlines()) == 1


def test_imported_records_are_added_once(file: RecordFile) -> None:
    text = record().line() + record(key="other").line()
    assert file.add_new(text, "there.jsonl") == 2
    assert file.add_new(text, "there.jsonl") == 0
    assert len(file.read().latest) == 2


@pytest.mark.parametrize("line", ["{}", "nonsense", changed(format=2), changed(key=5)])
def test_an_import_with_a_wrong_line_adds_nothing(file: RecordFile, line: str) -> None:
    with pytest.raises(UserError, match=r"line 2: .*") as raised:
        file.add_new(f"{record().line()}{line}\n", "there.jsonl")
    assert raised.value.where == "there.jsonl"
    assert not file.path.exists()


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match="cache directory"):
        RecordFile(Store(tmp_path / "cache")).append([record()])
