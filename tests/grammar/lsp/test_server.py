"""The language server as a process, driven by an LSP client over standard input and output."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_lsp
from lsprotocol import types as lsp
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities
from rewrite.grammar.lsp.outline import MAX_SYMBOLS, TYPES
from rewrite.grammar.printing.format import format_text

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMMAND = [sys.executable, "-P", "-c", "from rewrite.cli.app import main; main()", "lsp"]

TEXT = '''"""A file of one's own, with 🦀 and σ in it."""

use "other.rules"

op Twice(x, factor: 2.0) = x * factor                  # 🦀🦀 its own
  class reassoc

def is_square(x) = rank(x) == 2 and dim(x, 0) == dim(x, 1)

# --- rules

rule undo                                              # 🦀 twice is once
  Transpose(Transpose(x, perm: p), perm: q)  =>  Transpose(x, perm: [p[i] for i in q])
  class exact
  test fires    x: f32[2,3,4], p = [1,2,0], q = [0,2,1]

rule square_only
  Relu(Transpose(x, perm: [1,0]))  =>  Transpose(Relu(x), perm: [1,0])
  let unused = 1, r = rank(x)
  given x: T[N, M]
  where is_square(x), T == f32, r == 2, N == M
  class exact
  test fires    x: f32[3,3]
  test refuses  x: f32[3,2]
