/** The menu's choices that end in a setting: model and device. */

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import * as vscode from "vscode";

import { onPath, type Program } from "./locate";

const run = promisify(execFile);

/** As `dice-lsp model list --json` has it. */
interface Checkpoint {
  readonly name: string;
  readonly parameters: string;
  readonly path: string;
  /** Why it cannot be used. */
  readonly problem: string | null;
}

export async function selectModel(program: Program | undefined): Promise<void> {
  const present = vscode.workspace.getConfiguration("dice").get<string>("model");
  const known = program ? await listCheckpoints(program) : [];
  const other = { label: "$(edit) Another", description: "a folder, or the name of a checkpoint that was pulled" };
  const rows = known.map(({ name, parameters, path, problem }) => ({
    label: name,
    description: [problem ?? parameters, name === present ? "in use" : ""].filter(Boolean).join(", "),
    detail: path,
  }));
  const chosen = await vscode.window.showQuickPick([...rows, other], {
    title: "DICE: model",
    placeHolder: "The checkpoint that writes the candidates",
  });
  const model =
    chosen === other
      ? await vscode.window.showInputBox({
          title: "DICE: model",
          prompt: "`tiny`, a folder, or the name of a checkpoint that dice-lsp model pull has brought",
          value: present ?? "tiny",
        })
      : chosen?.label;
  if (model) {
    await set("model", model);
  }
}

export async function selectDevice(): Promise<void> {
  const gpus = await listGpus();
  const rows = [
    {
      label: "Automatic",
      description: "the first GPU that works, else the host",
      values: { backend: "auto", device: undefined },
    },
    ...gpus.map(({ index, name }) => ({
      label: `GPU ${index}`,
      description: name,
      values: { backend: "auto", device: index },
    })),
    {
      label: "Host",
      description: "an emulation on the CPU: verdicts without times",
      values: { backend: "host", device: undefined },
    },
  ];
  const chosen = await vscode.window.showQuickPick(rows, {
    title: "DICE: device",
    placeHolder: "Where candidates are run and timed",
  });
  if (chosen) {
    await set("device", chosen.values.device);
    await set("backend", chosen.values.backend);
  }
}

/** Into the settings of the workspace where it has the setting already, else of the user. */
async function set(name: string, value: unknown): Promise<void> {
  const configuration = vscode.workspace.getConfiguration("dice");
  const inWorkspace = configuration.inspect(name)?.workspaceValue !== undefined;
  await configuration.update(
    name,
    value,
    inWorkspace ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global,
  );
}

async function listCheckpoints(program: Program): Promise<readonly Checkpoint[]> {
  try {
    const { stdout } = await run(program.command, [...program.arguments, "model", "list", "--json"], {
      timeout: 20_000,
    });
    const answer = JSON.parse(stdout) as { readonly models: readonly Checkpoint[] };
    return answer.models;
  } catch {
    // A server that cannot list them still takes a name.
    return [];
  }
}

async function listGpus(): Promise<readonly { index: number; name: string }[]> {
  const program = onPath("nvidia-smi");
  if (!program) {
    return [];
  }
  try {
    const { stdout } = await run(program, ["--query-gpu=index,name", "--format=csv,noheader"], { timeout: 10_000 });
    return stdout
      .split("\n")
      .map((line) => /^(\d+), (.+)$/.exec(line.trim()))
      .flatMap((found) => (found?.[1] && found[2] ? [{ index: Number(found[1]), name: found[2] }] : []));
  } catch {
    return [];
  }
}
