"""Write the generated parts of the pages: `python docs/generate.py`, or `make docs`; `--check` only compares.

`errors.md` comes from the rule files in `tests/rules_fail` and their `.expected` messages, the table of functions in
`language.md` from `grammar/builtins.py`, the last table of `catalog.md` from the rules that no entry names. The table
of kernels in `floats.md` comes from the registry of lowerers, `command-line.md` from the commands. A code block below
the comment `<!-- include: FILE::NAME -->` holds the rule, or the region between `# region NAME` and `# endregion` (in C
after `//`), of that file.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from rewrite.backend.kernels.registry import element_types
from rewrite.engine.rewriting.rule_library import load_rules, recognitions
from rewrite.grammar import builtins
from rewrite.grammar.checks import codes

HERE = Path(__file__).parent
ROOT = HERE.parent
FAILING = ROOT / "tests" / "rules_fail"
BEGIN, END = "<!-- begin: functions, made by generate.py -->", "<!-- end: functions -->"
KERNELS_BEGIN, KERNELS_END = "<!-- begin: kernels, made by generate.py -->", "<!-- end: kernels -->"
COMMANDS_BEGIN, COMMANDS_END = "<!-- begin: commands, made by generate.py -->", "<!-- end: commands -->"
BEYOND = "## Beyond the catalog\n\n"
INCLUDE = re.compile(r"(<!-- include: (\S+)::(\w+) -->\n```\w+[^\n]*\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
ERRORS = """# Messages about rule files

All problems of a file are reported at once, each with a code, the place, and often a suggestion. Errors stop a run.
Warnings do not, unless `--strict` is given; a rule can allow one: `allow loop "the reason"`. Below is one example of
each code, generated from `tests/rules_fail` by `docs/generate.py`.

