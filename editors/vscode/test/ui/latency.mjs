// How long a user waits: each time is taken in the page, from the key to the first change of the screen that shows it.
import {
  goToLine,
  openMenu,
  runCommand,
  selectLines,
  textOf,
  waitForCandidates,
  waitForFile,
  waitForHint,
} from "./keys.mjs";

/** Starts a clock at the next press of `key` and stops it when `isThere` holds after a change of the page. */
async function clock(page, key, isThere, given = null) {
  await page.evaluate(
    ([wanted, source, argument]) => {
      const holds = new Function("given", `return (${source})(given);`);
      window.diceClock = new Promise((resolve) => {
        let began;
        const look = () => {
          if (began !== undefined && holds(argument)) {
            observer.disconnect();
            resolve(performance.now() - began);
          }
        };
        const observer = new MutationObserver(look);
        observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
        const onKey = (event) => {
          if (event.key === wanted) {
            began = performance.now();
            removeEventListener("keydown", onKey, true);
          }
        };
        addEventListener("keydown", onKey, true);
      });
    },
    [key, isThere.toString(), given],
  );
  return () => page.evaluate(() => window.diceClock);
}

const menuIsThere = () =>
  [...document.querySelectorAll(".action-widget .monaco-list-row")].some((row) =>
    row.textContent.includes("DICE: fill selection"),
  );

const textIsThere = (words) =>
  !document.querySelector(".monaco-diff-editor") &&
  [...document.querySelectorAll(".view-line")].some((line) => line.textContent.replace(/\u00a0/g, " ").includes(words));

const hintIsThere = (head) => {
  const line = [...document.querySelectorAll(".view-line")].find((each) =>
    each.textContent.replace(/\u00a0/g, " ").includes(head),
  );
  const text = line?.textContent.replace(/\u00a0/g, " ") ?? "";
  return /\d+ regs/.test(text) && !text.includes("stale");
};

export default async ({ page, probe, until, step, given }) => {
  const times = { "key press to menu": [], "accept to text": [], "save to first hint": [] };
  const name = "saxpy.cu";
  const head = "__global__ void saxpy";
  const state = () =>
    probe((vscode) => vscode.extensions.getExtension("dice-lsp.dice-lsp").exports.status().server?.state);
  const idle = () => until("nothing runs", async () => (await state()) === "idle");
  await waitForHint(page, /regs.* verified on host/);
  await idle();
  await page.locator(".monaco-editor").first().click();
  const original = await textOf(probe, name);
  const kernel = original.split("\n").findIndex((line) => line.startsWith(head)) + 1;

  for (let run = 0; run < given.runs; run++) {
    await selectLines(page, kernel + 1, kernel + 3);
    const stopped = await clock(page, ".", menuIsThere);
    await openMenu(page, "DICE: fill selection");
    times["key press to menu"].push(await stopped());
    await page.keyboard.press("Escape");
    await page.locator(".action-widget").waitFor({ state: "hidden" });
  }

  await goToLine(page, kernel + 1);
  await runCommand(page, "DICE: Fill Kernel Body");
  await waitForCandidates(page, until);
  const candidate = await probe(async (vscode) => {
    const client = vscode.extensions.getExtension("dice-lsp.dice-lsp").exports.client();
    const { uri } = vscode.workspace.textDocuments.find((document) => document.uri.path.endsWith("saxpy.cu"));
    return (await client.sendRequest("dice/candidates", { uri: uri.toString() }))[0].candidates[0].newText;
  });
  const old = original.split("\n");
  const words = candidate
    .split("\n")
    .map((line) => line.trim())
    .find((line) => line && !old.some((each) => each.includes(line)));
  for (let run = 0; run < given.runs; run++) {
    await page.locator(".monaco-diff-editor").waitFor();
    const stopped = await clock(page, "Enter", textIsThere, words);
    await page.keyboard.press("Enter");
    times["accept to text"].push(await stopped());
    await waitForFile(page, probe, until);
    await page.keyboard.press("Control+z");
    await until("undo takes it back", async () => (await textOf(probe, name)) === original);
    await until("it is on offer again", async () => {
      await runCommand(page, "DICE: Show Candidates");
      return page
        .locator(".quick-input-widget .quick-input-title", { hasText: "DICE: candidates" })
        .waitFor({ timeout: 2000 })
        .then(() => true);
    });
    await waitForCandidates(page, until);
  }
  await page.keyboard.press("Escape");
  await waitForFile(page, probe, until);

  for (let run = 0; run < given.runs; run++) {
    await probe(
      async (vscode, [line, text]) => {
        const { document } = vscode.window.activeTextEditor;
        const edit = new vscode.WorkspaceEdit();
        edit.insert(document.uri, new vscode.Position(line, 0), text);
        await vscode.workspace.applyEdit(edit);
      },
      [kernel, `    if (n == -${run + 1}) return;\n`],
    );
    await waitForHint(page, /__global__ void saxpy.*stale/);
    const stopped = await clock(page, "s", hintIsThere, head);
    await page.keyboard.press("Control+s");
    times["save to first hint"].push(await stopped());
    await waitForHint(page, /__global__ void saxpy.*regs.* verified on host/);
    await idle();
  }
  step("times_ms", times);
};
