"""The language server: LSP requests and the features that answer them."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from ...errors import RewriteError
from ..diagnostics import Diagnostic
from . import completion, formatting, hover, inlay_hints, navigation, outline, problems
from .document import Document
from .services import CHECK, RUN_TESTS, Services
from .workspace import Workspace

log = logging.getLogger(__name__)

DEBOUNCE = 0.12
"""Delay in seconds after the last keystroke before diagnostics are computed."""


class RuleServer(LanguageServer):
    """Language server for one editor."""

    def __init__(self, services: Services, version: str) -> None:
        # Full synchronization: with increments, a disagreement about line endings would corrupt the text.
        super().__init__("rewrite", version, text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self.files = Workspace(services)
        self._found: dict[Path, tuple[str, list[Diagnostic]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._due: asyncio.TimerHandle | None = None
        for method, handler in _EVENTS.items():
            self.feature(method)(self._guarded(functools.partial(handler, self), handler.__name__[1:]))
        for method, answer, *options in _FEATURES:
            self.feature(method, *options)(self._guarded(functools.partial(self._answer, answer), method))
        for name in (RUN_TESTS, CHECK):
            self._add_command(name)

    def _guarded(self, handler: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
        """Wrap a handler so that its exceptions are logged and cost one answer, not the server."""

        def call(params: Any) -> Any:
            try:
                return handler(params)
            except navigation.CannotRename as why:
                raise JsonRpcInvalidParams(message=str(why)) from why
            except Exception as error:
                self._complain(name, error)
                return None

        call.__name__ = name
        return call

    def _answer(self, answer: Answer, params: Any) -> Any:
        """Answer a request about an open document; null for one that is not open."""
        document = self.files.get(params.text_document.uri)
        return answer(self.files, document, params) if document is not None else None

    def _complain(self, what: str, error: BaseException) -> None:
        """Log an internal error, and show it in the editor's log."""
        log.error("%s failed", what, exc_info=error)
        text = f"{what}: {type(error).__name__}: {error}"
        self.window_log_message(lsp.LogMessageParams(lsp.MessageType.Error, text))

    def _say(self, kind: lsp.MessageType, text: str) -> None:
        self.window_show_message(lsp.ShowMessageParams(kind, text))

    # --- events

    def _initialized(self, _: lsp.InitializedParams) -> None:
        folders = [f.uri for f in self.workspace.folders.values()]
        root = self.workspace.root_path
        paths = [path for uri in folders if (path := to_fs_path(uri))] or ([root] if root else [])
        self.files.folders = [Path(path).resolve() for path in paths]

    def _did_open(self, params: lsp.DidOpenTextDocumentParams) -> None:
        agreed = self.workspace.position_encoding
        self.files.encoding = str(getattr(agreed, "value", agreed) or "utf-16")
        document = params.text_document
        self.files.update(document.uri, document.text, document.version)
        self._publish_all()
        self._analyze(document.uri)

    def _did_change(self, params: lsp.DidChangeTextDocumentParams) -> None:
        """Update the text, and publish diagnostics once no key has been pressed for `DEBOUNCE` seconds."""
        uri = params.text_document.uri
        self.files.update(uri, self.workspace.get_text_document(uri).source, params.text_document.version)
        if self._due is not None:
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_later(DEBOUNCE, self._publish_all)

    def _did_save(self, params: lsp.DidSaveTextDocumentParams) -> None:
        self._publish_all()
        self._analyze(params.text_document.uri)

    def _did_close(self, params: lsp.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        self.files.close(uri)
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri=uri, diagnostics=[]))

    # --- diagnostics

    def _publish_all(self, _: object = None) -> None:
        """Publish the diagnostics of all open files: they may depend on each other."""
        for document in list(self.files.open.values()):
            self._publish(document)

    def _publish(self, document: Document) -> None:
        try:
            text, more = self._found.get(document.path, ("", []))
            found = problems.diagnostics(self.files, document, more if text == document.text else [])
        except Exception as error:
            self._complain("diagnostics", error)
            return
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri=document.uri, diagnostics=found, version=document.version)
        )

    def _analyze(self, uri: str) -> None:
        """Analyze the file with all others in a thread; publish if the text is still the same."""
        document = self.files.get(uri)
        if document is not None:
            task = asyncio.get_running_loop().create_task(self._analyze_all(document))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _analyze_all(self, document: Document) -> None:
        text, texts = document.text, self.files.texts()
        try:
            found = await asyncio.to_thread(self.files.found_in_all, document, texts)
        except Exception as error:
            self._complain("analysis of all files", error)
            return
        self._found[document.path] = (text, found)
        if found and document.text == text:
            self._publish(document)

    # --- tests and checks

    def _add_command(self, name: str) -> None:
        @self.command(name)
        async def run(uri: str, rule: str) -> None:
            await self._run(name, uri, rule)

    async def _run(self, command: str, uri: str, rule: str) -> None:
        """Run the tests of a rule, or check its soundness, in a thread."""
        document = self.files.get(uri)
        if document is None:
            self._say(lsp.MessageType.Warning, "The file is not open.")
            return
        services = self.files.services
        work = services.run_tests if command == RUN_TESTS else services.check
        try:
            outcomes = await asyncio.to_thread(work, document.path, self.files.texts(), rule)
        except RewriteError as error:
            self._say(lsp.MessageType.Error, f"{rule}: {str(error).splitlines()[0]}")
            return
        except Exception as error:
            self._complain(command, error)
            self._say(lsp.MessageType.Error, f"{rule}: {type(error).__name__}: {error}")
            return
        self.files.results.store(document, rule, command, outcomes)
        self._publish(document)
        capabilities = self.client_capabilities.workspace
        if capabilities is not None and capabilities.code_lens and capabilities.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)
        self._say(*problems.summary(rule, command, outcomes))

    def _symbols(self, params: lsp.WorkspaceSymbolParams) -> list[lsp.SymbolInformation]:
        return outline.workspace_symbols(self.files, params.query)

    def _resolve(self, item: lsp.CompletionItem) -> lsp.CompletionItem:
        return completion.resolve(self.files, self.files.open.values(), item)


