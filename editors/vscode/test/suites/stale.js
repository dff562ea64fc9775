// Edits between an offer and its acceptance: the place is found again, or the candidate is refused; never a wrong place.
const { accept, assert, bodyOf, dice, fill, leaveList, lineOf, offerOf, open, until, vscode } = require("./support.js");

const HEAD = "__global__ void scale";

function insert(doc, line, character, text) {
  const edit = new vscode.WorkspaceEdit();
  edit.insert(doc.uri, new vscode.Position(line, character), text);
  return vscode.workspace.applyEdit(edit);
}

function replaced(doc, api, offer, candidate) {
  const place = api.client().protocol2CodeConverter.asRange(offer.range);
  const text = doc.getText();
  return text.slice(0, doc.offsetAt(place.start)) + candidate.newText + text.slice(doc.offsetAt(place.end));
}

function active(picker, offer) {
  const row = picker.rows.find((item) => item.active);
  return offer.candidates.find(({ key }) => key === row.key);
}

/** Fills the body of `scale`, edits by `change` while the list is open, and presses Enter in the same breath. */
async function editAndAccept(name, change, saw) {
  const { doc, editor } = await open(name);
  const api = await dice();
  const before = doc.getText();
  const { picker, offer } = await fill(api, doc, editor, bodyOf(doc, HEAD));
  const candidate = active(picker, offer);
  const oldPlace = api.client().protocol2CodeConverter.asRange(offer.range);
  const old = doc.getText(oldPlace);
  const edited = change(doc);
  await accept();
  assert(await edited, "the edit itself is applied");
  const text = doc.getText();
  await until("the list is gone", () => api.picker() === undefined);
  saw("candidate", candidate.newText);
  return { doc, api, before, old, text, candidate };
}

function allLinesEndWith(text, end) {
  const ends = text.match(/\r?\n/g) ?? [];
  assert(ends.length > 5 && ends.every((item) => item === end), `mixed line ends in ${JSON.stringify(text)}`);
}

async function survives(name, change, end, saw) {
  const { doc, before, old, candidate } = await editAndAccept(name, change, saw);
  await until("the candidate stands where its words stood", () => doc.getText().includes(candidate.newText));
  const [head, tail] = splitAround(before, old);
  const now = doc.getText();
  saw("now", now);
  assert(now.endsWith(tail), "what follows the region is untouched");
  // One character more above the region is the edit, and nothing else has changed there.
  const kept = now.slice(0, now.length - tail.length - candidate.newText.length);
  assert.equal(kept.length, head.length + 1);
  assert.equal(kept.replace("!", ""), head);
  allLinesEndWith(now, end);
  assert(
    candidate.newText.split(/\r?\n/).every((line) => !/^ /.test(line)),
    "a file indented with tabs gets tabs",
  );
  return { doc, now };
}

function splitAround(text, words) {
  const at = text.indexOf(words);
  assert(at >= 0 && text.indexOf(words, at + 1) === -1);
  return [text.slice(0, at), text.slice(at + words.length)];
}

/** One character into the comment in Chinese above the selection. */
function intoComment(doc) {
  const line = lineOf(doc, "归约");
  return insert(doc, line, doc.lineAt(line).text.indexOf("🚀"), "!");
}

module.exports = {
  "one character above the selection, CRLF and tabs": async (saw) => {
    const { doc, now } = await survives("crlf.cu", intoComment, "\r\n", saw);
    await vscode.commands.executeCommand("undo");
    assert.notEqual(doc.getText(), now);
    await doc.save();
  },

  "one character above the selection, LF": async (saw) => {
    await survives("lf.cu", intoComment, "\n", saw);
  },

  "one character inside the selection: refused, and the text is what was typed": async (saw) => {
    const typed = (doc) => {
      const line = lineOf(doc, "if (i < n)") + 1;
      return insert(doc, line, doc.lineAt(line).text.indexOf("a *"), "2");
    };
    const { doc, api, before, text } = await editAndAccept("inside.cu", typed, saw);
    assert.equal(text, before.replace("a * x[i]; //", "2a * x[i]; //"));
    const uri = doc.uri.toString();
    // An answer to this request comes after the refused edit, whatever the server did about it.
    await api.client().sendRequest("dice/candidates", { uri });
    assert.equal(doc.getText(), text);
  },

  "part of a line after wide characters on that line": async (saw) => {
    const { doc, editor } = await open("wide.cu");
    const api = await dice();
    const line = lineOf(doc, "if (i < n)") + 1;
    const words = "a * x[i]";
    const at = doc.lineAt(line).text.indexOf(words);
    const before = doc.getText();
    const range = new vscode.Range(line, at, line, at + words.length);
    assert.equal(doc.getText(range), words);
    const { picker, offer } = await fill(api, doc, editor, range);
    saw("rows", picker.rows);
    const place = api.client().protocol2CodeConverter.asRange(offer.range);
    saw("place", [doc.getText(place), offer.text]);
    assert.equal(doc.getText(place), offer.text, "positions count UTF-16 units");
    const expected = replaced(doc, api, offer, active(picker, offer));
    await accept();
    await until("the candidate is applied", () => doc.getText() === expected);
    assert(expected.includes("/* 归约 ✅ 🚀 */"));
    await vscode.commands.executeCommand("undo");
    assert.equal(doc.getText(), before);
  },

  "a candidate of text that is gone is refused with the reason": async (saw) => {
    const { doc, editor } = await open("gone.cu");
    const api = await dice();
    const range = bodyOf(doc, HEAD);
    const { offer } = await fill(api, doc, editor, range);
    await leaveList(api);
    const edit = new vscode.WorkspaceEdit();
    edit.delete(doc.uri, new vscode.Range(lineOf(doc, HEAD), 0, doc.lineCount, 0));
    assert(await vscode.workspace.applyEdit(edit));
    const text = doc.getText();
    const [first] = offer.candidates;
    const answer = await vscode.commands.executeCommand("dice.apply", {
      fill: offer.fill,
      candidate: first.label,
      key: first.key,
    });
    saw("answer", answer);
    assert.equal(answer.applied, false);
    assert(answer.reason.length > 10);
    assert.equal(doc.getText(), text);
    await vscode.commands.executeCommand("undo");
    assert((await offerOf(api, doc, offer.fill)) !== undefined, "undo brings the offer back");
  },
};