'''
OTHER = "def helper(a) = a + 1\n\nrule from_other\n  Neg(Neg(x))  =>  x\n  test fires x: f32[2]\n"


@pytest_lsp.fixture(config=ClientServerConfig(server_command=COMMAND), scope="module")
async def client(lsp_client: LanguageClient, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[None]:
    """One server for all tests; each test has its own folder."""
    root = tmp_path_factory.getbasetemp() / "workspace"
    root.mkdir()
    capabilities = client_capabilities("visual-studio-code")
    lsp_client.feature(lsp.WORKSPACE_CODE_LENS_REFRESH)(lambda *_: None)
    workspace = lsp.WorkspaceFolder(root.as_uri(), "rules")
    await lsp_client.initialize_session(
        lsp.InitializeParams(capabilities=capabilities, workspace_folders=[workspace], root_uri=root.as_uri())
    )
    yield
    await lsp_client.shutdown_session()


@pytest.fixture
def folder(
    client: LanguageClient, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """A new folder in the workspace, removed after the test; documents that the test opened are closed."""
    folder = tmp_path_factory.getbasetemp() / "workspace" / request.node.name
    folder.mkdir()
    (folder / "other.rules").write_text(OTHER)
    yield folder
    for uri in [path.as_uri() for path in folder.iterdir()]:
        client.text_document_did_close(lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(uri)))
    shutil.rmtree(folder)


class Editor:
    """A file in the client. Tests name a position by the text around it, with `¦` as the cursor."""

    def __init__(self, client: LanguageClient, path: Path, text: str) -> None:
        self.client, self.path, self.text, self.version = client, path, text, 1
        path.write_text(text)
        self.uri = path.as_uri()
        self.id = lsp.TextDocumentIdentifier(self.uri)

    async def open(self) -> list[lsp.Diagnostic]:
        item = lsp.TextDocumentItem(self.uri, "rules", self.version, self.text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return await self.diagnostics()

    async def change(self, text: str) -> list[lsp.Diagnostic]:
        self.text, self.version = text, self.version + 1
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(self.version, self.uri),
                [lsp.TextDocumentContentChangeWholeDocument(text)],
            )
        )
        return await self.diagnostics()

    async def diagnostics(self) -> list[lsp.Diagnostic]:
        while True:
            async with asyncio.timeout(60):
                received = await self.client.wait_for_notification(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
            if received.uri == self.uri:
                return list(received.diagnostics)

    def at(self, context: str) -> lsp.Position:
        before, after = context.split("¦")
        start = self.text.index(before + after) + len(before)
        line = self.text.count("\n", 0, start)
        column = self.text[self.text.rfind("\n", 0, start) + 1 : start]
        return lsp.Position(line, len(column.encode("utf-16-le")) // 2)

    def inside(self, range_: lsp.Range) -> str:
        return self.text[self.offset(range_.start) : self.offset(range_.end)]

    def offset(self, position: lsp.Position) -> int:
        lines = self.text.split("\n")
        units = lines[position.line].encode("utf-16-le")[: 2 * position.character]
        return sum(len(line) + 1 for line in lines[: position.line]) + len(units.decode("utf-16-le"))

    def apply(self, edits: list[lsp.TextEdit]) -> str:
        text = self.text
        for edit in sorted(edits, key=lambda e: self.offset(e.range.start), reverse=True):
            text = text[: self.offset(edit.range.start)] + edit.new_text + text[self.offset(edit.range.end) :]
        return text

    async def hover(self, context: str) -> str:
        found = await self.client.text_document_hover_async(lsp.HoverParams(self.id, self.at(context)))
        return "" if found is None else found.contents.value  # type: ignore[union-attr]

    async def labels(self, context: str) -> dict[str, lsp.CompletionItem]:
        found = await self.client.text_document_completion_async(lsp.CompletionParams(self.id, self.at(context)))
        assert isinstance(found, lsp.CompletionList)
        return {item.label: item for item in found.items}


@pytest.fixture
def editor(client: LanguageClient, folder: Path) -> Editor:
    return Editor(client, folder / "own.rules", TEXT)


def codes(found: list[lsp.Diagnostic]) -> list[Any]:
    return [d.code for d in found]


async def test_diagnostics_as_one_types(editor: Editor) -> None:
    found = await editor.open()
    assert codes(found) == ["unused-let"]
    assert editor.inside(found[0].range) == "unused"
    found = await editor.change(TEXT.replace("Relu(x), perm", "Relo(x), perm").replace("unused = 1, ", ""))
    (wrong,) = found
    assert wrong.code == "unknown-operator"
    assert "did you mean `Relu`" in wrong.message
    assert "Relo" in editor.inside(wrong.range)
    # one broken item hides no other
    found = await editor.change(editor.text.replace("Transpose(Transpose(x,", "Transpose(Transpose(x"))
    assert sorted(codes(found)) == ["syntax", "unknown-operator"]
    assert await editor.change(TEXT.replace("unused = 1, ", "")) == []


async def test_positions_are_in_utf16_units(editor: Editor) -> None:
    await editor.open()
    text = TEXT.replace("rule undo  ", "def f(a) = a + b # 🦀\n\nrule undo  ").replace(
        "# --- rules", '# 🦀🦀\nrule crab Foo(x, s: "🦀", t: nothing(y)) => x'
    )
    found = await editor.change(text)
    assert {editor.inside(d.range) for d in found if d.code == "unbound-variable"} >= {"b"}
    assert any(editor.inside(d.range).startswith("Foo") for d in found if d.code == "unknown-operator")


async def test_hover(editor: Editor) -> None:
    await editor.open()
    assert "[N, N]" in await editor.hover("Relu(Transpose(¦x, perm: [1,0]))  =>")
    assert "since version" in await editor.hover("Tran¦spose(Transpose(x")
    assert "perm" in await editor.hover("Tran¦spose(Transpose(x")
    assert "INTS" in await editor.hover("Transpose(Transpose(x, pe¦rm: p)")
    assert "rank(x: tensor) -> int" in await editor.hover("r = ra¦nk(x)")
    assert "def is_square(x)" in await editor.hover("where is_¦square")
    assert "class `exact`" in await editor.hover("rule un¦do")
    assert "1 fires" in await editor.hover("rule un¦do")
    assert "op Twice(x, factor: 2.0)" in await editor.hover("op Tw¦ice")
    assert "let r = rank(x)" in await editor.hover("¦r == 2")
    assert "Conditions that must be provable" in await editor.hover("wh¦ere is_square")
    assert await editor.hover("# --- ¦rules") == ""


async def test_go_to_definition(editor: Editor) -> None:
    await editor.open()

    async def target(context: str) -> tuple[str, str]:
        found = await editor.client.text_document_definition_async(lsp.DefinitionParams(editor.id, editor.at(context)))
        assert isinstance(found, lsp.Location)
        return Path(found.uri).name, editor.inside(found.range) if found.uri == editor.uri else ""

    assert await target("Transpose(x, perm: [¦p[i]") == ("own.rules", "p")
    assert await target("where is_¦square") == ("own.rules", "is_square")
    assert await target("T == f32, ¦r == 2") == ("own.rules", "r")
    assert await target('use "oth¦er.rules"') == ("other.rules", "")
    assert await target("Re¦lu(Transpose") == ("operators.rules", "")


async def test_references_and_highlights(editor: Editor) -> None:
    await editor.open()
    at = editor.at("def is_¦square")
    params = lsp.ReferenceParams(lsp.ReferenceContext(include_declaration=True), editor.id, at)
    found = await editor.client.text_document_references_async(params)
    assert found is not None
    assert [editor.inside(place.range) for place in found] == ["is_square", "is_square"]
    shown = await editor.client.text_document_document_highlight_async(
        lsp.DocumentHighlightParams(editor.id, editor.at("Relu(Transpose(¦x"))
    )
    assert shown is not None
    rule = TEXT[TEXT.index("rule square_only") :]
    assert len(shown) == len(re.findall(r"\bx\b", rule))


async def test_outline_and_folding(editor: Editor) -> None:
    await editor.open()
    found = await editor.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(editor.id))
    assert found is not None
    assert [symbol.name for symbol in found] == ["other.rules", "Twice", "is_square", "undo", "square_only"]
    assert [child.name for child in found[-1].children] == ["test fires", "test refuses"]  # type: ignore[union-attr]
    folds = await editor.client.text_document_folding_range_async(lsp.FoldingRangeParams(editor.id))
    assert folds is not None
    lines = TEXT.split("\n")
    starts = {lines[fold.start_line].split()[0] for fold in folds}
    assert {"rule", "#", "op"} <= starts


async def symbols(editor: Editor, query: str) -> list[lsp.SymbolInformation]:
    found = await editor.client.workspace_symbol_async(lsp.WorkspaceSymbolParams(query))
    assert found is not None
    return [symbol for symbol in found if isinstance(symbol, lsp.SymbolInformation)]


async def test_symbols_of_all_files(editor: Editor) -> None:
    await editor.open()
    found = {symbol.name: symbol for symbol in await symbols(editor, "squa")}
    assert {"is_square", "square_only"} <= set(found)
    assert editor.inside(found["square_only"].location.range) == "square_only"
    assert found["square_only"].container_name == "own.rules"
    assert found["is_square"].kind == lsp.SymbolKind.Function
    assert "from_other" in [symbol.name for symbol in await symbols(editor, "fromother")]  # a closed file of the folder
    first = (await symbols(editor, "ConvBn"))[0]
    assert (first.name, first.container_name) == ("conv_bn", "conv.rules")  # the standard library
    assert await symbols(editor, "no such name (*") == []
    assert 100 < len(await symbols(editor, "")) <= MAX_SYMBOLS
    await editor.change(TEXT.replace("square_only", "quadratic_only"))
    assert [s.name for s in await symbols(editor, "quadratic_o")] == ["quadratic_only"]


async def hints(editor: Editor, within: str | None = None) -> str:
    """The text of the editor with the hints in it, or the part of it for which hints were requested."""
    start = editor.text.index(within) if within is not None else 0
    end = start + len(within) if within is not None else len(editor.text)
    where = lsp.Range(*(editor.at(editor.text[:at] + "¦" + editor.text[at:]) for at in (start, end)))
    found = await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(editor.id, where))
    return editor.apply([lsp.TextEdit(lsp.Range(h.position, h.position), f"«{h.label}»") for h in found or []])


async def test_inlay_hints(editor: Editor) -> None:
    await editor.open()
    shown = await hints(editor)
    assert "Relu(Transpose(x«: f32[N, N]», perm: [1,0]))  =>  Transpose(Relu(x), perm" in shown
    assert "Transpose(Transpose(x, perm: p«: ints»), perm: q«: ints»)" in shown
    assert "op Twice(x«: float», factor: 2.0)" in shown
    text = TEXT + (
        "\nrule more                                              # 🦀 after a crab\n"
        "  { y[i] = Conv(x, W[i], B = 0) }  =>  { y[i] = Relu(x) }\n  given W[i]: const f32[_, _, 3, 3], B: float[C]\n"
    )
    await editor.change(text)
    rule = text[text.index("  { y[i]") :]
    shown = await hints(editor, rule)
    assert "Conv(x«: f32[_, C, _, _]», W[i]«: const f32[C, C, 3, 3]», B«: f32[C]» = 0)" in shown
    assert "p«" not in shown  # outside the range
    await editor.change(text.replace("const f32[_, _, 3, 3]", "const f64[_, _, 3, 3]"))
    assert "Conv(x«: f64[_, C, _, _]»" in await hints(editor)
    await editor.change(
        TEXT.replace("given x: T[N, M]", "given x: f32[N, N]").replace(", T == f32", "").replace(", N == M", "")
    )
    assert "Relu(Transpose(x, perm: [1,0]))" in await hints(editor)  # `given` says the same


async def test_completion(editor: Editor) -> None:
    await editor.open()
    text = TEXT + "\nrule half\n  Conv(x, W, ¦)  =>  x\n  \n  class \n"
    await editor.change(text.replace("¦", ""))
    inside = await editor.labels("Conv(x, W, ¦)")
    assert inside["auto_pad"].insert_text == "auto_pad: "
    assert inside["x"].kind == lsp.CompletionItemKind.Variable
    assert {"Relu", "Twice", "rank", "is_square"} <= set(inside)
    assert set(await editor.labels("  class ¦\n")) == {"exact", "reassoc", "fast", "signed_zero"}
    assert {"where", "given", "let", "test"} <= set(await editor.labels("=>  x\n  ¦\n"))
    assert {"rule", "op", "def"} <= set(await editor.labels("¦\nrule half"))
    types = await editor.labels("given x: ¦T[N, M]")
    assert {"const", "f32", "float"} <= set(types)
    assert "Relu" not in types
    resolved = await editor.client.completion_item_resolve_async(inside["Relu"])
    assert isinstance(resolved.documentation, lsp.MarkupContent)
    assert "since version" in resolved.documentation.value
    assert not await editor.labels("# --- ru¦les")


async def test_signature_help(editor: Editor) -> None:
    await editor.open()

    async def active(context: str) -> tuple[str, str]:
        params = lsp.SignatureHelpParams(editor.id, editor.at(context))
        found = await editor.client.text_document_signature_help_async(params)
        assert found is not None
        signature = found.signatures[0]
        assert signature.parameters is not None
        return signature.label, str(signature.parameters[found.active_parameter or 0].label)

    assert await active("dim(x, ¦0)") == ("dim(x: tensor, i: int) -> dim", "i: int")
    assert await active("is_square(¦x), T") == ("is_square(x)", "x")
    label, parameter = await active("Transpose(Transpose(x, ¦perm: p)")
    assert label == "Transpose(data, perm: INTS)"
    assert parameter == "perm: INTS"


async def test_rename(editor: Editor) -> None:
    await editor.open()

    async def renamed(context: str, name: str) -> dict[str, str]:
        params = lsp.RenameParams(new_name=name, text_document=editor.id, position=editor.at(context))
        edit = await editor.client.text_document_rename_async(params)
        assert edit is not None
        assert edit.changes is not None
        return {Path(uri).name: editor.apply(list(e)) for uri, e in edit.changes.items()}

    text = (await renamed("Relu(Transpose(¦x", "data"))["own.rules"]
    rule = text[text.index("rule square_only") :]
    assert "Relu(Transpose(data, perm" in rule
    assert not re.search(r"\bx\b", rule)
    assert text[: text.index("rule square_only")] == TEXT[: TEXT.index("rule square_only")]
    text = (await renamed("where is_¦square", "quadratic"))["own.rules"]
    assert "is_square" not in text
    assert text.count("quadratic") == 2
    text = (await renamed("for ¦i in q", "k"))["own.rules"]
    assert "[p[k] for k in q]" in text
    for context, name in [("Re¦lu(Transpose", "Rely"), ("rank(¦x) == 2", "and"), ("let unused = 1, ¦r", "x")]:
        with pytest.raises(Exception, match=r"operator of the standard|reserved word|is already used"):
            await renamed(context, name)


async def test_rename_goes_through_files(editor: Editor) -> None:
    await editor.open()
    await editor.change(TEXT.replace("r == 2", "helper(r) == 3"))
    params = lsp.RenameParams(new_name="plus_one", text_document=editor.id, position=editor.at("hel¦per(r)"))
    edit = await editor.client.text_document_rename_async(params)
    assert edit is not None
    assert {Path(uri).name for uri in edit.changes or {}} == {"own.rules", "other.rules"}


async def test_formatting(editor: Editor) -> None:
    await editor.open()
    messy = TEXT.replace("  =>  ", "=>").replace("\nrule undo", "\n\n\n\nrule   undo") + "\n\n"
    await editor.change(messy)
    options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
    edits = await editor.client.text_document_formatting_async(lsp.DocumentFormattingParams(editor.id, options))
    assert editor.apply(list(edits or [])) == format_text(messy)
    line = editor.at("¦rule   undo").line
    where = lsp.Range(lsp.Position(line, 0), lsp.Position(line + 1, 0))
    edits = await editor.client.text_document_range_formatting_async(
        lsp.DocumentRangeFormattingParams(editor.id, where, options)
    )
    some = editor.apply(list(edits or []))
    assert "rule undo" in some
    assert "Transpose(x, perm: [1,0]))=>Transpose(" in some
    await editor.change("rule broken (")
    edits = await editor.client.text_document_formatting_async(lsp.DocumentFormattingParams(editor.id, options))
    assert not edits


async def test_lenses_run_tests_and_checks(editor: Editor) -> None:
    await editor.open()
    text = TEXT.replace("q = [0,2,1]\n", "q = [0,2,1]\n  test refuses  x: f32[2,3,4], p = [1,2,0], q = [0,2,1]\n")
    await editor.change(text.replace("unused = 1, ", ""))
    found = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(editor.id))
    commands = [lens.command for lens in found or []]
    titles = [(c.title, c.arguments[1]) for c in commands if c is not None and c.arguments]
    assert ("Run tests", "undo") in titles
    assert ("Check soundness", "undo") in titles
    tests = lsp.ExecuteCommandParams("rewrite.runTests", [editor.uri, "undo"])
    await editor.client.workspace_execute_command_async(tests)
    assert "was applied" in editor.client.messages[-1].message
    failed = [d for d in editor.client.diagnostics[editor.uri] if d.code == "test-failed"]
    assert [editor.inside(d.range) for d in failed] == ["test refuses  x: f32[2,3,4], p = [1,2,0], q = [0,2,1]"]
    assert "undo" in editor.client.messages[-1].message
    check = lsp.ExecuteCommandParams("rewrite.checkRule", [editor.uri, "square_only"])
    await editor.client.workspace_execute_command_async(check)
    assert "square_only: sound" in editor.client.messages[-1].message
    found = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(editor.id))
    titles = [(lens.command.title, (lens.command.arguments or [])[1]) for lens in found or [] if lens.command]
    assert ("Run tests: 1 failed", "undo") in titles
    assert ("Check soundness: passed", "square_only") in titles
    assert "last check: sound" in await editor.hover("rule square¦_only")


async def test_fixes_are_offered(editor: Editor) -> None:
    await editor.open()
    await editor.change(TEXT.replace("Relu(x), perm", "Relo(x), perm"))
    at = editor.at("Re¦lo(x)")
    context = lsp.CodeActionContext(diagnostics=[])
    found = await editor.client.text_document_code_action_async(
        lsp.CodeActionParams(editor.id, lsp.Range(at, at), context)
    )
    assert found
    edit = found[0].edit  # type: ignore[union-attr]
    assert edit is not None
    assert "Relu(x), perm" in editor.apply(list((edit.changes or {})[editor.uri]))


async def test_warnings_of_the_whole_library(client: LanguageClient, folder: Path) -> None:
    text = "rule a Floor(x) => x where rank(x) >= 1\nrule b Floor(x) => Ceil(x) where rank(x) == 2\n"
    editor = Editor(client, folder / "overlap.rules", text)
    found = await editor.open()
    while "overlap" not in codes(found):
        found = await editor.diagnostics()
    assert {d.severity for d in found if d.code == "overlap"} == {lsp.DiagnosticSeverity.Warning}


async def test_what_only_all_files_together_show(client: LanguageClient, folder: Path) -> None:
    editor = Editor(client, folder / "more.rules", 'use "other.rules"\n\nrule from_other\n  Abs(Neg(x))  =>  Abs(x)\n')
    found = await editor.open()
    while "duplicate-name" not in codes(found):
        found = await editor.diagnostics()
    assert "from_other" in found[0].message


async def test_semantic_tokens(editor: Editor) -> None:
    await editor.open()
    found = await editor.client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(editor.id))
    assert found is not None
    kinds: dict[str, set[str]] = {}
    line = column = 0
    for i in range(0, len(found.data), 5):
        down, right, length, kind, _ = found.data[i : i + 5]
        line, column = line + down, right if down else column + right
        place = lsp.Range(lsp.Position(line, column), lsp.Position(line, column + length))
        kinds.setdefault(TYPES[kind], set()).add(editor.inside(place))
    assert {"rule", "where", "class", "let"} <= kinds["keyword"]
    assert {"Transpose", "Relu", "Twice"} <= kinds["class"]
    assert {"rank", "is_square"} <= kinds["function"]
    assert {"perm", "p", "factor"} <= kinds["property"]
    assert {"N", "M", "T"} <= kinds["typeParameter"]
    assert {"undo", "square_only"} <= kinds["event"]
    assert "# 🦀 twice is once" in kinds["comment"]


async def test_nothing_kills_the_server(editor: Editor) -> None:
    await editor.open()
    for text in ["", "\n", "rule", 'rule r """', "(" * 3000, "rule r Relu(" * 400, "\u2028\x0b\r\n# 🦀", "op " * 50]:
        await editor.change(text)
        end = lsp.Position(99999, 99999)
        await editor.client.text_document_hover_async(lsp.HoverParams(editor.id, end))
        await editor.client.text_document_completion_async(lsp.CompletionParams(editor.id, end))
        await editor.client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(editor.id))
        await editor.client.text_document_folding_range_async(lsp.FoldingRangeParams(editor.id))
        await editor.client.text_document_code_lens_async(lsp.CodeLensParams(editor.id))
        await editor.client.text_document_signature_help_async(lsp.SignatureHelpParams(editor.id, end))
    assert not [m for m in editor.client.log_messages if m.type == lsp.MessageType.Error]
    assert codes(await editor.change(TEXT)) == ["unused-let"]
