/** The DICE client: commands, and the parts that they use, put together. */

import * as vscode from "vscode";
import { CodeActionRequest, type CodeAction, type LanguageClient, type Middleware } from "vscode-languageclient/node";

import { Candidates, type Picker } from "./candidates";
import { selectDevice, selectModel } from "./choose";
import { Fills } from "./fill";
import { install, isOutdated, runTask } from "./install";
import type { FillArguments } from "./protocol";
import { isCuda, isOnlyPython, Server, type ServerState } from "./server";
import { chosenSettings } from "./settings";
import { Status } from "./status";

/** What other extensions and tests may ask. */
export interface Api {
  state(): ServerState;
  status(): Status["shown"];
  picker(): Picker | undefined;
  client(): LanguageClient | undefined;
}

type Report = (message: string) => void;

let running: Server | undefined;

/** VS Code waits for this, so that the server has its time to end what it runs. */
export function deactivate(): Promise<void> | undefined {
  return running?.stop();
}

export async function activate(context: vscode.ExtensionContext): Promise<Api> {
  const log = vscode.window.createOutputChannel("DICE", { log: true });
  const server: Server = new Server(context, log, () => middleware(context, fills));
  const candidates = new Candidates(() => server.client);
  const fills: Fills = new Fills(() => server.client, candidates);
  const status = new Status(server);
  running = server;
  context.subscriptions.push(log, server, candidates, status);
  server.onClient((client) => {
    fills.listen(client);
    status.listen(client);
  });
  server.onDidChange((state) => {
    if (state.kind !== "running") {
      fills.forget();
    }
    if (state.kind === "missing") {
      void sayMissing(state);
    }
  });
  context.subscriptions.push(
    vscode.workspace.onDidChangeConfiguration((event) => {
      // The server itself asks for every other setting when it changes.
      if (event.affectsConfiguration("dice.server")) {
        void server.restart("dice.server has changed");
      }
    }),
  );
  registerCommands(context, server, candidates);
  const start = (): void => void server.start().then(() => offerUpdate(context, server));
  if (isOnlyPython(vscode.workspace.textDocuments)) {
    startWithCuda(context, start);
  } else {
    start();
  }
  return {
    state: () => server.state,
    status: () => status.shown,
    picker: () => candidates.shown,
    client: () => server.client,
  };
}

/** Start once a document with CUDA is opened or saved. */
function startWithCuda(context: vscode.ExtensionContext, start: () => void): void {
  const listeners: vscode.Disposable[] = [];
  const look = (document: vscode.TextDocument): void => {
    if (isCuda(document)) {
      listeners.forEach((listener) => listener.dispose());
      start();
    }
  };
  listeners.push(vscode.workspace.onDidOpenTextDocument(look), vscode.workspace.onDidSaveTextDocument(look));
  context.subscriptions.push(...listeners);
}

function middleware(context: vscode.ExtensionContext, fills: Fills): Middleware {
  return {
    executeCommand: fills.execute,
    handleWorkDoneProgress: fills.progress,
    workspace: {
      configuration: (params, token, next) => {
        if (params.items.every((item) => item.section === "dice")) {
          return params.items.map(({ scopeUri }) =>
            chosenSettings(context, scopeUri === undefined ? undefined : vscode.Uri.parse(scopeUri)),
          );
        }
        return next(params, token);
      },
    },
  };
}

