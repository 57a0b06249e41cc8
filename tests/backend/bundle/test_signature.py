"""Signed bundles: loaded if a trusted key signed them and they are as they were then, else refused."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rewrite
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from rewrite.backend.bundle import load_bundle, signature
from rewrite.backend.bundle.manifest import sealed
from rewrite.backend.compile_graph import compile_graph
from rewrite.errors import UserError
from rewrite.system.file_contents import size_and_crc
from rewrite.tests.cli.command import rewrite as command
from rewrite.tests.docs.blocks import ROOT, blocks

from .. import models

PEM, SSH = serialization.Encoding.PEM, serialization.Encoding.OpenSSH
PLAIN = serialization.NoEncryption()


def pair(folder: Path, name: str, *, ssh: bool = True) -> tuple[Path, Path]:
    """Write a pair of keys, private and public, as OpenSSH or OpenSSL do."""
    key = ed25519.Ed25519PrivateKey.generate()
    kind = serialization.PrivateFormat.OpenSSH if ssh else serialization.PrivateFormat.PKCS8
    public_kind = serialization.PublicFormat.OpenSSH if ssh else serialization.PublicFormat.SubjectPublicKeyInfo
    private, public = folder / name, folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(PEM, kind, PLAIN))
    public.write_bytes(key.public_key().public_bytes(SSH if ssh else PEM, public_kind))
    return private, public


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_graph(models.chain(), threads=1).save(tmp_path_factory.mktemp("bundles") / "m.rewrite")


@pytest.fixture
def bundle(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "m.rewrite"))


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return pair(tmp_path, "maker")


X = np.ones((2, 8), np.float32)


@pytest.mark.parametrize("ssh", [True, False])
def test_a_signed_bundle_is_loaded_with_its_key_only(bundle: Path, tmp_path: Path, *, ssh: bool) -> None:
    private, public = pair(tmp_path, "a", ssh=ssh)
    _, other = pair(tmp_path, "b")
    with pytest.raises(UserError, match="is not signed"):
        rewrite.load(bundle, trusted=[public])
    assert rewrite.sign(bundle, private) == sum(p.is_file() for p in bundle.rglob("*")) - 1
    np.testing.assert_allclose(
        rewrite.load(bundle, trusted=[other, public]).run({"x": X})["y"], models.chain_reference(X), rtol=1e-6
    )
    with pytest.raises(UserError, match="a key that is not trusted"):
        rewrite.load(bundle, trusted=[other])
    with pytest.raises(UserError, match="no key is trusted"):
        rewrite.load(bundle, trusted=[])


def test_what_has_changed_since_is_refused_before_it_is_loaded(
    bundle: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest's own checksums are renewed: only the signature can tell."""
    private, public = keys
    rewrite.sign(bundle, private)
    monkeypatch.setattr(load_bundle, "load_module", lambda *_: pytest.fail("code was loaded"))
    kernels = next(bundle.glob("kernels/*.so"))
    for path, name in ((kernels, f"kernels/{kernels.name}"), (bundle / "weights.bin", "weights.bin")):
        whole, text = path.read_bytes(), (bundle / "manifest.json").read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(UserError, match="has changed"):
            rewrite.load(bundle, trusted=[public])
        manifest = json.loads(text)
        manifest["files"][name] = list(size_and_crc(path))
        (bundle / "manifest.json").write_bytes(sealed(manifest))
        with pytest.raises(UserError, match=r"not what was signed: .* has changed since it was signed"):
            rewrite.load(bundle, trusted=[public])
        path.write_bytes(whole)
        (bundle / "manifest.json").write_bytes(text)


@pytest.mark.parametrize("name", ["plan.bin", "lib/librewrite.so"])
def test_what_only_c_reads_is_compared_as_well(bundle: Path, keys: tuple[Path, Path], name: str) -> None:
    """The library for C checks no signature: it is checked from Python, where the bundle is installed."""
    (bundle / "lib").mkdir()
    (bundle / name).write_bytes(b"signed")
    signature.sign(bundle, keys[0])
    load_bundle.load(bundle, trusted=[keys[1]])
    (bundle / name).write_bytes(b"another")
    with pytest.raises(UserError, match=f"{name} has changed since it was signed"):
        load_bundle.load(bundle, trusted=[keys[1]])
    (bundle / name).unlink()
    with pytest.raises(UserError, match=f"{name} cannot be read"):
        load_bundle.load(bundle, trusted=[keys[1]])


def test_a_file_that_is_not_signed_is_refused(bundle: Path, keys: tuple[Path, Path]) -> None:
    """A signature of a part of the files is one, but not of all that is loaded."""
    private, public = keys
    kernels = next(bundle.glob("kernels/*.so"))
    away = kernels.rename(bundle.parent / kernels.name)
    signature.sign(bundle, private)
    away.rename(kernels)
    with pytest.raises(UserError, match=f"kernels/{kernels.name} is not signed"):
        rewrite.load(bundle, trusted=[public])


def other_digest(data: dict[str, Any]) -> None:
    data["files"]["manifest.json"] = "0" * 64


