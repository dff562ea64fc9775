/** Where the server is: what the user named, our own environment, the workspace's, PATH, in this order. */

import * as fs from "node:fs";
import * as path from "node:path";
import * as vscode from "vscode";

export interface Program {
  readonly command: string;
  readonly arguments: readonly string[];
  /** For the user: where it was found. */
  readonly origin: string;
  /** It is in the environment that "Install Server" made. */
  readonly isOwn?: true;
}

export interface NotFound {
  /** One sentence with the next step. */
  readonly reason: string;
  /** The user named a program that is not there: nothing else may be started in its place. */
  readonly named: boolean;
}

/** The environment that "Install Server" makes. */
export function ownEnvironment(context: vscode.ExtensionContext): string {
  return path.join(context.globalStorageUri.fsPath, "server");
}

export function locate(context: vscode.ExtensionContext): Program | NotFound {
  const settings = vscode.workspace.getConfiguration("dice.server");
  const program = expand(settings.get<string | null>("path") ?? "");
  if (program) {
    const found = path.isAbsolute(program) ? existing(program) : onPath(program);
    return found
      ? { command: found, arguments: [], origin: "the setting dice.server.path" }
      : { reason: `dice.server.path names ${program}, which is not a program; correct the setting`, named: true };
  }
  const interpreter = expand(settings.get<string | null>("interpreter") ?? "");
  if (interpreter) {
    const found = path.isAbsolute(interpreter) ? existing(interpreter) : onPath(interpreter);
    return found
      ? withPython(found, "the setting dice.server.interpreter")
      : {
          reason: `dice.server.interpreter names ${interpreter}, which is not a program; correct the setting`,
          named: true,
        };
  }
  const own = installedIn(ownEnvironment(context));
  if (own) {
    return { command: own, arguments: [], origin: "the environment that DICE: Install Server made", isOwn: true };
  }
  if (vscode.workspace.isTrusted) {
    for (const folder of vscode.workspace.workspaceFolders ?? []) {
      const found = folder.uri.scheme === "file" && installedIn(path.join(folder.uri.fsPath, ".venv"));
      if (found) {
        return { command: found, arguments: [], origin: `the .venv of ${folder.name}` };
      }
    }
  }
  const found = onPath("dice-lsp");
  if (found) {
    return { command: found, arguments: [], origin: "PATH" };
  }
  return {
    reason: "the server is not installed: it is neither in the workspace's .venv nor on PATH; install it",
    named: false,
  };
}

/** `-P` keeps a folder `dice_lsp` of the workspace from being taken for the server. */
function withPython(interpreter: string, origin: string): Program {
  return { command: interpreter, arguments: ["-P", "-m", "dice_lsp"], origin };
}

function expand(given: string): string {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath ?? "";
  return given
    .trim()
    .replace(/^~(?=\/|$)/, process.env["HOME"] ?? "~")
    .replaceAll("${workspaceFolder}", folder);
}

function installedIn(environment: string): string | undefined {
  // pip writes the script last: an environment without it is half installed.
  return existing(path.join(environment, process.platform === "win32" ? "Scripts/dice-lsp.exe" : "bin/dice-lsp"));
}

function existing(program: string): string | undefined {
  try {
    fs.accessSync(program, fs.constants.X_OK);
    return fs.statSync(program).isFile() ? program : undefined;
  } catch {
    return undefined;
  }
}

export function onPath(name: string): string | undefined {
  const endings = process.platform === "win32" ? [".exe", ".cmd", ""] : [""];
  for (const folder of (process.env["PATH"] ?? "").split(path.delimiter)) {
    for (const ending of endings) {
      // A relative entry of PATH would let the workspace choose what is run.
      const found = path.isAbsolute(folder) && existing(path.join(folder, name + ending));
      if (found) {
        return found;
      }
    }
  }
  return undefined;
}