function registerCommands(context: vscode.ExtensionContext, server: Server, candidates: Candidates): void {
  const warn: Report = (message) => void vscode.window.showWarningMessage(`DICE: ${message}`);
  const register = (name: string, run: () => unknown): void => {
    context.subscriptions.push(vscode.commands.registerCommand(`dice-lsp.${name}`, run));
  };
  /** A command about the CUDA file in front of the user. */
  const registerInEditor = (
    name: string,
    run: (client: LanguageClient, editor: vscode.TextEditor) => unknown,
  ): void => {
    register(name, () => {
      const editor = vscode.window.activeTextEditor;
      if (!editor || !isCuda(editor.document) || (server.client && !server.reads(editor.document))) {
        return warn("this works in a file with CUDA; open a .cu file, or a Python file with a kernel in a string");
      }
      const client = server.client;
      return client ? run(client, editor) : sayNotRunning(server);
    });
  };

  const fill = (given: FillArguments): unknown => vscode.commands.executeCommand("dice.fill", given);
  const fillBody = async (client: LanguageClient, editor: vscode.TextEditor): Promise<unknown> => {
    const action = await serverAction(client, editor, (name, given) => name === "dice.fill" && "kernel" in given);
    return action
      ? fill(action as unknown as FillArguments)
      : warn("there is no kernel at the cursor; put the cursor into the body of a __global__ function");
  };
  registerInEditor("fillBody", fillBody);
  registerInEditor("fillSelection", (client, editor) =>
    editor.selection.isEmpty
      ? fillBody(client, editor)
      : fill({
          uri: client.code2ProtocolConverter.asUri(editor.document.uri),
          version: editor.document.version,
          range: client.code2ProtocolConverter.asRange(editor.selection),
        }),
  );
  registerInEditor("candidates", async (_client, { document }) => {
    if ((await candidates.show(document)) === undefined) {
      warn("there are no candidates in this file; select lines in a kernel and run DICE: Fill Selection");
    }
  });
  registerInEditor("check", (client, { document }) =>
    vscode.commands.executeCommand("dice.check", { uri: client.code2ProtocolConverter.asUri(document.uri) }),
  );
  registerInEditor("cancel", async (client, { document }) => {
    const uri = client.code2ProtocolConverter.asUri(document.uri);
    const result = await vscode.commands.executeCommand<{ cancelled: number } | undefined>("dice.cancel", { uri });
    vscode.window.setStatusBarMessage(result?.cancelled ? "DICE: stopped" : "DICE: nothing is running", 5000);
  });
  registerInEditor("acceptBaseline", async (client, editor) => {
    const given = await serverAction(client, editor, (name) => name === "dice.acceptBaseline");
    return given
      ? vscode.commands.executeCommand("dice.acceptBaseline", given)
      : warn("there is no kernel at the cursor whose check is finished and good; save the file to check it");
  });

  registerInEditor("writeDirective", async (client, editor) => {
    const given = await kernelAt(client, editor);
    return given
      ? vscode.commands.executeCommand("dice.writeDirective", given)
      : warn("there is no kernel at the cursor; put the cursor into a __global__ function");
  });
  registerInEditor("writeDirectives", (client, { document }) =>
    vscode.commands.executeCommand("dice.writeDirective", {
      uri: client.code2ProtocolConverter.asUri(document.uri),
    }),
  );
  registerInEditor("capture", async (client, { document }) => {
    const uri = client.code2ProtocolConverter.asUri(document.uri);
    const found = await vscode.commands.executeCommand<{ run: string | null } | undefined>("dice.captureLine", { uri });
    // What a comment of the file names is shown and may be changed; only the user's Enter starts it.
    const run = await vscode.window.showInputBox({
      title: "DICE: run a program and record its launches",
      prompt: "Command line of your own program. It runs with your rights, as in a terminal",
      value: found?.run ?? "",
      placeHolder: "./build/bench 1024",
      ignoreFocusOut: true,
    });
    return run?.trim() ? vscode.commands.executeCommand("dice.capture", { uri, run }) : undefined;
  });

  register("start", () => server.start());
  register("restart", () => server.restart("asked by the user"));
  register("showLog", () => server.log.show());
  register("install", async () => {
    if (await install(context)) {
      await server.restart("the server was installed");
    }
  });
  register("doctor", () => {
    const program = server.program;
    if (!program) {
      return sayNotRunning(server);
    }
    return runTask("DICE: Doctor", new vscode.ProcessExecution(program.command, [...program.arguments, "doctor"]));
  });
  register("selectModel", () => selectModel(server.program));
  register("selectDevice", () => selectDevice());
  register("menu", () => showMenu(server));
}

/** A document and its kernel at the cursor, as the server's commands take them. */
async function kernelAt(client: LanguageClient, editor: vscode.TextEditor): Promise<object | undefined> {
  const found = await serverAction(client, editor, (name, given) => name === "dice.fill" && "kernel" in given);
  const { uri, kernel } = (found ?? {}) as { uri?: string; kernel?: string };
  return found ? { uri, kernel } : undefined;
}

