// One developer's session with one file: hints, menu, fill, list, diff, accept, undo, redo.
const {
  accept,
  actions,
  assert,
  bodyOf,
  dice,
  diffTab,
  fill,
  hintAt,
  hints,
  leaveList,
  lineOf,
  open,
  until,
  vscode,
} = require("./support.js");

const HEAD = "__global__ void saxpy";

module.exports = {
  "a kernel says at its line what it is worth": async (saw) => {
    const { doc } = await open("saxpy.cu");
    assert.equal(doc.languageId, "cuda-cpp");
    const api = await dice();
    saw("state", api.state().kind);
    saw("hint", await hintAt(doc, HEAD, /(?<!not )verified/));
    await until("the status item says that it is ready", () => /DICE: ready on host/.test(api.status().text));
    saw("status", api.status());
  },

  "the menu offers to fill, marked as made by a model": async (saw) => {
    const { doc } = await open("saxpy.cu");
    const api = await dice();
    const found = await actions(doc, bodyOf(doc, HEAD));
    saw(
      "titles",
      found.map(({ title }) => title),
    );
    assert(found.some(({ title }) => title === "DICE: fill selection"));
    // What VS Code gives back of an action leaves the mark out; the server sends it only to a client that can show it.
    const sent = await api.client().sendRequest("textDocument/codeAction", {
      textDocument: { uri: doc.uri.toString() },
      range: api.client().code2ProtocolConverter.asRange(bodyOf(doc, HEAD)),
      context: { diagnostics: [] },
    });
    const mine = sent.find(({ title }) => title === "DICE: fill selection");
    saw("tags", mine.tags);
    const item = await api.client().protocol2CodeConverter.asCodeAction(mine);
    saw("isAI", item.isAI);
    assert.deepEqual(mine.tags, [1]);
    assert.equal(item.isAI, true);
  },

  "a list with a diff; Enter takes the candidate, one undo takes it back": async (saw) => {
    const { doc, editor } = await open("saxpy.cu");
    const api = await dice();
    const original = doc.getText();
    const range = bodyOf(doc, HEAD);
    const { picker, result, offer } = await fill(api, doc, editor, range);
    saw("rows", picker.rows);
    saw("result", result);
    assert.equal(result.reason ?? null, null);
    assert(offer.candidates.length >= 1 && offer.candidates.length <= 4);
    assert.equal(picker.rows.length, offer.candidates.length);
    assert.equal(doc.getText(), original, "a list changes nothing");
    const row = await until("a row is active", () => picker.rows.find((item) => item.active));
    const chosen = offer.candidates.find(({ key }) => key === row.key);
    const place = api.client().protocol2CodeConverter.asRange(offer.range);
    const expected =
      original.slice(0, doc.offsetAt(place.start)) + chosen.newText + original.slice(doc.offsetAt(place.end));
    const shown = await until("the diff of the active row is shown", () => {
      const diff = diffTab();
      return diff && diff.modified.query.includes(`key=${row.key}`) && diff;
    });
    assert.equal(shown.original.toString(), doc.uri.toString());
    const right = await vscode.workspace.openTextDocument(shown.modified);
    assert.equal(right.getText(), expected);
    saw("language of the diff", right.languageId);
    await accept();
    await until("the candidate is in the text", () => doc.getText() === expected);
    await until("the list and the diff are gone", () => api.picker() === undefined && diffTab() === undefined);
    assert.equal(vscode.window.activeTextEditor.document, doc);
    await hintAt(doc, HEAD, /(?<!not )verified/);
    await vscode.commands.executeCommand("undo");
    assert.equal(doc.getText(), original, "one undo takes a candidate back");
    await hintAt(doc, HEAD, /(?<!not )verified/);
    await vscode.commands.executeCommand("redo");
    assert.equal(doc.getText(), expected, "redo brings it again");
    await vscode.commands.executeCommand("undo");
    saw("expected", expected);
  },

  "Escape leaves text, tabs and cursor as they were": async (saw) => {
    const { doc, editor } = await open("saxpy.cu");
    const api = await dice();
    const original = doc.getText();
    const range = bodyOf(doc, HEAD);
    const { picker } = await fill(api, doc, editor, range);
    await until("the diff is shown", () => diffTab());
    const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs).length;
    await vscode.commands.executeCommand("workbench.action.quickOpenSelectNext");
    await leaveList(api);
    await until("the diff is gone", () => vscode.window.tabGroups.all.flatMap((group) => group.tabs).length < tabs);
    saw("rows", picker.rows.length);
    assert.equal(doc.getText(), original);
    await until("the file is in front", () => vscode.window.activeTextEditor?.document === doc);
    assert(vscode.window.activeTextEditor.selection.isEqual(new vscode.Selection(range.start, range.end)));
  },

  "what was offered stays offered, and a body can be filled without a selection": async (saw) => {
    const { doc, editor } = await open("saxpy.cu");
    const api = await dice();
    const line = lineOf(doc, HEAD) + 1;
    editor.selection = new vscode.Selection(line, 4, line, 4);
    await vscode.commands.executeCommand("dice-lsp.candidates");
    const picker = await until("the list is shown", () => api.picker());
    saw("rows", picker.rows);
    assert(picker.rows.length >= 1);
    await leaveList(api);
    const filled = vscode.commands.executeCommand("dice-lsp.fillBody");
    await until("the list is shown for the body", () => api.picker()?.rows.length);
    const result = await filled;
    saw("result", result);
    await leaveList(api);
    saw("hints", await hints(doc));
  },

  "a directive is completed in its comment and written by a command": async (saw) => {
    const { doc, editor } = await open("saxpy.cu");
    await dice();
    const original = doc.getText();
    const line = lineOf(doc, HEAD);
    await editor.edit((edit) => edit.insert(new vscode.Position(line, 0), "//dice: \n"));
    const at = new vscode.Position(line, "//dice: ".length);
    const found = await vscode.commands.executeCommand("vscode.executeCompletionItemProvider", doc.uri, at);
    const labels = found.items.map(({ label }) => label.label ?? label);
    saw("completion", labels);
    assert(labels.includes("launch") && labels.some((label) => label.startsWith("ref saxpy_cpu")));
    await vscode.commands.executeCommand("undo");
    assert.equal(doc.getText(), original);
    editor.selection = new vscode.Selection(line, 0, line, 0);
    await vscode.commands.executeCommand("dice-lsp.writeDirective");
    await until("the directive is written", () => doc.lineAt(line).text.startsWith("//dice: n = "));
    saw("directive", doc.lineAt(line).text);
    await vscode.commands.executeCommand("undo");
    assert.equal(doc.getText(), original, "one undo takes a directive back");
    assert((await vscode.commands.getCommands()).includes("dice-lsp.capture"));
  },
};
