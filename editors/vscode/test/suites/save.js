// Saving: what a kernel is worth is said at its line, and what is wrong is a diagnostic; the text is never touched.
const fs = require("node:fs");
const {
  actions,
  assert,
  bodyOf,
  dice,
  fill,
  hintAt,
  hints,
  leaveList,
  lineOf,
  open,
  runAction,
  serverProcess,
  until,
  vscode,
  workspaceUri,
} = require("./support.js");

const HEAD = "__global__ void saxpy";

async function replace(doc, before, after) {
  const from = doc.getText().indexOf(before, doc.offsetAt(new vscode.Position(lineOf(doc, HEAD), 0)));
  const edit = new vscode.WorkspaceEdit();
  edit.replace(doc.uri, new vscode.Range(doc.positionAt(from), doc.positionAt(from + before.length)), after);
  assert(await vscode.workspace.applyEdit(edit));
}

async function save(doc) {
  const text = doc.getText();
  assert(await doc.save());
  assert.equal(doc.getText(), text, "saving changes nothing");
}

function problems(doc) {
  return vscode.languages
    .getDiagnostics(doc.uri)
    .filter(({ source }) => source === "dice")
    .map(({ message, severity, code, range }) => ({ message, severity, code, line: range.start.line }));
}

async function hoverAt(doc, words) {
  const line = lineOf(doc, words);
  const place = new vscode.Position(line, doc.lineAt(line).text.indexOf("saxpy") + 1);
  const found = await vscode.commands.executeCommand("vscode.executeHoverProvider", doc.uri, place);
  return (found ?? []).flatMap(({ contents }) => contents.map((item) => item.value ?? item)).join("\n");
}

