"""The language server: what editors ask, and which feature answers."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from ...errors import RewriteError
from ..diagnostics import Diagnostic
from . import (
    completion,
    diagnostics,
    formatting,
    hover,
    lenses,
    navigation,
    semantic,
    signatures,
    symbols,
)
from .document import Document
from .results import CHECK, RUN_TESTS
from .services import Services
from .workspace import Workspace

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])

DEBOUNCE = 0.12
"""Seconds without a keystroke after which diagnostics are computed."""


class RuleServer(LanguageServer):
    """A server for one editor."""

    def __init__(self, services: Services, version: str) -> None:
        # With whole texts no two opinions on what ends a line can bring editor and server apart.
        super().__init__("rewrite", version, text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self.files = Workspace(services)
        self._found: dict[Path, tuple[str, list[Diagnostic]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._due: asyncio.TimerHandle | None = None
        _register(self)

    def guarded(self, handler: F) -> F:
        """A handler whose mistakes are logged and cost an answer, never the server."""

        @functools.wraps(handler)
        def call(*arguments: Any) -> Any:
            try:
                return handler(*arguments)
            except JsonRpcInvalidParams:
                raise
            except navigation.CannotRename as why:
                raise JsonRpcInvalidParams(message=str(why)) from why
            except Exception as error:
                self.complain(handler.__name__, error)
                return None

        return call  # type: ignore[return-value]

    def complain(self, what: str, error: BaseException) -> None:
        """Tell of a mistake of our own."""
        log.error("%s failed", what, exc_info=error)
        text = f"{what}: {type(error).__name__}: {error}"
        self.window_log_message(lsp.LogMessageParams(lsp.MessageType.Error, text))

    def say(self, kind: lsp.MessageType, text: str) -> None:
        """Show a message."""
        self.window_show_message(lsp.ShowMessageParams(kind, text))

    # --- diagnostics

    def publish_soon(self) -> None:
        """Compute diagnostics once no key has been pressed for a moment."""
        if self._due is not None:
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_later(DEBOUNCE, self.publish_all)

    def publish_all(self) -> None:
        """Send the diagnostics of all open files: what one of them says may concern another."""
        for document in list(self.files.open.values()):
            self.publish(document)

    def publish(self, document: Document) -> None:
        """Send the diagnostics of a file."""
        try:
            text, more = self._found.get(document.path, ("", []))
            more = more if text == document.text else []
            found = diagnostics.diagnostics(self.files, document, more) + lenses.failures(document, self.files.results)
        except Exception as error:
            self.complain("diagnostics", error)
            return
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri=document.uri, diagnostics=found, version=document.version)
        )

    def look_at_all(self, uri: str) -> None:
        """Look beside the editing at all files together, and tell what is found if the text is still the same."""
        document = self.files.get(uri)
        if document is not None:
            task = asyncio.get_running_loop().create_task(self._look_at_all(document))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _look_at_all(self, document: Document) -> None:
        text, texts = document.text, self.files.texts()
        try:
            found = await asyncio.to_thread(self.files.found_in_all, document, texts)
        except Exception as error:
            self.complain("looking at all files", error)
            return
        self._found[document.path] = (text, found)
        if found and document.text == text:
            self.publish(document)

    # --- tests and checks

    async def run(self, command: str, uri: str, rule: str) -> None:
        """Run the tests of a rule, or check it, beside the editing."""
        document = self.files.get(uri)
        if document is None:
            self.say(lsp.MessageType.Warning, "The file is not open.")
            return
        services = self.files.services
        work = services.run_tests if command == RUN_TESTS else services.check
        texts = self.files.texts()
        try:
            outcomes = await asyncio.to_thread(work, document.path, texts, rule)
        except RewriteError as error:
            self.say(lsp.MessageType.Error, f"{rule}: {str(error).splitlines()[0]}")
            return
        except Exception as error:
            self.complain(command, error)
            self.say(lsp.MessageType.Error, f"{rule}: {type(error).__name__}: {error}")
            return
        self.files.results.keep(document, rule, command, outcomes)
        self.publish(document)
        capabilities = self.client_capabilities.workspace
        if capabilities is not None and capabilities.code_lens and capabilities.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)
        self.say(*lenses.summary(rule, command, outcomes))


def _encoding(server: RuleServer) -> str:
    """How the editor counts columns."""
    agreed = server.workspace.position_encoding
    return str(getattr(agreed, "value", agreed) or "utf-16")


def _register(server: RuleServer) -> None:
    _register_files(server)
    _register_reading(server)
    _register_changing(server)


def _register_files(server: RuleServer) -> None:
    files, guarded = server.files, server.guarded

    @server.feature(lsp.INITIALIZED)
    @guarded
    def initialized(_: lsp.InitializedParams) -> None:
        files.encoding = _encoding(server)
        folders = [f.uri for f in server.workspace.folders.values()]
        root = server.workspace.root_path
        paths = [path for uri in folders if (path := to_fs_path(uri))] or ([root] if root else [])
        files.folders = [Path(path).resolve() for path in paths]

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    @guarded
    def did_open(params: lsp.DidOpenTextDocumentParams) -> None:
        files.encoding = _encoding(server)
        document = params.text_document
        files.update(document.uri, document.text, document.version)
        server.publish_all()
        server.look_at_all(document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    @guarded
    def did_change(params: lsp.DidChangeTextDocumentParams) -> None:
        uri = params.text_document.uri
        files.update(uri, server.workspace.get_text_document(uri).source, params.text_document.version)
        server.publish_soon()

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    @guarded
    def did_save(params: lsp.DidSaveTextDocumentParams) -> None:
        server.publish_all()
        server.look_at_all(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    @guarded
    def did_close(params: lsp.DidCloseTextDocumentParams) -> None:
        files.close(params.text_document.uri)
        server.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri=params.text_document.uri, diagnostics=[])
        )

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    @guarded
    def did_change_watched(_: lsp.DidChangeWatchedFilesParams) -> None:
        server.publish_all()


def _register_reading(server: RuleServer) -> None:
    files, guarded = server.files, server.guarded

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    @guarded
    def on_hover(params: lsp.HoverParams) -> lsp.Hover | None:
        document = files.get(params.text_document.uri)
        return hover.hover(files, document, params.position) if document else None

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    @guarded
    def on_definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        document = files.get(params.text_document.uri)
        return navigation.go_to_definition(files, document, params.position) if document else None

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    @guarded
    def on_references(params: lsp.ReferenceParams) -> list[lsp.Location]:
        document = files.get(params.text_document.uri)
        if document is None:
            return []
        return navigation.references(files, document, params.position, params.context.include_declaration)

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    @guarded
    def on_highlight(params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
        document = files.get(params.text_document.uri)
        return navigation.highlights(document, params.position) if document else []

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    @guarded
    def on_symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        document = files.get(params.text_document.uri)
        return symbols.document_symbols(document) if document else []

    @server.feature(lsp.TEXT_DOCUMENT_FOLDING_RANGE)
    @guarded
    def on_folding(params: lsp.FoldingRangeParams) -> list[lsp.FoldingRange]:
        document = files.get(params.text_document.uri)
        return symbols.folding_ranges(document) if document else []

    @server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, semantic.LEGEND)
    @guarded
    def on_semantic_tokens(params: lsp.SemanticTokensParams) -> lsp.SemanticTokens | None:
        document = files.get(params.text_document.uri)
        return semantic.semantic_tokens(document) if document else None

    options = lsp.SignatureHelpOptions(trigger_characters=["(", ","])

    @server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, options)
    @guarded
    def on_signature(params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        document = files.get(params.text_document.uri)
        return signatures.signature_help(files, document, params.position) if document else None

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    @guarded
    def on_lenses(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        document = files.get(params.text_document.uri)
        return lenses.lenses(document, files.results) if document else []

    @server.command(RUN_TESTS)
    async def run_tests(uri: str, rule: str) -> None:
        await server.run(RUN_TESTS, uri, rule)

    @server.command(CHECK)
    async def check_rule(uri: str, rule: str) -> None:
        await server.run(CHECK, uri, rule)


def _register_changing(server: RuleServer) -> None:
    files, guarded = server.files, server.guarded
    options = lsp.CompletionOptions(trigger_characters=[".", "(", ",", ":", " "], resolve_provider=True)

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, options)
    @guarded
    def on_completion(params: lsp.CompletionParams) -> lsp.CompletionList | None:
        document = files.get(params.text_document.uri)
        return completion.complete(files, document, params.position) if document else None

    @server.feature(lsp.COMPLETION_ITEM_RESOLVE)
    def on_resolve(item: lsp.CompletionItem) -> lsp.CompletionItem:
        resolve = guarded(completion.resolve)
        return resolve(files, files.open.values(), item) or item

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    @guarded
    def on_prepare_rename(params: lsp.PrepareRenameParams) -> lsp.Range | None:
        document = files.get(params.text_document.uri)
        return navigation.prepare_rename(files, document, params.position) if document else None

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    @guarded
    def on_rename(params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        document = files.get(params.text_document.uri)
        return navigation.rename(files, document, params.position, params.new_name) if document else None

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    @guarded
    def on_formatting(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        document = files.get(params.text_document.uri)
        return formatting.formatting(document) if document else []

    @server.feature(lsp.TEXT_DOCUMENT_RANGE_FORMATTING)
    @guarded
    def on_range_formatting(params: lsp.DocumentRangeFormattingParams) -> list[lsp.TextEdit]:
        document = files.get(params.text_document.uri)
        return formatting.range_formatting(document, params.range) if document else []

    kinds = lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, kinds)
    @guarded
    def on_code_action(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        document = files.get(params.text_document.uri)
        return diagnostics.fixes(files, document, params.range) if document else []
