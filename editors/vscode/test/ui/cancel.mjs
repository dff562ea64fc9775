// The cancel button of the progress, and the list that never comes.
import { chooseInMenu, openMenu, selectLines, textOf } from "./keys.mjs";

export async function cancel({ page, probe, until, step, given }) {
  const original = await textOf(probe, "saxpy.cu");
  await selectLines(page, given.first, given.last);
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
  step(
    "status after the cancel",
    await probe((vscode) => vscode.extensions.getExtension("dice-lsp.dice-lsp").exports.status()),
  );
  step("unchanged by the cancel", (await textOf(probe, "saxpy.cu")) === original);
  step("toasts after the cancel", await page.locator(".notifications-toasts .notification-toast").allTextContents());
}
