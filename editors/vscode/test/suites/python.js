// Kernels in the strings of a Python program, and Python that is none of ours.
const { accept, assert, dice, fill, hintAt, hints, lineOf, open, until, vscode } = require("./support.js");

const HEAD = "__global__ void saxpy(float a";

module.exports = {
  "a kernel in a string has its hint": async (saw) => {
    const { doc } = await open("program.py");
    assert.equal(doc.languageId, "python");
    await dice();
    saw("hint", await hintAt(doc, HEAD, /(?<!not )verified/));
  },

  "a fill stays in its string": async (saw) => {
    const { doc, editor } = await open("program.py");
    const api = await dice();
    const original = doc.getText();
    const first = lineOf(doc, HEAD) + 1;
    const body = new vscode.Range(first, 0, first + 1, doc.lineAt(first + 1).text.length);
    const { offer } = await fill(api, doc, editor, body);
    assert.equal(doc.getText(), original, "a list changes nothing");
    const row = await until("a row is active", () => api.picker().rows.find((item) => item.active));
    const chosen = offer.candidates.find(({ key }) => key === row.key);
    const place = api.client().protocol2CodeConverter.asRange(offer.range);
    const before = original.slice(0, doc.offsetAt(place.start));
    const after = original.slice(doc.offsetAt(place.end));
    await accept();
    await until("the candidate is in the text", () => doc.getText() === before + chosen.newText + after);
    saw("text", doc.getText(place));
    await until("the list is gone", () => api.picker() === undefined);
    await doc.save();
    saw("hint", await hintAt(doc, HEAD, /(?<!not )verified/));
  },

  "a program without kernels has no hints of ours": async () => {
    const { doc } = await open("plain.py");
    await dice();
    assert.deepEqual(await hints(doc), {});
    assert.deepEqual(vscode.languages.getDiagnostics(doc.uri), []);
  },
};
