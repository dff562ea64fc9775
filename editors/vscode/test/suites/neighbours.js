// clangd beside us: both give hints for one file, and lines that move under them break neither.
const { assert, dice, hintAt, hints, lineOf, open, until, vscode } = require("./support.js");

const HEAD = "__global__ void saxpy";

function ofClangd(doc, found) {
  return found[lineOf(doc, "auto half")];
}

module.exports = {
  "hints of both servers stay right while lines come and go": async (saw) => {
    const { doc, editor } = await open("both.cu");
    await dice();
    const clangd = await vscode.extensions.getExtension("dice-tests.neighbour").activate();
    await hintAt(doc, HEAD, /(?<!not )verified/);
    const found = await until("clangd gives hints", async () => {
      const all = await hints(doc);
      return ofClangd(doc, all) !== undefined && all;
    });
    saw("hints", found);
    const count = Object.keys(found).length;
    editor.selection = new vscode.Selection(0, 0, 0, 0);
    for (let turn = 0; turn < 6; turn++) {
      // As a user types: a line above, one between, and the last of the file away again.
      const edit = new vscode.WorkspaceEdit();
      if (turn < 3) {
        edit.insert(doc.uri, new vscode.Position(turn === 1 ? lineOf(doc, HEAD) : 0, 0), "// one line more\n");
      } else {
        const line = lineOf(doc, "// one line more");
        edit.delete(doc.uri, new vscode.Range(line, 0, line + 1, 0));
      }
      assert(await vscode.workspace.applyEdit(edit));
      await hintAt(doc, HEAD, /(?<!not )verified/);
      const now = await until("all hints are back", async () => {
        const all = await hints(doc);
        return Object.keys(all).length === count && ofClangd(doc, all) !== undefined && all;
      });
      for (const line of Object.keys(now)) {
        assert(Number(line) < doc.lineCount);
        assert(doc.lineAt(Number(line)).text.trim() !== "", `a hint on the empty line ${line}`);
      }
    }
    const text = doc.getText();
    await doc.save();
    assert.equal(doc.getText(), text);
    await hintAt(doc, HEAD, /(?<!not )verified/);
    saw("failures of clangd's client", clangd.failures);
    assert.deepEqual(clangd.failures, []);
  },

  "the problems of both are told apart by their source": async (saw) => {
    const { doc } = await open("both.cu");
    const line = lineOf(doc, HEAD) + 1;
    const edit = new vscode.WorkspaceEdit();
    edit.insert(doc.uri, new vscode.Position(line, 0), "    int broken = nonsense;\n");
    assert(await vscode.workspace.applyEdit(edit));
    await doc.save();
    const both = await until("both complain", () => {
      const sources = vscode.languages.getDiagnostics(doc.uri).filter(({ range }) => range.start.line === line);
      return new Set(sources.map(({ source }) => source)).size === 2 && sources;
    });
    saw(
      "problems",
      both.map(({ source, message }) => `${source}: ${message}`),
    );
    assert(both.some(({ source }) => source === "dice"));
  },
};
