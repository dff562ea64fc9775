import * as vscode from "vscode";

/** Settings of this client, which mean nothing to the server. */
const CLIENT_ONLY = /^dice\.(server|trace)\./;

interface Section {
  readonly properties: Record<string, unknown>;
}

/**
 * What the user has set, and only that: a default of VS Code would hide the user's own default, which
 * `dice-lsp model use` writes, and the workspace's `.dice/settings.toml`.
 */
export function chosenSettings(context: vscode.ExtensionContext, scope?: vscode.Uri): Record<string, unknown> {
  const manifest = context.extension.packageJSON as { contributes: { configuration: readonly Section[] } };
  const configuration = vscode.workspace.getConfiguration(undefined, scope ?? null);
  const chosen: Record<string, unknown> = {};
  for (const id of manifest.contributes.configuration.flatMap((section) => Object.keys(section.properties))) {
    const found = CLIENT_ONLY.test(id) ? undefined : configuration.inspect(id);
    const value = found?.workspaceFolderValue ?? found?.workspaceValue ?? found?.globalValue;
    if (value !== undefined) {
      chosen[id.slice("dice.".length)] = value;
    }
  }
  return chosen;
}
