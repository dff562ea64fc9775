// Two files, three kernels: answers belong to the file that they were asked for.
const {
  accept,
  assert,
  bodyOf,
  dice,
  fill,
  fillAction,
  hintAt,
  hints,
  leaveList,
  lineOf,
  offerOf,
  open,
  runAction,
  until,
  vscode,
} = require("./support.js");

module.exports = {
  "each file has its own hints": async (saw) => {
    const first = await open("saxpy.cu");
    const second = await open("relu.cu");
    await dice();
    saw("saxpy", await hintAt(first.doc, "__global__ void saxpy", /(?<!not )verified/));
    saw("relu", await hintAt(second.doc, "__global__ void relu", /^wrong/));
    saw("square", await hintAt(second.doc, "__global__ void square", /regs/));
    assert.equal(Object.keys(await hints(first.doc)).length, 1);
    assert.equal(Object.keys(await hints(second.doc)).length, 2);
  },

  "two fills at once end in two offers, and each goes into its own file": async (saw) => {
    const first = await open("saxpy.cu");
    const api = await dice();
    const one = bodyOf(first.doc, "__global__ void saxpy");
    const began = runAction(await fillAction(first.doc, one));
    const second = await open("relu.cu");
    const other = bodyOf(second.doc, "__global__ void relu");
    const { result, offer } = await fill(api, second.doc, second.editor, other);
    const ended = await began;
    saw("fills", [ended.fill, result.fill]);
    assert.notEqual(ended.fill, result.fill);
    const offered = await offerOf(api, first.doc, ended.fill);
    assert.equal(offered.uri, first.doc.uri.toString());
    assert.equal(offer.uri, second.doc.uri.toString());
    const untouched = first.doc.getText();
    const row = api.picker().rows.find(({ active }) => active);
    const chosen = offer.candidates.find(({ key }) => key === row.key);
    await accept();
    await until("the candidate is in the second file", () => second.doc.getText().includes(chosen.newText));
    assert.equal(first.doc.getText(), untouched);
    await until("the list is gone", () => api.picker() === undefined);
    await second.doc.save();
    saw("relu", await hintAt(second.doc, "__global__ void relu", /(?<!not )verified/));
  },

  "a file that is closed and opened again has its hints": async (saw) => {
    const { doc } = await open("relu.cu");
    await vscode.commands.executeCommand("workbench.action.closeActiveEditor");
    const again = await open("relu.cu");
    saw("hint", await hintAt(again.doc, "__global__ void square", /regs/));
    assert.equal(lineOf(again.doc, "__global__ void relu"), lineOf(doc, "__global__ void relu"));
    await leaveListIfShown();
  },
};

async function leaveListIfShown() {
  const api = await dice();
  if (api.picker()) {
    await leaveList(api);
  }
}
