// A fill that is cancelled, and one from the first key to the last: menu, progress, list, diff, Escape, Enter and undo.
import { cancel } from "./cancel.mjs";
import {
  bothSidesAtOneHeight,
  chooseInMenu,
  goToLine,
  openMenu,
  rows,
  runCommand,
  selectLines,
  textOf,
  waitForCandidates,
  waitForFile,
  waitForHint,
} from "./keys.mjs";

export default async (session) => {
  const { page, probe, until, step, given } = session;
  await page.locator(".monaco-editor").first().click();
  await goToLine(page, given.first);
  await waitForHint(page, /regs.* verified on host/);
  await cancel(session);
  const original = await textOf(probe, "saxpy.cu");
  await selectLines(page, given.first, given.last);
  await openMenu(page, "DICE: fill selection");
  step("menu", await page.locator(".action-widget .monaco-list-row").allTextContents());
  await chooseInMenu(page, until, "DICE: fill selection");
  const toast = page.locator(".notifications-toasts .notification-toast", { hasText: "DICE: filling" });
  await toast.waitFor();
  step("progress", (await toast.innerText()).trim());
  step("rows", await waitForCandidates(page, until));
  await page.locator(".monaco-diff-editor").waitFor();
  await toast.waitFor({ state: "hidden" });

  // Down, and the diff follows.
  const title = () => page.locator(".tab.active .label-name").first().textContent();
  const first = await until("the diff names the active row", async () => {
    const text = await title();
    return text.includes("with A") && text;
  });
  await page.keyboard.press("ArrowDown");
  const second = await until("the diff follows", async () => {
    const text = await title();
    return text.includes("with B") && text;
  });
  step("titles", [first, second]);
  await bothSidesAtOneHeight(page, until, "__global__ void saxpy");
  step("rows after", await rows(page));
  await page.keyboard.press("Escape");
  await page.locator(".quick-input-widget").waitFor({ state: "hidden" });
  await waitForFile(page, probe, until);
  step("text after Escape", (await textOf(probe, "saxpy.cu")) === original);
  step("tabs after Escape", await page.locator(".tab .label-name").allTextContents());

  // Again from the palette; Enter takes the second.
  await runCommand(page, "DICE: Show Candidates");
  const again = await waitForCandidates(page, until);
  await page.keyboard.press("ArrowDown");
  await until("the second row is active", async () => (await rows(page))[1].active);
  await page.keyboard.press("Enter");
  await until("the candidate is applied", async () => (await textOf(probe, "saxpy.cu")) !== original);
  const applied = await textOf(probe, "saxpy.cu");
  step("applied", applied);
  step("again", again);
  await waitForFile(page, probe, until);
  // The keyboard is in the file again: typing and undoing need no click.
  await page.keyboard.press("Control+z");
  await until("undo takes it back", async () => (await textOf(probe, "saxpy.cu")) === original);
  step("notifications left", await page.locator(".notifications-toasts .notification-toast").allTextContents());
};
