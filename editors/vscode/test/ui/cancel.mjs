// The cancel button of the progress, reached by keyboard, and the list that never comes.
import { chooseInMenu, openMenu, selectLines, textOf, waitForHint } from "./keys.mjs";

export default async ({ page, probe, until, step }) => {
  await waitForHint(page, /regs.* verified on host/);
  const original = await textOf(probe, "saxpy.cu");
  await page.locator(".monaco-editor").first().click();
  await selectLines(page, 11, 13);
  await openMenu(page, "DICE: fill selection");
  await chooseInMenu(page, until, "DICE: fill selection");
  const toast = page.locator(".notifications-toasts .notification-toast", { hasText: "DICE: filling" });
  await toast.waitFor();
  await toast
    .locator("a", { hasText: "Cancel" })
    .or(toast.locator(".monaco-button", { hasText: "Cancel" }))
    .click();
  await toast.waitFor({ state: "hidden" });
  await until("nothing runs", () =>
    probe((vscode) => vscode.extensions.getExtension("dice-lsp.dice-lsp").exports.status().server.state === "idle"),
  );
  step("status", await probe((vscode) => vscode.extensions.getExtension("dice-lsp.dice-lsp").exports.status()));
  step("unchanged", (await textOf(probe, "saxpy.cu")) === original);
  step("toasts", await page.locator(".notifications-toasts .notification-toast").allTextContents());
};