CHANGES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (other_digest, "not one of the key"),
    (lambda data: data.update(signature=base64.b64encode(bytes(64)).decode()), "not one of the key"),
    (lambda data: data.update(signature=""), "not one of the key"),
    (lambda data: data.update(signature="?"), "is damaged"),
    (lambda data: data.update(files=[]), "is damaged"),
    (lambda data: data.pop("key"), "is damaged"),
    (lambda data: data.update(key=""), "not trusted"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_a_signature_that_was_changed_is_refused(
    change: Callable[[dict[str, Any]], Any], message: str, bundle: Path, keys: tuple[Path, Path]
) -> None:
    private, public = keys
    rewrite.sign(bundle, private)
    path = bundle / signature.FILE
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=message):
        rewrite.load(bundle, trusted=[public])


def test_files_that_are_no_keys_are_named(bundle: Path, tmp_path: Path, keys: tuple[Path, Path]) -> None:
    private, public = keys
    curve = ec.generate_private_key(ec.SECP256R1())
    other = tmp_path / "curve"
    other.write_bytes(curve.private_bytes(PEM, serialization.PrivateFormat.PKCS8, PLAIN))
    locked = tmp_path / "locked"
    locked.write_bytes(
        ed25519.Ed25519PrivateKey.generate().private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
        )
    )
    for key, message in (
        (other, "not a private Ed25519 key"),
        (public, "not a private Ed25519 key"),
        (locked, "has a passphrase"),
        (tmp_path / "none", "cannot be read"),
    ):
        with pytest.raises(UserError, match=message):
            rewrite.sign(bundle, key)
        assert not (bundle / signature.FILE).exists()
    with pytest.raises(UserError, match="not a public Ed25519 key"):
        rewrite.load(bundle, trusted=[private])
    with pytest.raises(UserError, match="no such bundle"):
        rewrite.sign(tmp_path / "nowhere", private)


def test_keys_of_the_environment_hold_for_bundles_but_not_for_the_cache(
    bundle: Path, tmp_path: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = keys
    _, other = pair(tmp_path, "other")
    monkeypatch.setenv(signature.TRUSTED, f"{other}{os.pathsep}{public}")
    with pytest.raises(UserError, match="is not signed"):
        rewrite.load(bundle)
    with pytest.raises(UserError, match="is not signed"):
        rewrite.InferenceSession(bundle)
    load_bundle.load(bundle)  # as programs of the cache are
    rewrite.sign(bundle, private)
    assert rewrite.load(bundle).run({"x": X}).keys() == {"y"}
    assert rewrite.InferenceSession(bundle).run(None, {"x": X})[0].shape == (2, 8)


def test_the_command_line_signs_and_checks(bundle: Path, tmp_path: Path, keys: tuple[Path, Path]) -> None:
    private, public = keys
    np.save(tmp_path / "x.npy", X)
    run = ("run", "m.rewrite", "--input", "x=x.npy", "--trusted", public.name)
    refused = command(*run, cwd=tmp_path)
    assert refused.returncode == 2
    assert "the bundle is not signed" in refused.stderr
    assert "rewrite sign BUNDLE --key KEY" in refused.stderr
    done = command("sign", "m.rewrite", "--key", private.name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "files signed" in done.stdout
    assert command(*run, cwd=tmp_path).returncode == 0
    short = ("bench", "m.rewrite", "--seconds", "0.1", "--shape", "N=2", "--trusted")
    assert command(*short, public.name, cwd=tmp_path).returncode == 0
    (tmp_path / "o.pub").write_bytes(pair(tmp_path, "o")[1].read_bytes())
    assert command(*short, "o.pub", cwd=tmp_path).returncode == 2


def test_an_archive_for_c_is_unpacked_if_its_signature_is_right(bundle: Path, tmp_path: Path) -> None:
    """The commands of docs/deploy.md."""
    if not shutil.which("ssh-keygen"):
        pytest.skip("OpenSSH is not installed")
    steps = {block.title: block.text for block in blocks(ROOT / "docs" / "deploy.md") if block.language == "sh"}
    maker, target = tmp_path / "maker", tmp_path / "target"

    def sh(text: str, folder: Path) -> int:
        return subprocess.run(["sh", "-c", text], cwd=folder, capture_output=True, timeout=60).returncode

    def keys(folder: Path) -> None:
        folder.mkdir()
        assert sh("ssh-keygen -q -t ed25519 -N '' -f deploy_key", folder) == 0

    keys(maker)
    bundle.rename(maker / "model.rewrite")
    assert sh(steps["sign"], maker) == 0
    target.mkdir()
    for name in ("deploy_key.pub", "model.tar", "model.tar.sig"):
        shutil.copy(maker / name, target)
    assert sh(steps["trust"], target) == 0
    archive = (target / "model.tar").read_bytes()
    for changed in (archive[:-1], archive[:600] + bytes([archive[600] ^ 1]) + archive[601:]):
        (target / "model.tar").write_bytes(changed)
        assert sh(steps["unpack"], target) != 0
        assert not (target / "model.rewrite").exists()
    (target / "model.tar").write_bytes(archive)
    keys(tmp_path / "stranger")
    shutil.copy(maker / "model.tar", tmp_path / "stranger")
    assert sh(steps["sign"].splitlines()[1], tmp_path / "stranger") == 0
    shutil.copy(tmp_path / "stranger" / "model.tar.sig", target)
    assert sh(steps["unpack"], target) != 0
    assert not (target / "model.rewrite").exists()
    shutil.copy(maker / "model.tar.sig", target)
    assert sh(steps["unpack"], target) == 0
    np.testing.assert_allclose(
        rewrite.load(target / "model.rewrite").run({"x": X})["y"], models.chain_reference(X), rtol=1e-6
    )
