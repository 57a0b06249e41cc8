"""Write the generated parts of these pages: `python docs/generate.py`, or `make docs`; `--check` only compares.

`errors.md` comes from the rule files in `tests/rules_fail` and their `.expected` messages, the table of functions in
`language.md` from `grammar/builtins.py`.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

from rewrite.grammar import builtins, codes

HERE = Path(__file__).parent
FAILING = HERE.parent / "tests" / "rules_fail"
BEGIN, END = "<!-- begin: functions, made by generate.py -->", "<!-- end: functions -->"
ERRORS = """# Messages about rule files

All that is wrong in a file is told at once, each with a code, the place, and often a guess at what was meant. Errors
stop a run; warnings stop nobody, unless asked for by `--strict`, and a rule can allow one: `allow loop "the reason"`.
One example of each code; this page is made from `tests/rules_fail` by `docs/generate.py`.

"""
TITLES = ("Tensors", "Numbers and dims", "Lists", "Permutations and axes", "Element types", "Bodies", "Making tensors")


def functions_table() -> str:
    """The condition library as Markdown tables, a blank line of `builtins.py` apart."""
    groups = builtins._FUNCTIONS.strip().split("\n\n")
    assert len(groups) == len(TITLES), "a group of functions has no title"
    sections = [(title, list(builtins._parse(group).values())) for title, group in zip(TITLES, groups, strict=True)]
    sections.append(("For operands of tests only", list(builtins._parse(builtins._OPERAND_FUNCTIONS).values())))
    text = ""
    for title, found in sections:
        rows = "".join(f"| `{f.signature}` | {f.doc} |\n" for f in found)
        text += f"**{title}**\n\n| function | what it gives |\n|---|---|\n{rows}\n"
    return text


def language() -> str:
    """`language.md` with its table of functions as it should be."""
    before, _, rest = (HERE / "language.md").read_text(encoding="utf-8").partition(BEGIN)
    _, found, after = rest.partition(END)
    assert found, "language.md has lost the marks around its table"
    return f"{before}{BEGIN}\n\n{functions_table()}{END}{after}"


def errors() -> str:
    """`errors.md`: the shortest message of each code."""
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


def main(arguments: list[str]) -> int:
    """Write the pages, or tell (exit code 1) which of them are not current."""
    stale = []
    for name, text in (("language.md", language()), ("errors.md", errors())):
        path = HERE / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in arguments:
                path.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{'stale' if '--check' in arguments else 'written'}: {', '.join(stale) or 'none'}\n")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
