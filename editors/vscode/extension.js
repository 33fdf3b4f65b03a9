// Starts `cvm lsp`, and shows a stage of compilation beside the program when a code lens is clicked.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function activate(context) {
  const [command, ...args] = vscode.workspace.getConfiguration("cvm").get("command");
  client = new LanguageClient("cvm", "cvm", { command, args }, {
    documentSelector: [{ language: "cvm" }],
    middleware: { executeCommand: show },
  });
  await client.start();
  context.subscriptions.push(client);
}

async function show(command, args, next) {
  const content = await next(command, args);
  if (command === "cvm.lower" && content) {
    const document = await vscode.workspace.openTextDocument({ content, language: args[2] === "llvm" ? "llvm" : "cvm" });
    await vscode.window.showTextDocument(document, vscode.ViewColumn.Beside, true);
  }
  return content;
}

module.exports = { activate, deactivate: () => client && client.stop() };
