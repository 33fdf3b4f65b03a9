// Starts `cvm lsp`, and shows what code lenses ask for: a stage of compilation beside the program, or the result of its tests.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client, results;

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
  if (command === "cvm.test" && content) {
    results = results || vscode.window.createOutputChannel("cvm test");
    results.clear();
    results.append(content);
    results.show(true);
  }
  return content;
}

module.exports = { activate, deactivate: () => client && client.stop() };