module.exports = {
  "a wrong kernel is said at its line and in the list of problems, and is forgiven": async (saw) => {
    const { doc } = await open("saxpy.cu");
    await dice();
    saw("before", await hintAt(doc, HEAD, /(?<!not )verified/));
    assert.deepEqual(problems(doc), []);
    await replace(doc, "a * x[i] + y[i]", "a * x[i] - y[i]");
    await save(doc);
    saw("wrong", await hintAt(doc, HEAD, /^wrong/));
    const [problem] = await until("there is a problem", () => problems(doc).length && problems(doc));
    saw("problem", problem);
    assert.equal(problem.line, lineOf(doc, HEAD));
    assert.equal(problem.severity, vscode.DiagnosticSeverity.Error);
    await replace(doc, "a * x[i] - y[i]", "a * x[i] + y[i]");
    await until("a problem of an older text is gone at once", () => problems(doc).length === 0);
    await save(doc);
    saw("after", await hintAt(doc, HEAD, /(?<!not )verified/));
  },

  "what does not compile is a problem at its line": async (saw) => {
    const { doc } = await open("saxpy.cu");
    await dice();
    await replace(doc, "a * x[i] + y[i]", "a * nonsense + y[i]");
    await save(doc);
    const [problem] = await until("there is a problem", () => problems(doc).length && problems(doc));
    saw("problem", problem);
    assert.match(problem.message, /nonsense/);
    assert.equal(problem.line, lineOf(doc, "nonsense"));
    await replace(doc, "a * nonsense + y[i]", "a * x[i] + y[i]");
    await save(doc);
    await hintAt(doc, HEAD, /(?<!not )verified/);
    await until("no problem is left", () => problems(doc).length === 0);
  },

  "a kernel is accepted as its own baseline; more registers are told against it": async (saw) => {
    const { doc, editor } = await open("saxpy.cu");
    const api = await dice();
    const before = await hintAt(doc, HEAD, /(\d+) regs/);
    const range = bodyOf(doc, HEAD);
    const offered = (await actions(doc, range)).map(({ title }) => title);
    assert.equal(offered[0], "DICE: fill selection", "code that is selected is to be filled first of all");
    const found = await actions(doc, new vscode.Range(range.start, range.start));
    saw(
      "titles",
      found.map(({ title }) => title),
    );
    const action = found.find(({ title }) => title === "DICE: accept as baseline");
    assert(action, "the kernel can be accepted");
    const answer = await runAction(action);
    saw("answer", answer);
    assert.equal(answer.accepted, true);
    editor.selection = new vscode.Selection(range.start, range.start);
    const registers = Number(/(\d+) regs/.exec(before)[1]);
    await replace(
      doc,
      "z[i] = a * x[i] + y[i];",
      // A branch that no test takes and the compiler cannot leave out: twelve loads are in flight at once.
      "if (n < 0) { float t[12]; for (int k = 0; k < 12; k++) t[k] = x[i + k * n];" +
        " float s = 0; for (int k = 0; k < 12; k++) s += t[k] * t[11 - k]; z[i] = s; } else z[i] = a * x[i] + y[i];",
    );
    await save(doc);
    const after = await hintAt(doc, HEAD, /(?<!not )verified/);
    saw("after", [before, after]);
    assert(Number(/(\d+) regs/.exec(after)[1]) > registers);
    assert.match(after, /regs \(\+\d+\)/);
    const history = await api.client().sendRequest("dice/history", { uri: doc.uri.toString(), kernel: "saxpy" });
    saw("history", { ...history, measurements: history.measurements.length });
    assert.equal(history.baseline.registers, registers);
    assert(history.measurements.length >= 2);
    const hover = await hoverAt(doc, HEAD);
    saw("hover", hover.slice(0, 3000));
    assert.match(hover, new RegExp(`was ${registers}\\b`));
    assert.match(hover, /data:image\/svg\+xml;base64,/);
    assert.equal(fs.readFileSync(workspaceUri(".dice/.gitignore").fsPath, "utf8").trim(), "*");
  },

  "a setting of the server changes without a restart": async (saw) => {
    const { doc, editor } = await open("saxpy.cu");
    const api = await dice();
    const { pid } = serverProcess();
    const settings = vscode.workspace.getConfiguration("dice");
    const before = settings.get("candidates");
    await settings.update("candidates", 1, vscode.ConfigurationTarget.Global);
    await settings.update("inlayHints", false, vscode.ConfigurationTarget.Global);
    await until("hints are gone", async () => Object.keys(await hints(doc)).length === 0);
    const { result } = await fill(api, doc, editor, bodyOf(doc, HEAD));
    saw("candidates", result.candidates.length);
    assert.equal(result.candidates.length, 1);
    await leaveList(api);
    await settings.update("candidates", before, vscode.ConfigurationTarget.Global);
    await settings.update("inlayHints", undefined, vscode.ConfigurationTarget.Global);
    await hintAt(doc, HEAD, /regs/);
    assert.equal(serverProcess().pid, pid);
  },

  "wishes for a restart that come together are one restart": async (saw) => {
    const { doc } = await open("saxpy.cu");
    const api = await dice();
    const { pid } = serverProcess();
    const settings = vscode.workspace.getConfiguration("dice.server");
    const pids = new Set([pid]);
    const watch = setInterval(() => serverProcess() && pids.add(serverProcess().pid), 20);
    await settings.update("interpreter", "/nowhere/python", vscode.ConfigurationTarget.Global);
    await settings.update("path", "/nowhere/dice-lsp", vscode.ConfigurationTarget.Global);
    void vscode.commands.executeCommand("dice-lsp.restart");
    await settings.update("interpreter", undefined, vscode.ConfigurationTarget.Global);
    await settings.update("path", process.env.DICE_TEST_PROGRAM, vscode.ConfigurationTarget.Global);
    await until("another server runs", () => api.client() && serverProcess() && serverProcess().pid !== pid);
    await hintAt(doc, HEAD, /regs/);
    clearInterval(watch);
    saw("pids", [...pids]);
    assert.equal(pids.size, 2);
    assert.equal(api.state().kind, "running");
  },
};
