"""Signatures of bundles: who made the machine code in one.

`sign` writes SHA-256 of every file in a bundle to `signature.json`, with an Ed25519 signature (RFC 8032) of these, and
the public key. `check` admits only a bundle that one of some keys has signed, and that has not changed since. It comes
before anything of the bundle is loaded. It does not help where others can write to the directory in the meantime.

Keys are files as OpenSSH (`ssh-keygen -t ed25519`) or OpenSSL (`openssl genpkey -algorithm ed25519`) write them. The
algorithm is that of the library `cryptography` (extra `sign`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UserError, naming_packages
from ...system import scoped

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FILE = "signature.json"
TRUSTED = "REWRITE_TRUSTED_KEYS"
"""Environment variable with files of public keys, separated as in `$PATH`."""
_CONTEXT = b"rewrite bundle 1\n"
"""What signatures of bundles begin with, so that one of something else is none of a bundle."""
_MOST_BYTES = 1 << 22
"""Maximum size of a signature file."""
_HOW = "ssh-keygen -t ed25519 -f KEY makes a pair: KEY and KEY.pub."


def trusted_keys() -> tuple[Path, ...]:
    """Return the files of public keys that the environment names; none if it names none."""
    return tuple(Path(name) for name in os.environ.get(TRUSTED, "").split(os.pathsep) if name)


def sign(bundle: Path, key: Path) -> int:
    """Sign a bundle with a private key; return the number of its files. Replaces an older signature.

    Raises UserError for a file that is no such key, or if the signature cannot be written; NotInstalled without the
    library."""
    private = _private_key(key)
    found = sorted(p for p in bundle.rglob("*") if p.is_file() and p != bundle / FILE)
    try:
        files = {p.relative_to(bundle).as_posix(): _digest(p) for p in found}
        data = {
            "files": files,
            "key": base64.b64encode(private.public_key().public_bytes_raw()).decode(),
            "signature": base64.b64encode(private.sign(_message(files))).decode(),
        }
        with scoped.replacing(bundle / FILE) as file:
            file.write(json.dumps(data, indent=1).encode() + b"\n")
    except OSError as error:
        raise UserError(f"the bundle cannot be signed: {error.strerror or error}", where=str(bundle)) from error
    return len(files)


def check(bundle: Path, keys: Iterable[Path], names: Collection[str]) -> None:
    """Check that one of the public keys signed the bundle, these files of it among others, as all of them are now.

    Raises UserError if not; NotInstalled without the library."""
    trusted = {public.public_bytes_raw(): public for public in map(_public_key, keys)}
    files, key, signature = _read(bundle)
    public = trusted.get(key)
    if public is None:
        hint = "`--trusted KEY.pub` and $REWRITE_TRUSTED_KEYS name the keys to trust."
        raise UserError("the bundle is signed by a key that is not trusted", where=str(bundle), hint=hint)
    from cryptography.exceptions import InvalidSignature  # it is there: a key was read

    try:
        public.verify(signature, _message(files))
    except InvalidSignature:
        raise _refused(bundle, "its signature is not one of the key that it names") from None
    for name in sorted({*names, *files}):
        if name not in files:
            raise _refused(bundle, f"{name} is not signed")
        try:
            digest = _digest(bundle / name)
        except OSError as error:
            raise _refused(bundle, f"{name} cannot be read: {error.strerror or error}") from error
        if digest != files[name]:
            raise _refused(bundle, f"{name} has changed since it was signed")


def _refused(bundle: Path, problem: str) -> UserError:
    return UserError(f"the bundle is not what was signed: {problem}", where=str(bundle), hint="Do not load it.")


def _read(bundle: Path) -> tuple[Mapping[str, str], bytes, bytes]:
    """Return the files that a bundle's signature names with their digests, the public key, and the signature."""
    path = bundle / FILE
    try:
        with open(path, "rb") as file:
            data = json.loads(file.read(_MOST_BYTES))
        files = {str(name): str(digest) for name, digest in data["files"].items()}
        key, signature = (base64.b64decode(data[name], validate=True) for name in ("key", "signature"))
    except FileNotFoundError:
        hint = "Its maker signs it: rewrite sign BUNDLE --key KEY"
        raise UserError("the bundle is not signed", where=str(bundle), hint=hint) from None
    except OSError as error:
        raise UserError(f"the signature cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise _refused(bundle, f"{FILE} is damaged") from error
    return files, key, signature


def _message(files: Mapping[str, str]) -> bytes:
    return _CONTEXT + json.dumps(dict(files), sort_keys=True).encode()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _private_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a file without a passphrase."""
    with naming_packages("signing"):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    readers = (serialization.load_ssh_private_key, serialization.load_pem_private_key)
    found = _key(path, *(partial(read, password=None) for read in readers))
    if not isinstance(found, Ed25519PrivateKey):
        raise UserError("this is not a private Ed25519 key", where=str(path), hint=_HOW)
    return found


def _public_key(path: Path) -> Ed25519PublicKey:
    """Return the public key in a file."""
    with naming_packages("checking a signature"):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found = _key(path, serialization.load_ssh_public_key, serialization.load_pem_public_key)
    if not isinstance(found, Ed25519PublicKey):
        raise UserError("this is not a public Ed25519 key", where=str(path), hint=_HOW)
    return found


def _key(path: Path, *readers: Callable[[bytes], object]) -> object:
    """Return what the first reader that can makes of a file; None if it is no key. Raises UserError for a file that
    cannot be read or has a passphrase."""
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"the key cannot be read: {error.strerror or error}", where=str(path)) from error
    for read in readers:
        try:
            return read(data)
        except TypeError as error:  # a passphrase is needed
            hint = "Remove it from a copy: ssh-keygen -p -N '' -f COPY"
            raise UserError("the key has a passphrase", where=str(path), hint=hint) from error
        except (ValueError, UnsupportedAlgorithm):
            continue
    return None