"""
TITLES = ("Tensors", "Numbers and dims", "Lists", "Permutations and axes", "Element types", "Bodies", "Making tensors")


def region(file: Path, name: str) -> str:
    """The text of a rule, or of a marked region of Python without its indentation."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".rules":
        found = re.search(rf"^rule {name}\b.*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    else:
        found = re.search(rf"(?<=region {name}\n).*?(?=^ *(?:#|//) endregion)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{file} has no {name!r}"
    return textwrap.dedent(found[0]).strip("\n") + "\n"


def included(page: Path) -> str:
    """The page with every included block as it is in its file."""
    text = page.read_text(encoding="utf-8")
    return INCLUDE.sub(lambda match: match[1] + region(ROOT / match[2], match[3]), text)


def functions_table() -> str:
    """The condition library as Markdown tables, one for each paragraph of `functions.txt`."""
    operands = builtins.OPERAND_FUNCTIONS.read_text(encoding="utf-8")
    groups = builtins.FUNCTIONS.read_text(encoding="utf-8").strip().split("\n\n")
    assert len(groups) == len(TITLES), "a group of functions has no title"
    titled = [*zip(TITLES, groups, strict=True), ("For operands of tests only", operands)]
    sections = [(title, list(builtins.parse_table(group).values())) for title, group in titled]
    text = ""
    for title, found in sections:
        rows = "".join(f"| `{f.signature}` | {f.doc} |\n" for f in found)
        text += f"**{title}**\n\n| function | result |\n|---|---|\n{rows}\n"
    return text


def language() -> str:
    """`language.md` with the current table of functions."""
    before, _, rest = included(HERE / "language.md").partition(BEGIN)
    _, found, after = rest.partition(END)
    assert found, "language.md has lost the marks around its table"
    return f"{before}{BEGIN}\n\n{functions_table()}{END}{after}"


def catalog() -> str:
    """`catalog.md`: its entries by hand, then all other rules and recognized operators with their doc lines."""
    entries, found, _ = included(HERE / "catalog.md").partition(BEYOND)
    assert found, "catalog.md has lost its last heading"
    named = set(re.findall(r"`(\w+)`", entries))
    library = load_rules()
    recognized = {rule.name.removeprefix("recognize_") for rule in recognitions(library)}
    operators = [op for op in library.ops if op.name in recognized and "." not in op.name]
    items = [item for item in (*library.rules, *operators, *library.fuses) if item.name not in named]
    rows = sorted(
        (Path(item.span.file).name, item.span.line, item.name, item.doc.replace("|", r"\|")) for item in items
    )
    table = "".join(f"| `{name}` | {file} | {doc} |\n" for file, _, name, doc in rows)
    return f"{entries}{BEYOND}| rule | file | meaning |\n|---|---|---|\n{table}"


def errors() -> str:
    """`errors.md`: the shortest example of each code."""
    examples: dict[str, str] = {}
    for file in sorted(FAILING.glob("*.expected")):
        for message in re.split(r"\n\n(?=error\[|warning\[)", file.read_text(encoding="utf-8").strip()):
            match = re.match(r"(?:error|warning)\[([a-z-]+)\]", message)
            if match is None:
                continue
            shown = re.split(r"\n\n(?!error\[|warning\[)", message)[0]
            if len(shown) < len(examples.get(match[1], shown + " ")):
                examples[match[1]] = shown
    return ERRORS + "\n".join(
        f"## {code}\n\n{wrapped(codes.CODES[code])}\n\n```text\n{text}\n```\n"
        for code, text in sorted(examples.items())
    )


def wrapped(text: str) -> str:
    """Prose on lines of the pages' width."""
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def kernels_table() -> str:
    """The element types of the kernels of ONNX's operators as a Markdown table."""
    rows = {
        "floats": "computed on vectors of f32 or f64; 16-bit floats as f32",
        "any": "moved, compared or summed in their own type, whatever it is",
        "integers": "computed in integers, scaled in f32",
    }
    kinds = element_types()
    text = "| operators with kernels of their own | elements |\n|---|---|\n"
    for kind, meaning in rows.items():
        names = sorted(op for op, found in kinds.items() if found == kind and not op.startswith("rewrite."))
        text += f"| {', '.join(f'`{name}`' for name in names)} | {meaning} |\n"
    return text


def floats() -> str:
    """The page on float types with the current table of kernels."""
    before, rest = (HERE / "floats.md").read_text(encoding="utf-8").split(KERNELS_BEGIN)
    return f"{before}{KERNELS_BEGIN}\n\n{kernels_table()}\n{KERNELS_END}{rest.split(KERNELS_END)[1]}"


def commands() -> str:
    """The arguments and options of every command as Markdown tables, the main command first."""
    from rewrite.cli.application import app
    from typer.main import get_command

    root = get_command(app)
    found = [(f"rewrite {name}", command) for name, command in getattr(root, "commands", {}).items()]
    text = ""
    while found:
        name, command = found.pop(0)
        found[:0] = [(f"{name} {inner}", c) for inner, c in getattr(command, "commands", {}).items()]
        title = "rewrite MODEL.onnx" if command.hidden else name
        help_text = "\n\n".join(map(wrapped, (command.help or "").split("\n\n")))
        context = type(root.make_context("rewrite", [], resilient_parsing=True))(command)
        rows = "".join(_option(param, context) for param in command.params)
        text += f"## {title}\n\n{help_text}\n\n" + (f"| | |\n|---|---|\n{rows}\n" if rows else "")
    return text


def _option(param: Any, context: Any) -> str:
    """One row of a table of options: names and value; help and default."""
    names = [f"`{name}`" for name in (*param.opts, *param.secondary_opts) if name.startswith("-")]
    choices = re.search(r"[<\[]([^\]>]+\|[^\]>]+)[\]>]$", (param.get_help_record(context) or ("", ""))[0])
    stated = param.metavar or (choices[1] if choices else param.name.upper())
    value = "" if getattr(param, "is_flag", False) else stated
    is_stated = isinstance(param.default, str | int | float) and not isinstance(param.default, bool)
    default = f" Default: `{param.default}`." if is_stated else ""
    shown = ", ".join(names) + (f" `{value}`" if value else "")
    cells = (shown.strip(), (getattr(param, "help", None) or "") + default)
    return "| {} | {} |\n".format(*(cell.replace("|", r"\|") for cell in cells))


def command_line() -> str:
    """The page on the command line with the current options."""
    before, rest = included(HERE / "command-line.md").split(COMMANDS_BEGIN)
    return f"{before}{COMMANDS_BEGIN}\n\n{commands()}{COMMANDS_END}{rest.split(COMMANDS_END)[1]}"


def pages() -> dict[Path, str]:
    """Every page with a generated part, and its current text."""
    generated = {HERE / "language.md": language(), HERE / "errors.md": errors(), HERE / "catalog.md": catalog()}
    generated |= {HERE / "floats.md": floats(), HERE / "command-line.md": command_line()}
    others = [ROOT / "README.md", ROOT / "rules" / "README.md", *sorted(HERE.glob("*.md"))]
    return generated | {page: included(page) for page in others if page not in generated}


def main(arguments: list[str]) -> int:
    """Write the pages, or report with exit code 1 which of them are stale."""
    stale = []
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{'stale' if '--check' in arguments else 'written'}: {', '.join(stale) or 'none'}\n")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
