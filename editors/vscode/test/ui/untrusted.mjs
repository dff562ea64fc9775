// A workspace that the user does not trust: nothing is started, and VS Code says why.
export default async ({ page, probe, until, step }) => {
  await page.waitForSelector(".view-lines .view-line");
  await until("the banner of a restricted window is there", () => page.locator("text=Restricted Mode").first().isVisible());
  step("trusted", await probe((vscode) => vscode.workspace.isTrusted));
  step("known", await probe((vscode) => vscode.extensions.getExtension("dice-lsp.dice-lsp") !== undefined));
  step("commands", await probe(async (vscode) => (await vscode.commands.getCommands(true)).filter((name) => /^dice(-lsp)?\./.test(name))));
  await probe((vscode) => vscode.commands.executeCommand("workbench.trust.manage"));
  await page.locator(".workspace-trust-editor").waitFor();
  step("page", (await page.locator(".workspace-trust-editor").innerText()).slice(0, 1500));
  await probe((vscode) => vscode.commands.executeCommand("workbench.extensions.action.showInstalledExtensions").then(() => {}));
  step("processes", await probe(() => {
    const fs = process.getBuiltinModule("node:fs");
    return fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name)).filter((name) => {
      try {
        return Number(fs.readFileSync(`/proc/${name}/stat`, "utf8").split(") ").pop().split(" ")[1]) === process.pid
          && fs.readFileSync(`/proc/${name}/cmdline`, "utf8").includes("dice");
      } catch {
        return false;
      }
    }).length;
  }));
};
