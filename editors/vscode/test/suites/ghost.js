// The best candidate as ghost text in a body that is still empty, and an edit that is shown before it is made.
const {
  assert,
  bodyOf,
  dice,
  fill,
  hintAt,
  leaveList,
  lineOf,
  offerOf,
  open,
  sleep,
  until,
  vscode,
} = require("./support.js");

const HEAD = "__global__ void saxpy";

module.exports = {
  "the best candidate stands at the cursor and Tab takes it": async (saw) => {
    const { doc, editor } = await open("blank.cu");
    const api = await dice();
    const before = doc.getText();
    const line = lineOf(doc, HEAD) + 1;
    assert.equal(doc.lineAt(line).text, "    ");
    saw("before", await hintAt(doc, HEAD, /./));
    editor.selection = new vscode.Selection(line, 4, line, 4);
    const filled = vscode.commands.executeCommand("dice-lsp.fillBody");
    saw("filled", await filled);
    await until("the list is shown", () => api.picker()?.rows.length);
    const { fill: number } = await filled;
    await leaveList(api);
    await until("the file is in front", () => vscode.window.activeTextEditor?.document === doc);
    const offer = await offerOf(api, doc, number);
    const written = offer.candidates[0].text.trim();
    saw("written", written);
    vscode.window.activeTextEditor.selection = new vscode.Selection(line, 4, line, 4);
    await until("the ghost is taken", async () => {
      await vscode.commands.executeCommand("editor.action.inlineSuggest.trigger");
      await sleep(300);
      await vscode.commands.executeCommand("editor.action.inlineSuggest.commit");
      return doc.getText() !== before;
    });
    const [head, tail] = [
      before.slice(0, doc.offsetAt(new vscode.Position(line, 4))),
      before.slice(before.indexOf("\n}\n", before.indexOf(HEAD))),
    ];
    assert.equal(doc.getText(), head + written + tail);
    saw("hint", await hintAt(doc, HEAD, /(?<!not )verified/));
    await vscode.commands.executeCommand("undo");
    assert.equal(doc.getText(), before);
  },

  "an edit with a preview is made only when the user says so": async (saw) => {
    const { doc, editor } = await open("saxpy.cu");
    const api = await dice();
    const before = doc.getText();
    const { offer } = await fill(api, doc, editor, bodyOf(doc, HEAD));
    await leaveList(api);
    const [best] = offer.candidates;
    const given = { fill: offer.fill, candidate: best.label, key: best.key, preview: true };
    const applied = vscode.commands.executeCommand("dice.apply", given);
    let over = false;
    applied.then(() => (over = true));
    await until("the preview is over", async () => {
      await vscode.commands.executeCommand("refactorPreview.discard").then(
        () => {},
        () => {},
      );
      return over;
    });
    saw("answer", await applied);
    assert.equal((await applied).applied, false);
    assert.equal(doc.getText(), before);
    assert((await offerOf(api, doc, offer.fill)).candidates.length >= 1, "what was not taken stays on offer");
  },
};
