"""Loading of rule files: find them, follow `use`, expand `def`, check the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import errors
from ...system.short_text import plural
from ..diagnostics import Diagnostic, Label, RuleErrors, did_you_mean
from ..operator_info import OperatorInfo
from ..syntax.ast import Def, Fuse, Item, Op, Rule, RuleFile, Ruleset, Schedule, Span, Use, UseDomain

KINDS: dict[str, type[Item]] = {
    "rules": Rule, "ops": Op, "fuses": Fuse, "rulesets": Ruleset, "schedules": Schedule, "domains": UseDomain,
}  # fmt: skip
"""Fields of a library that runs of its rules need, with the kind of items in each."""


@dataclass(frozen=True, slots=True)
class Library:
    """Checked rules, ready for the engine: `def`s are expanded; files come in the order given, after those they use."""

    files: tuple[RuleFile, ...]
    rules: tuple[Rule, ...]
    ops: tuple[Op, ...]
    fuses: tuple[Fuse, ...]
    defs: tuple[Def, ...]
    rulesets: tuple[Ruleset, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    domains: tuple[UseDomain, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()

    def __repr__(self) -> str:
        files = {item.span.file for item in (*self.rules, *self.ops, *self.fuses)}
        rules, ops = plural(len(self.rules), "rule"), plural(len(self.ops), "operator")
        return f"<Library: {rules} and {ops} in {plural(len(files), 'file')}>"

    @classmethod
    def of(cls, files: Iterable[RuleFile], items: Sequence[Item], warnings: Iterable[Diagnostic]) -> Library:
        """Make a library of expanded items."""
        kinds: dict[str, type[Item]] = {"defs": Def, **KINDS}
        fields: dict[str, Any] = {n: tuple(i for i in items if isinstance(i, kind)) for n, kind in kinds.items()}
        return cls(tuple(files), **fields, warnings=tuple(warnings))

    def places(self) -> dict[str, tuple[str, int]]:
        """Return the file and line of every rule and operator."""
        places = {op.name: (op.span.file, op.span.line) for op in self.ops}
        return places | {rule.name: (rule.span.file, rule.span.line) for rule in self.rules}


def load(
    paths: Iterable[str | Path], operators: OperatorInfo | None = None, *, texts: Mapping[Path, str] | None = None
) -> Library:
    """Read, resolve and check rule files.

    A directory stands for all `*.rules` below it, in the order of their names. With `operators` (the engine's table of
    ONNX schemas) operator names, arities and attributes are checked too. `texts` replaces the contents of files on
    disk, by resolved path.

    Raises:
        RuleErrors: everything that is wrong in any of the files.
        UserError: a path that does not exist or cannot be read.
    """
    return load_fresh(paths, operators, texts=texts)[0]


def load_fresh(
    paths: Iterable[str | Path],
    operators: OperatorInfo | None = None,
    *,
    texts: Mapping[Path, str] | None = None,
    warn: bool = True,
) -> tuple[Library, dict[str, str]]:
    """Load as `load` does; also return the texts of the files by path. Without `warn`, no warnings are computed."""
    from ..checks.check import check
    from ..syntax.desugar import desugar
    from ..syntax.expand import collect, expand
    from .analysis_cache import analyze

    reader = _Reader(paths, texts or {})
    written = reader.items()
    definitions, errors = collect(item for item in written if isinstance(item, Def))
    errors += reader.diagnostics
    items = [item if isinstance(item, Def) else desugar(expand(item, definitions, errors)) for item in written]
    warnings: list[Diagnostic] = []
    if reader.is_closed:  # otherwise every reference to a missing item would be an error
        errors += check(items, operators)
        analyzed = analyze(items, operators, reader.sources, cached=not errors, warn=warn)
        known = {(d.code, d.span) for d in errors}
        errors += [d for d in analyzed if d.severity == "error" and (d.code, d.span) not in known]
        warnings = [d for d in analyzed if d.severity == "warning"]
    if errors:
        raise RuleErrors(dict.fromkeys(errors), reader.sources)
    return Library.of(reader.files.values(), items, warnings), reader.sources


def sources(paths: Iterable[str | Path]) -> dict[str, str]:
    """Return the texts of rule files and of all that they use, by path, unchecked.

    Raises `UserError` for a path that does not exist or cannot be read."""
    return _Reader(paths, {}).sources


class _Reader:
    """Reads each file once, used files first, and collects the errors of all of them."""

    def __init__(self, paths: Iterable[str | Path], texts: Mapping[Path, str]) -> None:
        self.texts = texts
        self.files: dict[Path, RuleFile] = {}
        self.sources: dict[str, str] = {}
        self.diagnostics: list[Diagnostic] = []
        self.is_closed = True
        self._open: dict[Path, Span] = {}
        self._whole: set[Path] = set()
        self._parts: list[tuple[Path, Use]] = []
        for path in paths:
            self._add(Path(path))

    def items(self) -> list[Item]:
        """Return the items of all files; only the named rules and operators of files used by name."""
        wanted: dict[Path, set[str]] = {}
        for path, use in self._parts:
            known = [item.name for item in self.files[path].items if isinstance(item, Rule | Op | Fuse)]
            for name in use.names:
                if name not in known:
                    message = f"`{use.path}` has no rule or operator `{name}`"
                    self._complain("use-unknown", message, use.span, hint=did_you_mean(name, known))
            wanted.setdefault(path, set()).update(use.names)
        return [
            item
            for path, file in self.files.items()
            for item in file.items
            if path in self._whole or not isinstance(item, Rule | Op | Fuse) or item.name in wanted.get(path, ())
        ]

    def _add(self, path: Path) -> None:
        """Read a file, or every rule file below a directory; `use` may not leave that directory."""
        if path.is_dir():
            found = sorted(p for p in path.rglob("*.rules") if p.is_file())
            if not found:
                raise errors.UserError("this directory contains no .rules files", where=str(path))
            for file in found:
                self._read(file, path.resolve())
        else:
            self._read(path, path.resolve().parent)

    def _read(self, path: Path, root: Path, use: Use | None = None) -> None:
        from ..syntax.parse import parse_leniently, read

        key = path.resolve()
        if use is not None and use.names:
            self._parts.append((key, use))
        else:
            self._whole.add(key)
        if key in self.files:
            return
        name = str(path)
        self.sources[name] = text = self.texts[key] if key in self.texts else read(path)
        parsed = parse_leniently(text, name)
        self.diagnostics += parsed.diagnostics
        self.is_closed &= parsed.is_closed
        for item in parsed.file.items:
            if isinstance(item, Use):
                self._follow(item, path, root)
        self.files[key] = parsed.file

    def _follow(self, use: Use, path: Path, root: Path) -> None:
        target = path.parent / use.path
        resolved = target.resolve()
        if not resolved.is_relative_to(root):
            self._complain("use-outside", f'`use "{use.path}"` leads outside the directory of the rules', use.span)
        elif resolved in self._open or resolved == path.resolve():
            labels = [Label(self._open[resolved], "used here")] if resolved in self._open else []
            self._complain("use-cycle", f'`use "{use.path}"` is a cycle: that file uses this one', use.span, *labels)
        elif not target.is_file():
            self._complain("use-missing", f'`use "{use.path}"`: file not found', use.span)
            self.is_closed = False
        else:
            self._open[path.resolve()] = use.span
            self._read(target, root, use)
            del self._open[path.resolve()]

    def _complain(self, code: str, message: str, span: Span, *labels: Label, hint: str = "") -> None:
        self.diagnostics.append(Diagnostic(code, message, span, labels, hint))
