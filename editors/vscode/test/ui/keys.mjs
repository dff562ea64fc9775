// Steps that a user takes with the keyboard alone, and what they wait to see.

/** Puts the cursor at the start of a line, counted from one. */
export async function goToLine(page, line) {
  await page.keyboard.press("Control+g");
  await page.waitForSelector(".quick-input-widget:not([style*='display: none']) input");
  await page.keyboard.type(String(line));
  await page.keyboard.press("Enter");
  await page.waitForSelector(".quick-input-widget", { state: "hidden" });
}

/** Selects whole lines; the cursor ends at the end of the last. */
export async function selectLines(page, first, last) {
  await goToLine(page, first);
  await page.keyboard.press("Home");
  await page.keyboard.press("Home");
  for (let line = first; line < last; line++) {
    await page.keyboard.press("Shift+ArrowDown");
  }
  await page.keyboard.press("Shift+End");
}

/** Opens the menu of code actions and waits for a row of it. */
export async function openMenu(page, title) {
  await page.keyboard.press("Control+.");
  await page.locator(".action-widget .monaco-list-row", { hasText: title }).waitFor();
}

/** Moves to a row of the menu of code actions and takes it. */
export async function chooseInMenu(page, until, title) {
  await until(`"${title}" has the focus`, async () => {
    const focused = await page.locator(".action-widget .monaco-list-row.focused").allTextContents();
    if (focused.some((text) => text.includes(title))) {
      return true;
    }
    await page.keyboard.press("ArrowDown");
    throw new Error(`the focus is on ${JSON.stringify(focused)}`);
  });
  await page.keyboard.press("Enter");
}

/** Runs a command by its name in the palette. */
export async function runCommand(page, title) {
  await page.keyboard.press("F1");
  await page.waitForSelector(".quick-input-widget:not([style*='display: none']) input");
  await page.keyboard.type(title);
  await page.locator(".quick-input-list .monaco-list-row.focused", { hasText: title }).waitFor();
  await page.keyboard.press("Enter");
}

/** Rows of the list that is open, as texts; the active one is marked. */
export async function rows(page) {
  return page.locator(".quick-input-list .monaco-list-row").evaluateAll((found) =>
    found.map((row) => ({
      text: row.querySelector(".label-name")?.textContent ?? row.textContent,
      active: row.classList.contains("focused"),
    })),
  );
}

/** The list of candidates is there and nothing runs any more. */
export async function waitForCandidates(page, until) {
  await page
    .locator(".quick-input-widget .quick-input-title", { hasText: "DICE: candidates" })
    .waitFor({ timeout: 180_000 });
  const input = page.locator(".quick-input-widget input").first();
  await until("the fill has ended", async () => (await input.getAttribute("placeholder"))?.startsWith("Enter applies"));
  return until("there are rows", async () => {
    const found = await rows(page);
    return found.length > 0 && found.some(({ active }) => active) && found;
  });
}

/** The list has been left, and the file has the keyboard again. */
export async function waitForFile(page, probe, until) {
  await page.locator(".monaco-diff-editor").waitFor({ state: "hidden" });
  await until("the list is over", () =>
    probe((vscode) => vscode.extensions.getExtension("dice-lsp.dice-lsp").exports.picker() === undefined),
  );
  await page.waitForFunction(() => document.activeElement?.closest(".monaco-editor"));
}

/** Text of the file in front, from the extension host. */
export function textOf(probe, name) {
  return probe(
    (vscode, given) => vscode.workspace.textDocuments.find(({ uri }) => uri.path.endsWith(given)).getText(),
    name,
  );
}

/** Waits for a hint of ours on the screen. */
export async function waitForHint(page, pattern) {
  await page.waitForFunction(
    (source) =>
      [...document.querySelectorAll(".view-line")].some((line) =>
        new RegExp(source).test(line.textContent.replace(/\u00a0/g, " ")),
      ),
    pattern.source,
    { timeout: 180_000 },
  );
}

/** Lines of a diff that belong together are at one height. */
export function bothSidesAtOneHeight(page, until, head) {
  const tops = (words) =>
    ["original", "modified"].map((side) => {
      const lines = [...document.querySelectorAll(`.monaco-diff-editor .editor.${side} .view-line`)];
      const line = lines.find((each) => each.textContent.replace(/\u00a0/g, " ").startsWith(words));
      return line?.getBoundingClientRect().top;
    });
  const equal = async () => {
    const [left, right] = await page.evaluate(tops, head);
    if (left === undefined || right === undefined || Math.abs(left - right) > 2) {
      throw new Error(`the line is at ${left} and ${right}`);
    }
    return true;
  };
  return until("both sides of the diff are at one height", equal);
}
