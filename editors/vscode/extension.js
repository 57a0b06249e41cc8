// Starts `rewrite lsp` for rule files. Everything else is the language server's.

"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function start() {
  const settings = vscode.workspace.getConfiguration("rewrite");
  const server = { command: settings.get("command", "rewrite"), args: ["lsp", ...settings.get("arguments", [])] };
  client = new LanguageClient("rewrite", "Rewrite rules", server, {
    documentSelector: [{ language: "rules" }],
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.rules") },
  });
  try {
    await client.start();
  } catch (error) {
    const choice = await vscode.window.showErrorMessage(
      `Cannot start "${server.command} lsp": ${error.message ?? error} Is it installed (pip install 'onnx-rewrite[lsp]')?`,
      "Settings"
    );
    if (choice) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "rewrite.command");
    }
  }
}

async function stop() {
  if (client && client.isRunning()) {
    await client.stop();
  }
  client = undefined;
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("rewrite.restart", async () => {
      await stop();
      await start();
    }),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("rewrite.command") || event.affectsConfiguration("rewrite.arguments")) {
        await stop();
        await start();
      }
    })
  );
  await start();
}

module.exports = { activate, deactivate: stop };
