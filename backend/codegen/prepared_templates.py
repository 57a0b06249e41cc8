"""Templates as code of Python: a wheel brings them, so that a first compile translates none of its text.

Translating the common templates takes as long as gcc takes for a module of kernels. The file of `prepare` is

    a key of the versions of Jinja and Python, and a hash of the rest
    by template the bytecode that Jinja would cache, with a hash of the text that it was made of

A file that does not fit, as after an update of Jinja, is not used; a template whose text has changed is translated.
"""

from __future__ import annotations

import importlib.util
import marshal
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from ...system.store import content_key


class PreparedTemplates(jinja2.BytecodeCache):
    """Jinja's cache of bytecode, from the file of `prepare`; empty without one that fits."""

    def __init__(self, file: Path | None = None) -> None:
        self._codes: Mapping[str, bytes] = _read(file) if file is not None else {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give a bucket its template's bytecode, which Jinja takes if the hash of the text is right."""
        if bucket.key in self._codes:
            bucket.bytecode_from_string(self._codes[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Do nothing: an installed package is not written to."""

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the name of a template, wherever the package is installed."""
        return name


class _Translations(PreparedTemplates):
    """Collects what Jinja translates."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, bytes] = {}

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.found[bucket.key] = bucket.bytecode_to_string()


def prepare(make: Callable[[PreparedTemplates], jinja2.Environment], target: Path) -> None:
    """Write the templates of an environment, which `make` returns for a cache. Raises OSError."""
    translations = _Translations()
    environment = make(translations)
    for name in environment.list_templates(extensions=["j2"]):
        environment.get_template(name)
    payload = marshal.dumps(sorted(translations.found.items()))
    target.write_bytes(_key(payload).encode() + b"\n" + payload)


def _read(file: Path) -> Mapping[str, bytes]:
    try:
        key, _, payload = file.read_bytes().partition(b"\n")
    except OSError:
        return {}
    return dict(marshal.loads(payload)) if key == _key(payload).encode() else {}


def _key(payload: bytes) -> str:
    return content_key(version("jinja2"), importlib.util.MAGIC_NUMBER, payload)