/** The argument of a code action of the server at the cursor. The server knows where kernels begin and end. */
async function serverAction(
  client: LanguageClient,
  editor: vscode.TextEditor,
  isMeant: (command: string, given: object) => boolean,
): Promise<object | undefined> {
  const actions = await client.sendRequest(CodeActionRequest.type, {
    textDocument: client.code2ProtocolConverter.asTextDocumentIdentifier(editor.document),
    range: client.code2ProtocolConverter.asRange(new vscode.Range(editor.selection.active, editor.selection.active)),
    context: { diagnostics: [], only: ["refactor.rewrite"] },
  });
  for (const { command } of (actions ?? []) as CodeAction[]) {
    const given = command?.arguments?.[0] as object | undefined;
    if (command && given && isMeant(command.command, given)) {
      return given;
    }
  }
  return undefined;
}

async function sayNotRunning(server: Server): Promise<void> {
  const state = server.state;
  if (state.kind === "missing") {
    return sayMissing(state);
  }
  const reason = state.kind === "failed" ? `: ${state.reason}` : state.kind === "starting" ? " yet; wait a moment" : "";
  const answer = await vscode.window.showWarningMessage(`DICE: the server does not run${reason}`, "Start", "Show Log");
  if (answer === "Start") {
    await server.start();
  } else if (answer === "Show Log") {
    server.log.show();
  }
}

async function sayMissing({ reason, named }: { reason: string; named: boolean }): Promise<void> {
  const answer = await vscode.window.showWarningMessage(
    `DICE: ${reason}`,
    ...(named ? ["Settings"] : ["Install", "Settings"]),
  );
  if (answer === "Install") {
    await vscode.commands.executeCommand("dice-lsp.install");
  } else if (answer === "Settings") {
    await vscode.commands.executeCommand("workbench.action.openSettings", "dice.server");
  }
}

async function offerUpdate(context: vscode.ExtensionContext, server: Server): Promise<void> {
  if (!isOutdated(context) || !server.program?.isOwn) {
    return;
  }
  const answer = await vscode.window.showInformationMessage(
    "DICE: the installed server is of another version than this extension",
    "Update",
  );
  if (answer === "Update") {
    await vscode.commands.executeCommand("dice-lsp.install");
  }
}

async function showMenu(server: Server): Promise<void> {
  const running = server.state.kind === "running";
  const rows: (vscode.QuickPickItem & { command?: string; given?: string })[] = [
    ...(server.state.kind === "missing"
      ? [
          {
            label: "$(cloud-download) Install server",
            description: "into an environment of its own",
            command: "dice-lsp.install",
          },
        ]
      : []),
    ...(running
      ? [
          { label: "$(sparkle) Candidates", description: "of this file", command: "dice-lsp.candidates" },
          { label: "$(beaker) Check this file", command: "dice-lsp.check" },
          {
            label: "$(pass) Accept as baseline",
            description: "the kernel at the cursor",
            command: "dice-lsp.acceptBaseline",
          },
          { label: "$(debug-stop) Stop what runs in this file", command: "dice-lsp.cancel" },
          { label: "", kind: vscode.QuickPickItemKind.Separator },
        ]
      : [{ label: "$(play) Start server", command: "dice-lsp.start" }]),
    { label: "$(refresh) Restart server", command: "dice-lsp.restart" },
    { label: "$(output) Show log", command: "dice-lsp.showLog" },
    {
      label: "$(pulse) Doctor",
      description: "what is found on this machine, in a terminal",
      command: "dice-lsp.doctor",
    },
    { label: "", kind: vscode.QuickPickItemKind.Separator },
    { label: "$(symbol-misc) Model", command: "dice-lsp.selectModel" },
    { label: "$(chip) Device", command: "dice-lsp.selectDevice" },
    { label: "$(gear) Settings", command: "workbench.action.openSettings", given: "@ext:dice-lsp.dice-lsp" },
  ];
  const chosen = await vscode.window.showQuickPick(rows, { title: "DICE", placeHolder: server.program?.origin ?? "" });
  if (chosen?.command) {
    await vscode.commands.executeCommand(chosen.command, ...(chosen.given ? [chosen.given] : []));
  }
}
