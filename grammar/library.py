"""Rule files as one library: finding them, following `use`, expanding `def`, checking the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import errors
from .ast import Def, Fuse, Item, Op, Rule, RuleFile, Ruleset, Schedule, Span, Use, UseDomain
from .diagnostics import Diagnostic, Label, RuleErrors, did_you_mean
from .operator_info import OperatorInfo


@dataclass(frozen=True, slots=True)
class Library:
    """Checked rules, ready for the engine: `def`s are expanded, files come in the order given, after those they use."""

    files: tuple[RuleFile, ...]
    rules: tuple[Rule, ...]
    ops: tuple[Op, ...]
    fuses: tuple[Fuse, ...]
    defs: tuple[Def, ...]
    rulesets: tuple[Ruleset, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    domains: tuple[UseDomain, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()

    def places(self) -> dict[str, tuple[str, int]]:
        """The file and line of every rule and operator."""
        places = {op.name: (op.span.file, op.span.line) for op in self.ops}
        return places | {rule.name: (rule.span.file, rule.span.line) for rule in self.rules}


def load(
    paths: Iterable[str | Path], operators: OperatorInfo | None = None, *, texts: Mapping[Path, str] | None = None
) -> Library:
    """Read, resolve and check rule files.

    A directory stands for all `*.rules` below it, in the order of their names. With `operators` (the engine's table of
    ONNX signatures) operator names, arities and attributes are checked too. `texts` holds the contents of files, by
    resolved path, that are to be read as they are there and not as on disk.

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
    """As `load`, with the texts of the files that were read, by path. Without `warn` nobody looks for warnings."""
    library, sources, check = load_unchecked(paths, operators, texts=texts)
    return replace(library, warnings=tuple(check(warn))), sources


def load_unchecked(
    paths: Iterable[str | Path],
    operators: OperatorInfo | None = None,
    *,
    texts: Mapping[Path, str] | None = None,
) -> tuple[Library, dict[str, str], Callable[[bool], list[Diagnostic]]]:
    """Rule files as they are written, with their texts by path and what checks them: it gives the warnings if these are
    wanted, and raises as `load` does. `UserError` for a path that cannot be read is raised at once."""
    from .expand import collect, expand

    reader = _Reader(texts or {})
    for path in paths:
        reader.add(Path(path))
    files = tuple(reader.files.values())
    written = reader.items()
    definitions, found = collect(item for item in written if isinstance(item, Def))
    found += reader.diagnostics
    items = [item if isinstance(item, Def) else expand(item, definitions, found) for item in written]
    library = Library(
        files=files,
        rules=tuple(i for i in items if isinstance(i, Rule)),
        ops=tuple(i for i in items if isinstance(i, Op)),
        fuses=tuple(i for i in items if isinstance(i, Fuse)),
        defs=tuple(i for i in items if isinstance(i, Def)),
        rulesets=tuple(i for i in items if isinstance(i, Ruleset)),
        schedules=tuple(i for i in items if isinstance(i, Schedule)),
        domains=tuple(i for i in items if isinstance(i, UseDomain)),
    )
    return library, reader.sources, lambda warn: _check(items, operators, reader, found, warn=warn)


def _check(
    items: Sequence[Item],
    operators: OperatorInfo | None,
    reader: _Reader,
    found: Sequence[Diagnostic],
    *,
    warn: bool,
) -> list[Diagnostic]:
    """The warnings about items. Raises `RuleErrors` for all that is wrong with them, and what was found before."""
    from .analysis import analyse
    from .check import check

    errors, warnings = list(found), []
    if reader.is_closed:  # else every mention of what is missing would be an error
        errors += check(items, operators)
        analysed = analyse(items, operators, reader.sources, keep=not errors, warn=warn)
        known = {(d.code, d.span) for d in errors}
        errors += [d for d in analysed if d.severity == "error" and (d.code, d.span) not in known]
        warnings = [d for d in analysed if d.severity == "warning"]
    if errors:
        raise RuleErrors(dict.fromkeys(errors), reader.sources)
    return warnings


