// What the suites share: documents, hints, the extension's API, and the processes below the extension host.
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const vscode = require("vscode");

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Asks until the answer is true; a failure says what was waited for and what was seen last, and only that has a bound. */
async function until(what, condition, deadline_s = 180) {
  const end = Date.now() + deadline_s * 1000;
  let last;
  // Asking takes the time of those who are waited for, so the pauses grow.
  for (let pause_ms = 20; Date.now() < end; pause_ms = Math.min(pause_ms * 1.3, 250)) {
    try {
      last = await condition();
      if (last) {
        return last;
      }
    } catch (error) {
      last = error;
    }
    await sleep(pause_ms);
  }
  throw new Error(
    `waited in vain until ${what}; last seen: ${last instanceof Error ? last.stack : JSON.stringify(last)}`,
  );
}

let folder = "";

/** What `open` opens from here on lies in the folder of this suite. */
function enter(suite) {
  folder = suite;
}

/** Ends what a suite has left open or changed, so that the next one finds the window as this one did. */
async function leave() {
  await vscode.commands.executeCommand("workbench.action.closeQuickOpen");
  for (const doc of vscode.workspace.textDocuments.filter(({ isDirty }) => isDirty)) {
    await vscode.window.showTextDocument(doc, { preview: false });
    await vscode.commands.executeCommand("workbench.action.files.revert");
  }
  await vscode.commands.executeCommand("workbench.action.closeAllEditors");
}

/** A file of the present suite. */
function uriOf(name) {
  return workspaceUri(path.posix.join(folder, name));
}

function workspaceUri(name) {
  return vscode.Uri.joinPath(vscode.workspace.workspaceFolders[0].uri, name);
}

async function open(name) {
  const doc = await vscode.workspace.openTextDocument(uriOf(name));
  // VS Code refuses while another editor is being closed or shown, such as a diff of the test before.
  const editor = await until(`${name} is shown`, () => vscode.window.showTextDocument(doc, { preview: false }));
  return { doc, editor };
}

/** The extension's API, once its server runs. */
async function dice() {
  const extension = vscode.extensions.getExtension("dice-lsp.dice-lsp");
  assert(extension, "the extension is not there");
  const api = await extension.activate();
  await until("the server runs", () => api.client() !== undefined);
  return api;
}

function labelOf({ label }) {
  return typeof label === "string" ? label : label.map((part) => part.value).join("");
}

/** Labels of the inlay hints of a document by line, as every provider gives them. */
async function hints(doc) {
  const whole = new vscode.Range(0, 0, doc.lineCount, 0);
  const found = await vscode.commands.executeCommand("vscode.executeInlayHintProvider", doc.uri, whole);
  return Object.fromEntries((found ?? []).map((hint) => [hint.position.line, labelOf(hint)]));
}

/** The first line with these words. */
function lineOf(doc, words) {
  for (let line = 0; line < doc.lineCount; line++) {
    if (doc.lineAt(line).text.includes(words)) {
      return line;
    }
  }
  throw new Error(`no line of ${doc.uri.path} has ${words}`);
}

function hintAt(doc, words, pattern, deadline_s) {
  return until(
    `the hint at ${words} matches ${pattern}`,
    async () => {
      const label = (await hints(doc))[lineOf(doc, words)] ?? "";
      if (pattern.test(label)) {
        return label;
      }
      throw new Error(`the hint is ${JSON.stringify(label)}`);
    },
    deadline_s,
  );
}

/** Whole lines of the body between the line after `head` and the line before the closing brace. */
function bodyOf(doc, head) {
  const first = lineOf(doc, head) + 1;
  let last = first;
  while (
    !/^\s*\}/.test(doc.lineAt(last).text) ||
    doc.lineAt(last).text.startsWith(" ") ||
    doc.lineAt(last).text.startsWith("\t")
  ) {
    last++;
  }
  return new vscode.Range(first, 0, last - 1, doc.lineAt(last - 1).text.length);
}

async function actions(doc, range) {
  return (await vscode.commands.executeCommand("vscode.executeCodeActionProvider", doc.uri, range)) ?? [];
}

/** The action "DICE: fill selection" or "DICE: fill body of ..." for a range, as the menu of VS Code has it. */
async function fillAction(doc, range) {
  return until("the fill is offered", async () => {
    const found = await actions(doc, range);
    return (
      found.find((action) => /^DICE: fill/.test(action.title)) ?? Promise.reject(new Error(found.map((a) => a.title)))
    );
  });
}

/** Runs a code action's command as the menu does; the promise ends when the fill has ended. */
function runAction(action) {
  return vscode.commands.executeCommand(action.command.command, ...(action.command.arguments ?? []));
}

/** Selects lines, fills them and waits for the list; gives the offer as the server has it. */
async function fill(api, doc, editor, range) {
  editor.selection = new vscode.Selection(range.start, range.end);
  const action = await fillAction(doc, range);
  const ended = runAction(action);
  const picker = await until("the list is shown", () => api.picker()?.rows.length && api.picker());
  const result = await ended;
  const offer = await offerOf(api, doc, result.fill);
  return { action, picker, result, offer };
}

async function offerOf(api, doc, number) {
  const uri = api.client().code2ProtocolConverter.asUri(doc.uri);
  const offers = await api.client().sendRequest("dice/candidates", { uri });
  return offers.find((offer) => offer.fill === number);
}

/** Enter in the list. */
async function accept() {
  await vscode.commands.executeCommand("workbench.action.acceptSelectedQuickOpenItem");
}

async function leaveList(api) {
  await vscode.commands.executeCommand("workbench.action.closeQuickOpen");
  await until("the list is closed", () => api.picker() === undefined);
}

function diffTab() {
  const tab = vscode.window.tabGroups.activeTabGroup.activeTab;
  return tab && tab.input instanceof vscode.TabInputTextDiff ? tab.input : undefined;
}

/** Processes below a process, as {pid, command}, children first to last. */
function below(root = process.pid) {
  const all = [];
  for (const name of fs.readdirSync("/proc").filter((item) => /^\d+$/.test(item))) {
    try {
      const stat = fs.readFileSync(`/proc/${name}/stat`, "utf8");
      const [state, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      const command = fs.readFileSync(`/proc/${name}/cmdline`, "utf8").split("\0").join(" ").trim();
      if (state !== "Z") {
        all.push({ pid: Number(name), parent: Number(parent), command });
      }
    } catch {
      // It has ended meanwhile.
    }
  }
  const found = [];
  const visit = (pid) => {
    for (const child of all.filter((item) => item.parent === pid)) {
      found.push(child);
      visit(child.pid);
    }
  };
  visit(root);
  return found;
}

/** The server process of the extension. */
function serverProcess() {
  return below().find(({ command }) => /dice-lsp serve$|-m dice_lsp serve$/.test(command));
}

function alive(pid) {
  return fs.existsSync(`/proc/${pid}`) && !/\) Z /.test(fs.readFileSync(`/proc/${pid}/stat`, "utf8"));
}

module.exports = {
  accept,
  actions,
  alive,
  assert,
  below,
  bodyOf,
  dice,
  diffTab,
  enter,
  fill,
  fillAction,
  hintAt,
  hints,
  leave,
  leaveList,
  lineOf,
  offerOf,
  open,
  runAction,
  serverProcess,
  sleep,
  until,
  vscode,
  workspaceUri,
};
