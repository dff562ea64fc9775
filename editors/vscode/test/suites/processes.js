// What runs below the editor may be stopped or die at any moment: nothing hangs, nothing stays behind, all works again.
const {
  alive,
  assert,
  below,
  bodyOf,
  dice,
  fill,
  fillAction,
  hintAt,
  leaveList,
  lineOf,
  open,
  runAction,
  serverProcess,
  until,
  vscode,
} = require("./support.js");

const HEAD = "__global__ void saxpy";
const WORKER = /dice_lsp\.(diffusion|worker)/;

function state(api) {
  return api.status().server?.state;
}

function child(pattern) {
  return below(serverProcess().pid).find(({ command }) => pattern.test(command));
}

/** Kills what is running and everything that it would have cleaned up is gone too. */
async function allGone(processes) {
  await until("every process of the old server is gone", () => {
    const left = processes.filter(({ pid }) => alive(pid));
    if (left.length) {
      throw new Error(JSON.stringify(left));
    }
    return true;
  });
}

async function begin(api, doc, editor) {
  const range = bodyOf(doc, HEAD);
  editor.selection = new vscode.Selection(range.start, range.end);
  const ended = runAction(await fillAction(doc, range));
  return { ended };
}

function settled(promise) {
  return promise.then(
    (value) => ({ value }),
    (error) => ({ error: String(error?.message ?? error), code: error?.code }),
  );
}

async function fillsAgain(api, doc, editor, saw) {
  const { picker, result } = await fill(api, doc, editor, bodyOf(doc, HEAD));
  saw(
    "filled again",
    picker.rows.map(({ label }) => label),
  );
  assert.equal(result.reason ?? null, null);
  assert(picker.rows.length >= 1);
  await leaveList(api);
}