def sources(paths: Iterable[str | Path]) -> dict[str, str]:
    """The texts of rule files and of all that they use, by path: what the rules are made of. Nothing is checked.

    Raises `UserError` for a path that does not exist or cannot be read."""
    reader = _Reader({})
    for path in paths:
        reader.add(Path(path))
    return reader.sources


class _Reader:
    """Reads files once each, used files first, and keeps the errors of all of them."""

    def __init__(self, texts: Mapping[Path, str]) -> None:
        self.texts = texts
        self.files: dict[Path, RuleFile] = {}
        self.sources: dict[str, str] = {}
        self.diagnostics: list[Diagnostic] = []
        self._seen: set[Path] = set()
        self.is_closed = True
        self._open: list[tuple[Path, Span]] = []
        self._whole: set[Path] = set()
        self._parts: list[tuple[Path, Use]] = []

    def items(self) -> list[Item]:
        """The items of all files; of files that are used for some names only, these rules and operators."""
        wanted: dict[Path, set[str]] = {}
        for path, use in self._parts:
            known = [item.name for item in self.files[path].items if isinstance(item, Rule | Op | Fuse)]
            for name in use.names:
                if name not in known:
                    hint = did_you_mean(name, known)
                    message = f"`{use.path}` has no rule or operator `{name}`"
                    self.diagnostics.append(Diagnostic("use-unknown", message, use.span, hint=hint))
            wanted.setdefault(path, set()).update(use.names)
        return [
            item
            for path, file in self.files.items()
            for item in file.items
            if path in self._whole or not isinstance(item, Rule | Op | Fuse) or item.name in wanted.get(path, ())
        ]

    def add(self, path: Path) -> None:
        """Read a file, or every rule file below a directory; that directory is the root `use` may not leave."""
        if path.is_dir():
            found = sorted(p for p in path.rglob("*.rules") if p.is_file())
            if not found:
                raise errors.UserError("no .rules file in this directory", where=str(path))
            for file in found:
                self._read(file, path.resolve())
        else:
            self._read(path, path.resolve().parent)

    def _read(self, path: Path, root: Path, use: Use | None = None) -> None:
        from .parse import parse_leniently, read

        key = path.resolve()
        if use is not None and use.names:
            self._parts.append((key, use))
        else:
            self._whole.add(key)
        if key in self._seen:
            return
        name = str(path)
        self.sources[name] = text = self.texts[key] if key in self.texts else read(path)
        parsed = parse_leniently(text, name)
        self.diagnostics += parsed.diagnostics
        self.is_closed &= parsed.is_closed
        self._seen.add(key)
        for item in parsed.file.items:
            if isinstance(item, Use):
                self._follow(item, path, root)
        self.files[key] = parsed.file

    def _follow(self, use: Use, path: Path, root: Path) -> None:
        target = path.parent / use.path
        resolved = target.resolve()
        here = [(p, span) for p, span in self._open if p == resolved]
        if not resolved.is_relative_to(root):
            self._complain("use-outside", f'`use "{use.path}"` leads out of the directory of the rules', use.span)
        elif here or resolved == path.resolve():
            labels = tuple(Label(span, "which uses it here") for _, span in here[:1])
            self._complain(
                "use-cycle", f'`use "{use.path}"` comes back to a file that uses this one', use.span, *labels
            )
        elif not target.is_file():
            self._complain("use-missing", f'`use "{use.path}"`: there is no such file', use.span)
            self.is_closed = False
        else:
            self._open.append((path.resolve(), use.span))
            self._read(target, root, use)
            self._open.pop()

    def _complain(self, code: str, message: str, span: Span, *labels: Label) -> None:
        self.diagnostics.append(Diagnostic(code, message, span, labels))
