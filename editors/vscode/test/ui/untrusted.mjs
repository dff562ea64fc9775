// A workspace that the user does not trust: nothing is started, and VS Code says why.
export default async ({ page, probe, until, step }) => {
  await page.waitForSelector(".view-lines .view-line");
  await until("the window says that it is restricted", () => page.locator("text=Restricted Mode").first().isVisible());
  step("trusted", await probe((vscode) => vscode.workspace.isTrusted));
  step("active", await probe((vscode) => vscode.extensions.getExtension("dice-lsp.dice-lsp")?.isActive ?? false));
  await probe((vscode) => vscode.commands.executeCommand("workbench.view.extensions").then(() => {}));
  const row = page.locator(".extensions-viewlet .extension-list-item", { hasText: "DICE for CUDA" });
  await row.waitFor();
  await row.click();
  const reason = page.locator(".extension-editor", { hasText: "DICE for CUDA" });
  await until("the page of the extension says why", async () =>
    (await reason.innerText()).includes("starts only in a workspace that you trust"),
  );
  step("reason", await reason.innerText());
  step(
    "children",
    await probe(() => {
      const fs = process.getBuiltinModule("node:fs");
      const commands = fs.readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, "utf8").trim().split(" ");
      return commands
        .filter(Boolean)
        .map((pid) => fs.readFileSync(`/proc/${pid}/cmdline`, "utf8"))
        .filter((command) => command.includes("dice"));
    }),
  );
};
