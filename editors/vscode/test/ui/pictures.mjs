// The pictures of the README: each is taken when what it shows is on the screen.
import fs from "node:fs";
import path from "node:path";

import {
  bothSidesAtOneHeight,
  chooseInMenu,
  goToLine,
  openMenu,
  selectLines,
  textOf,
  waitForCandidates,
  waitForFile,
  waitForHint,
} from "./keys.mjs";

/** Nothing moves any more: two pictures in a row are the same. */
async function still(page, until) {
  let before;
  await until("the screen is still", async () => {
    const now = await page.screenshot();
    const same = before !== undefined && before.equals(now);
    before = now;
    return same;
  });
}

async function replace(probe, before, after) {
  await probe(
    async (vscode, [words, others]) => {
      const { document } = vscode.window.activeTextEditor;
      const from = document.getText().indexOf(words);
      const edit = new vscode.WorkspaceEdit();
      edit.replace(
        document.uri,
        new vscode.Range(document.positionAt(from), document.positionAt(from + words.length)),
        others,
      );
      await vscode.workspace.applyEdit(edit);
      await document.save();
    },
    [before, after],
  );
}

export default async ({ page, probe, until, shot, step, given }) => {
  const idle = () =>
    until("nothing runs", () =>
      probe((vscode) => vscode.extensions.getExtension("dice-lsp.dice-lsp").exports.status().server?.state === "idle"),
    );
  await waitForHint(page, /regs.* verified on host/);
  await probe((vscode) => vscode.commands.executeCommand("workbench.action.closeSidebar").then(() => {}));
  await page.locator(".monaco-editor").first().click();
  await idle();

  // The menu.
  await selectLines(page, given.first, given.last);
  await openMenu(page, "DICE: fill selection");
  await until("the fill has the focus", async () => {
    const focused = await page.locator(".action-widget .monaco-list-row.focused").allTextContents();
    if (focused.some((text) => text.includes("DICE: fill selection"))) {
      return true;
    }
    await page.keyboard.press("ArrowDown");
  });
  await shot("vscode-menu");

  // The progress, while candidates come.
  await chooseInMenu(page, until, "DICE: fill selection");
  const toast = page.locator(".notifications-toasts .notification-toast", { hasText: "DICE: filling" });
  await toast.waitFor();
  // The last that can be caught: the more is known, the better the picture.
  while (await toast.isVisible()) {
    const told = await toast.innerText().catch(() => "");
    const picture = await page.screenshot();
    if (told && (await toast.isVisible())) {
      step("progress", told);
      fs.writeFileSync(path.join(given.out, "vscode-progress.png"), picture);
    }
  }

  // The list with the diff of its second row.
  await waitForCandidates(page, until);
  await page.keyboard.press("ArrowDown");
  await until("the diff follows", async () =>
    (await page.locator(".tab.active .label-name").first().textContent()).includes("with B"),
  );
  await bothSidesAtOneHeight(page, until, "__global__ void relu");
  await idle();
  await page.mouse.move(5, 300);
  await still(page, until);
  await shot("vscode-candidates");
  await page.keyboard.press("Escape");
  await waitForFile(page, probe, until);

  // What the next saves say.
  const original = await textOf(probe, "kernels.cu");
  for (const [before, after] of given.edits) {
    await replace(probe, before, after);
    await waitForHint(page, /regs/);
    await idle();
  }
  await goToLine(page, given.cursor);
  await page.keyboard.press("Home");
  await still(page, until);
  await shot("vscode-hints");

  // The hover with its history.
  const place = await probe((vscode, words) => {
    const editor = vscode.window.activeTextEditor;
    const { line, character } = editor.document.positionAt(editor.document.getText().indexOf(words) + words.length - 1);
    editor.selection = new vscode.Selection(line, character, line, character);
    return `Ln ${line + 1}, Col ${character + 1}`;
  }, given.hover);
  await page.locator(".statusbar-item", { hasText: place }).waitFor();
  await page.keyboard.press("Control+k");
  await page.keyboard.press("Control+i");
  const chart = page.locator(".monaco-hover img").first();
  await chart.waitFor({ state: "attached" });
  // Pressed again, the keys go into the hover; its end has the chart.
  await page.keyboard.press("Control+k");
  await page.keyboard.press("Control+i");
  await until(
    "the chart is on the screen",
    async () => {
      await page.keyboard.press("PageDown");
      const box = await chart.boundingBox();
      const hover = await page.locator(".monaco-hover:has(img)").first().boundingBox();
      return box && hover && box.y > hover.y && box.y + box.height <= hover.y + hover.height + 1;
    },
    20,
  );
  await still(page, until);
  await shot("vscode-history");
  step("changed", (await textOf(probe, "kernels.cu")) !== original);
};
