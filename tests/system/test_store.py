"""The on-disk store: private, checksummed, bounded, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rewrite.errors import RewriteError
from rewrite.system import ownership
from rewrite.system.store import SHARES, Entry, Namespace, Store, code_stamp, content_key

OWNERS = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no file owners")


@pytest.fixture
def rules(tmp_path: Path) -> Namespace:
    return Store(tmp_path / "cache").namespace("rules")


def test_a_payload_is_read_back(rules: Namespace) -> None:
    assert rules.read("a") is None
    rules.save("a", b"one\ntwo")
    assert rules.read("a") == b"one\ntwo"
    rules.save("a", b"")
    assert rules.read("a") == b""


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: data + b"x", bytes.upper])
def test_a_damaged_payload_counts_as_absent(rules: Namespace, damage: Callable[[bytes], bytes]) -> None:
    rules.save("a", b"payload")
    file = rules.path / "a"
    file.write_bytes(damage(file.read_bytes()))
    assert rules.read("a") is None


@OWNERS
@pytest.mark.parametrize("part", ["a", "."])
def test_what_others_could_have_written_counts_as_absent(rules: Namespace, part: str) -> None:
    rules.save("a", b"payload")
    (rules.path / part).chmod(0o777)
    assert rules.read("a") is None
    rules.save("a", b"payload")
    assert rules.read("a") == b"payload"


def test_an_unusable_root_costs_only_the_entry(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    rules = Store(tmp_path / "file").namespace("rules")
    rules.save("a", b"payload")
    assert rules.read("a") is None
    assert rules.entries() == []


def test_the_entries_used_longest_ago_are_evicted(tmp_path: Path) -> None:
    rules = Store(tmp_path, limit=8 * 360).namespace("rules")  # two entries of 165 bytes
    for name, used in (("a", 1), ("b", 2)):
        rules.save(name, b"x" * 100)
        os.utime(rules.path / name, (used, used))
    assert rules.read("a") is not None  # which makes it the last one used
    rules.save("c", b"x" * 100)
    assert [entry.path.name for entry in rules.entries()] == ["a", "c"]


def write(programs: Namespace, name: str, text: str) -> None:
    with programs.replacing_directory(name) as fresh:
        fresh.mkdir()
        (fresh / "text").write_text(text)


def read(path: Path) -> str:
    text = (path / "text").read_text()
    if text == "?":
        raise RewriteError("text has changed")
    return text


@OWNERS
def test_directories(tmp_path: Path) -> None:
    programs = Store(tmp_path).namespace("programs")
    assert programs.use_directory("a", read) is None
    write(programs, "a", "one")
    write(programs, "a", "two")
    assert programs.use_directory("a", read) == "two"
    assert [path.name for path in programs.path.iterdir()] == ["a"]
    ownership.check_tree(programs.path)
    with pytest.raises(FileNotFoundError), programs.replacing_directory("a") as fresh:
        (fresh / "text").write_text("there is no such directory")
    assert programs.use_directory("a", read) == "two"
    (programs.path / "a" / "text").chmod(0o666)
    with pytest.warns(UserWarning, match="cached program is unusable .others could have written text: others may"):
        assert programs.use_directory("a", read) is None
    assert programs.entries() == []
    write(programs, "a", "?")
    with pytest.warns(UserWarning, match="cached program is unusable .text has changed.; it is rebuilt"):
        assert programs.use_directory("a", read) is None
    assert programs.entries() == []


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no advisory locks")
def test_a_directory_is_not_replaced_while_it_is_read(tmp_path: Path) -> None:
    programs = Store(tmp_path).namespace("programs")
    write(programs, "a", "one")
    code = (
        "import sys\nfrom rewrite.system.store import Store\n"
        "with Store(sys.argv[1]).namespace('programs').replacing_directory('a') as fresh:\n"
        "    fresh.mkdir()\n    (fresh / 'text').write_text('two')\n    print('written', flush=True)"
    )
    children = []

    def slowly(path: Path) -> str:
        child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"written\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)
        return read(path)

    assert programs.use_directory("a", slowly) == "one"
    with children[0] as child:
        assert child.wait(30) == 0
    assert programs.use_directory("a", read) == "two"


def test_info_and_clear(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.clear() == 0
    store.namespace("rules").save("a", b"payload")
    write(store.namespace("programs"), "b", "one")
    found = {info.name: info.entries for info in store.info()}
    assert found == {**dict.fromkeys(SHARES, 0), "rules": 1, "programs": 1}
    (tmp_path / "other").mkdir()
    assert store.clear() == sum(map(len, ("payload", "one"))) + 65
    assert not any(info.entries for info in store.info())
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_all_entries_are_looked_at_only_when_the_bound_may_be_exceeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    entries = Namespace.entries

    def counted(namespace: Namespace) -> list[Entry]:
        nonlocal looks
        looks += 1
        return entries(namespace)

    monkeypatch.setattr(Namespace, "entries", counted)
    rules = Store(tmp_path, limit=8 * 165 * 32).namespace("rules")  # 32 entries
    (rules.prepare() / "another process").write_bytes(b"x" * 165)  # before the first one
    for number in range(31):
        rules.save(str(number), b"x" * 100)
    assert looks == 1
    (rules.path / "later").write_bytes(b"x" * 165)  # not known here
    for number in range(31, 131):
        rules.save(str(number), b"x" * 100)
    assert looks < 60  # of 100
    assert 29 * 165 < rules.info().size <= rules.limit
    assert not (rules.path / "another process").exists()
    assert not (rules.path / "later").exists()


def test_the_environment_sets_root_and_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path / "there"))
    monkeypatch.setenv("REWRITE_CACHE_LIMIT_MB", "3")
    assert Store().root == tmp_path / "there"
    assert [Store().namespace(name).limit for name in ("kernels", "programs")] == [3 << 20, 12 << 20]


def test_keys_and_stamps() -> None:
    keys = {content_key(*parts) for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""))}
    assert len(keys) == 4
    assert content_key("a", b"b") == content_key(b"a", "b")
    assert len({code_stamp(room) for room in ("", "grammar", "system")} | {code_stamp("grammar", "system")}) == 4