_EVENTS: dict[str, Callable[[RuleServer, Any], Any]] = {
    lsp.INITIALIZED: RuleServer._initialized,
    lsp.TEXT_DOCUMENT_DID_OPEN: RuleServer._did_open,
    lsp.TEXT_DOCUMENT_DID_CHANGE: RuleServer._did_change,
    lsp.TEXT_DOCUMENT_DID_SAVE: RuleServer._did_save,
    lsp.TEXT_DOCUMENT_DID_CLOSE: RuleServer._did_close,
    lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES: RuleServer._publish_all,
    lsp.WORKSPACE_SYMBOL: RuleServer._symbols,
    lsp.COMPLETION_ITEM_RESOLVE: RuleServer._resolve,
}
"""LSP methods that are not about one open document."""
Answer = Callable[[Workspace, Document, Any], Any]
_FEATURES: tuple[tuple[Any, ...], ...] = (
    (lsp.TEXT_DOCUMENT_HOVER, hover.hover),
    (lsp.TEXT_DOCUMENT_DEFINITION, navigation.go_to_definition),
    (lsp.TEXT_DOCUMENT_REFERENCES, navigation.references),
    (lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, navigation.highlights),
    (lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL, outline.document_symbols),
    (lsp.TEXT_DOCUMENT_FOLDING_RANGE, outline.folding_ranges),
    (lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, outline.semantic_tokens, outline.LEGEND),
    (lsp.TEXT_DOCUMENT_INLAY_HINT, inlay_hints.inlay_hints),
    (lsp.TEXT_DOCUMENT_SIGNATURE_HELP, completion.signature_help, completion.SIGNATURE_OPTIONS),
    (lsp.TEXT_DOCUMENT_CODE_LENS, problems.lenses),
    (lsp.TEXT_DOCUMENT_COMPLETION, completion.complete, completion.OPTIONS),
    (lsp.TEXT_DOCUMENT_PREPARE_RENAME, navigation.prepare_rename),
    (lsp.TEXT_DOCUMENT_RENAME, navigation.rename, lsp.RenameOptions(prepare_provider=True)),
    (lsp.TEXT_DOCUMENT_FORMATTING, formatting.formatting),
    (lsp.TEXT_DOCUMENT_RANGE_FORMATTING, formatting.range_formatting),
    (lsp.TEXT_DOCUMENT_CODE_ACTION, problems.fixes, problems.FIX_OPTIONS),
)
"""LSP methods on an open document, with handlers and options."""