module.exports = {
  "thirty hovers, thirty cancels and twenty edits while a fill runs: each is answered, and the fill stops": async (
    saw,
  ) => {
    // As many that a fill is not over before it is stopped.
    await vscode.workspace.getConfiguration("dice").update("candidates", 8, vscode.ConfigurationTarget.Global);
    const { doc, editor } = await open("saxpy.cu");
    const api = await dice();
    await hintAt(doc, HEAD, /(?<!not )verified/);
    await until("nothing runs", () => state(api) === "idle");
    const { ended } = await begin(api, doc, editor);
    await until("the fill runs", () => state(api) === "filling");
    const client = api.client();
    const kernel = lineOf(doc, HEAD);
    const answers = [];
    for (let turn = 0; turn < 30; turn++) {
      const hover = { textDocument: { uri: doc.uri.toString() }, position: { line: kernel, character: 18 } };
      const began = Date.now();
      const timed = (promise) => settled(promise).then((outcome) => ({ ...outcome, ms: Date.now() - began }));
      const source = new vscode.CancellationTokenSource();
      answers.push(timed(client.sendRequest("textDocument/hover", hover, source.token)));
      answers.push(timed(client.sendRequest("textDocument/hover", hover)));
      source.cancel();
      if (turn < 20) {
        const edit = new vscode.WorkspaceEdit();
        edit.insert(doc.uri, new vscode.Position(0, 0), turn % 2 ? "/" : "//\n");
        assert(await vscode.workspace.applyEdit(edit));
      }
    }
    const all = await Promise.all(answers);
    saw("slowest answer, ms", Math.max(...all.map(({ ms }) => ms)));
    const failed = all.filter(({ error, code }) => error && code !== -32800 && code !== -32801);
    saw("failed", failed);
    assert.equal(all.length, 60);
    assert.deepEqual(failed, [], "a hover is answered, cancelled, or told that the text has moved");
    await vscode.commands.executeCommand("dice-lsp.cancel");
    const end = await settled(ended);
    saw("end", end);
    await until("nothing runs", () => state(api) !== "filling");
    await until("no compiler and no run is left", () => {
      const left = below(serverProcess().pid).filter(({ command }) => !WORKER.test(command));
      if (left.length) {
        throw new Error(JSON.stringify(left));
      }
      return true;
    });
    saw(
      "children",
      below(serverProcess().pid).map(({ command }) => command),
    );
    if (api.picker()) {
      await leaveList(api);
    }
    await vscode.commands.executeCommand("workbench.action.files.revert");
  },

  "the server is killed during a fill: a new one comes, nothing of the old one stays, and it works": async (saw) => {
    const { doc, editor } = await open("saxpy.cu");
    const api = await dice();
    const text = doc.getText();
    await begin(api, doc, editor);
    await until("the fill runs", () => state(api) === "filling");
    const old = serverProcess();
    const family = [old, ...below(old.pid)];
    saw(
      "killed",
      family.map(({ command }) => command),
    );
    process.kill(old.pid, "SIGKILL");
    await until("another server runs", () => api.client() && serverProcess() && serverProcess().pid !== old.pid);
    await allGone(family);
    await until("nothing hangs in the status item", () => state(api) === "idle");
    assert.equal(doc.getText(), text);
    await hintAt(doc, HEAD, /(?<!not )verified/);
    await fillsAgain(api, doc, editor, saw);
  },

  "the model's process is killed during a fill: the fill ends with a reason, the status is not stuck": async (saw) => {
    const { doc, editor } = await open("saxpy.cu");
    const api = await dice();
    await until("nothing runs", () => state(api) === "idle");
    const { ended } = await begin(api, doc, editor);
    const model = await until("the model runs", () => state(api) === "filling" && child(/dice_lsp\.diffusion/));
    process.kill(model.pid, "SIGKILL");
    const end = await settled(ended);
    saw("end", end);
    await until("the fill is over in the status item", () => state(api) !== "filling");
    saw("status", api.status());
    if (api.picker()) {
      await leaveList(api);
    }
    await fillsAgain(api, doc, editor, saw);
    assert.equal(state(api), "idle");
  },

  "the judge's process is killed during a check: the check ends, and the next one is good": async (saw) => {
    const { doc } = await open("saxpy.cu");
    const api = await dice();
    await until("nothing runs", () => state(api) === "idle");
    const edit = new vscode.WorkspaceEdit();
    edit.insert(doc.uri, new vscode.Position(lineOf(doc, HEAD) + 1, 0), "    if (n == -1) return;\n");
    assert(await vscode.workspace.applyEdit(edit));
    const checked = vscode.commands.executeCommand("dice.check", { uri: doc.uri.toString() });
    const judge = await until("the check runs", () => state(api) === "checking" && child(/dice_lsp\.worker/));
    process.kill(judge.pid, "SIGKILL");
    saw("check", await settled(checked));
    await until("the check is over in the status item", () => state(api) !== "checking");
    saw("status", api.status());
    await doc.save();
    saw("hint", await hintAt(doc, HEAD, /(?<!not )verified/));
    await until("nothing runs", () => state(api) === "idle");
  },

  "a fill is cancelled while the model loads": async (saw) => {
    const { doc, editor } = await open("saxpy.cu");
    const api = await dice();
    const old = serverProcess();
    const family = [old, ...below(old.pid)];
    await vscode.commands.executeCommand("dice-lsp.restart");
    await until("another server runs", () => api.client() && serverProcess() && serverProcess().pid !== old.pid);
    await allGone(family);
    const { ended } = await begin(api, doc, editor);
    const seen = await until("the model loads or has loaded", () => {
      const model = api.status().server?.model?.state;
      return (model === "loading" || model === "ready") && model;
    });
    saw("model", seen);
    assert.equal(seen, "loading");
    await vscode.commands.executeCommand("dice-lsp.cancel");
    const end = await settled(ended);
    saw("end", end);
    assert.equal(end.value?.candidates?.length ?? 0, 0);
    assert.equal(api.picker(), undefined);
    await until("nothing hangs in the status item", () => state(api) !== "filling");
    saw("status", api.status());
    await fillsAgain(api, doc, editor, saw);
  },
};
