// The extension as a user installs it, in a folder with one file and nothing else.
import { goToLine, runCommand, textOf, waitForCandidates, waitForFile, waitForHint } from "./keys.mjs";

export default async ({ page, probe, until, step, given }) => {
  await waitForHint(page, /\d+ regs/);
  step(
    "extension",
    await probe((vscode) => {
      const { extensionUri, packageJSON } = vscode.extensions.getExtension("dice-lsp.dice-lsp");
      return { path: extensionUri.path, version: packageJSON.version };
    }),
  );
  const name = "vectorAdd.cu";
  const original = await textOf(probe, name);
  await page.locator(".monaco-editor").first().click();
  await goToLine(page, given.line);
  await runCommand(page, "DICE: Fill Kernel Body");
  step("rows", await waitForCandidates(page, until));
  await page.keyboard.press("Enter");
  await until("the candidate is applied", async () => (await textOf(probe, name)) !== original);
  await waitForFile(page, probe, until);
  await page.keyboard.press("Control+s");
  await until("the file is saved", () =>
    probe(
      (vscode, ending) => !vscode.workspace.textDocuments.find(({ uri }) => uri.path.endsWith(ending)).isDirty,
      name,
    ),
  );
  await waitForHint(page, /\d+ regs/);
  step("status", await probe((vscode) => vscode.extensions.getExtension("dice-lsp.dice-lsp").exports.status().text));
};
