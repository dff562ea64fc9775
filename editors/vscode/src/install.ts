/** One click makes an environment of our own, in a terminal that the user sees. */

import { execFile } from "node:child_process";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { promisify } from "node:util";
import * as vscode from "vscode";

import { onPath, ownEnvironment } from "./locate";

const run = promisify(execFile);
const PYTHONS = ["python3", "python3.13", "python3.12", "python3.11", "python3.14", "python"];
const OLDEST_PYTHON = [3, 11] as const;
/** PyTorch's own index has a build without CUDA, a tenth of the other's size. pip goes on without it if it must. */
const TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu";

let installing: Promise<boolean> | undefined;

/** Install the server that came with this extension; true once that has ended well. A second click waits for the first. */
export function install(context: vscode.ExtensionContext): Promise<boolean> {
  installing ??= installNow(context).finally(() => (installing = undefined));
  return installing;
}

async function installNow(context: vscode.ExtensionContext): Promise<boolean> {
  const wheel = await bundledWheel(context);
  if (!wheel) {
    void vscode.window.showErrorMessage(
      "DICE: this build of the extension holds no server; run pip install dice-lsp and set dice.server.interpreter",
    );
    return false;
  }
  const python = await findPython();
  if (!python) {
    void vscode.window.showErrorMessage(
      "DICE: Python 3.11 or newer is needed and was not found on PATH; install it and run DICE: Install Server again",
    );
    return false;
  }
  await fs.mkdir(context.globalStorageUri.fsPath, { recursive: true });
  const code = await runInTerminal("DICE: Install Server", installCommand(python, ownEnvironment(context), wheel));
  if (code !== 0) {
    const told = code === undefined ? "was stopped" : `ended with code ${code}`;
    const again = "Try Again";
    void vscode.window
      .showErrorMessage(`DICE: the installation ${told}; the terminal says why`, again)
      .then((answer) => answer === again && vscode.commands.executeCommand("dice-lsp.install"));
    return false;
  }
  await context.globalState.update("installedVersion", version(context));
  return true;
}

/** The server in our environment is of an older extension. */
export function isOutdated(context: vscode.ExtensionContext): boolean {
  const installed = context.globalState.get<string>("installedVersion");
  return installed !== undefined && installed !== version(context);
}

function version(context: vscode.ExtensionContext): string {
  return (context.extension.packageJSON as { version: string }).version;
}

/** The line that the terminal shows and runs. */
export function installCommand(python: string, environment: string, wheel: string): string {
  const pip = `${quoted(path.join(environment, "bin", "python"))} -m pip --disable-pip-version-check install`;
  const steps = [`${quoted(python)} -m venv --clear ${quoted(environment)}`];
  if (onPath("nvidia-smi")) {
    steps.push(`${pip} ${quoted(`${wheel}[gpu]`)}`);
  } else {
    // Only this step asks that index: where it cannot be reached, pip would try again for each of the others.
    steps.push(`${pip} --no-deps --retries 1 --extra-index-url ${TORCH_CPU_INDEX} torch`, `${pip} ${quoted(wheel)}`);
  }
  return steps.join(" && ");
}

async function bundledWheel(context: vscode.ExtensionContext): Promise<string | undefined> {
  const folder = context.asAbsolutePath("bundled");
  const names = await fs.readdir(folder).catch(() => []);
  const wheel = names
    .filter((name) => name.endsWith(".whl"))
    .sort()
    .at(-1);
  return wheel && path.join(folder, wheel);
}

async function findPython(): Promise<string | undefined> {
  for (const name of PYTHONS) {
    const found = onPath(name);
    const version = found && (await pythonVersion(found));
    if (
      version &&
      (version[0] > OLDEST_PYTHON[0] || (version[0] === OLDEST_PYTHON[0] && version[1] >= OLDEST_PYTHON[1]))
    ) {
      return found;
    }
  }
  return undefined;
}

async function pythonVersion(python: string): Promise<readonly [number, number] | undefined> {
  try {
    const { stdout } = await run(python, ["-c", "import sys; print(*sys.version_info[:2])"], { timeout: 10_000 });
    const [major, minor] = stdout.trim().split(" ").map(Number);
    return major === undefined || minor === undefined ? undefined : [major, minor];
  } catch {
    return undefined;
  }
}

/** The exit code of a command line in a terminal of its own; undefined when the terminal was closed before its end. */
async function runInTerminal(name: string, commandLine: string): Promise<number | undefined> {
  const shell = { executable: "/bin/sh", shellArgs: ["-c"] };
  return await runTask(name, new vscode.ShellExecution(commandLine, shell));
}

export async function runTask(
  name: string,
  execution: vscode.ShellExecution | vscode.ProcessExecution,
): Promise<number | undefined> {
  const task = new vscode.Task({ type: "dice" }, vscode.TaskScope.Workspace, name, "DICE", execution, []);
  task.presentationOptions = {
    reveal: vscode.TaskRevealKind.Always,
    panel: vscode.TaskPanelKind.Dedicated,
    clear: true,
    showReuseMessage: false,
  };
  const listeners: vscode.Disposable[] = [];
  try {
    return await new Promise((resolve, reject) => {
      const isOurs = (event: { execution: vscode.TaskExecution }): boolean => event.execution.task.name === name;
      listeners.push(
        vscode.tasks.onDidEndTaskProcess((event) => isOurs(event) && resolve(event.exitCode)),
        // The end of a task may come before the end of its process, which has the exit code.
        vscode.tasks.onDidEndTask((event) => isOurs(event) && setTimeout(() => resolve(undefined), 1000)),
      );
      vscode.tasks.executeTask(task).then(undefined, reject);
    });
  } finally {
    listeners.forEach((item) => item.dispose());
  }
}

function quoted(argument: string): string {
  return /^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`;
}
