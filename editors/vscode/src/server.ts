/** One server process and its client: started, restarted once for many wishes, and given up with a reason. */

import * as vscode from "vscode";
import {
  CloseAction,
  ErrorAction,
  LanguageClient,
  type ClientCapabilities,
  type CloseHandlerResult,
  type DocumentSelector,
  type ErrorHandler,
  type Middleware,
  RevealOutputChannelOn,
  type ServerCapabilities,
  type StaticFeature,
  State,
} from "vscode-languageclient/node";

import { locate, type Program } from "./locate";
import { chosenSettings } from "./settings";
import { traceChannel } from "./trace";

/** Wishes for a restart within this time become one. */
const COALESCE_MS = 1000;
const LAST_WORD_MS = 200;
const STOP_MS = 5000;
const MAX_BROKEN_MESSAGES = 3;
const MAX_CRASHES = 4;
const CRASH_WINDOW_MS = 3 * 60 * 1000;

const CUDA = ["file", "untitled"].flatMap((scheme) => [
  { scheme, language: "cuda-cpp" },
  { scheme, language: "cuda" },
  { scheme, pattern: "**/*.{cu,cuh}" },
]);
/** The CUDA that stands in the strings of a Python file; sent only to a server that says that it reads it. */
const PYTHON = [{ scheme: "file", language: "python" }];
const KERNEL_WORD = "__global__";

function isPythonWithCuda(document: vscode.TextDocument): boolean {
  return vscode.languages.match(PYTHON, document) > 0 && document.getText().includes(KERNEL_WORD);
}

/** A document for whose sake the server is started. */
export function isCuda(document: vscode.TextDocument): boolean {
  return vscode.languages.match(CUDA, document) > 0 || isPythonWithCuda(document);
}

/** Nothing is open but Python without CUDA: nobody has asked for us yet. */
export function isOnlyPython(documents: readonly vscode.TextDocument[]): boolean {
  return documents.some((document) => vscode.languages.match(PYTHON, document) > 0) && !documents.some(isCuda);
}

function readsPython(capabilities: ServerCapabilities | undefined): boolean {
  return (capabilities?.experimental as { dicePython?: boolean } | undefined)?.dicePython === true;
}

export type ServerState =
  | { readonly kind: "stopped" }
  | { readonly kind: "missing"; readonly reason: string; readonly named: boolean }
  | { readonly kind: "starting" }
  | { readonly kind: "running" }
  | { readonly kind: "failed"; readonly reason: string };

class Experimental implements StaticFeature {
  fillClientCapabilities(capabilities: ClientCapabilities): void {
    const known: object = typeof capabilities.experimental === "object" ? (capabilities.experimental as object) : {};
    capabilities.experimental = { ...known, dice: true, diceSvg: true, dicePreview: true };
  }
  /** The selector is that of the features which are set up right after this. */
  preInitialize(capabilities: ServerCapabilities, selector: DocumentSelector | undefined): void {
    const wanted = readsPython(capabilities) ? [...CUDA, ...PYTHON] : CUDA;
    selector?.splice(0, selector.length, ...wanted);
  }
  initialize(): void {}
  getState(): { kind: "static" } {
    return { kind: "static" };
  }
  clear(): void {}
}

/** A client that leaves talking to the user to us. */
class Client extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }

  /** The library stops a client whose start has failed, which then says that it cannot be stopped. */
  override async stop(timeout?: number): Promise<void> {
    if (this.isRunning()) {
      await super.stop(timeout);
    }
  }
}

export class Server implements vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<ServerState>();
  readonly onDidChange = this.changed.event;
  private readonly connected = new vscode.EventEmitter<LanguageClient>();
  /** A new client, before it is started: the place to add handlers. */
  readonly onClient = this.connected.event;
  private readonly trace: vscode.LogOutputChannel & vscode.Disposable;
  private current: ServerState = { kind: "stopped" };
  private live: LanguageClient | undefined;
  private found: Program | undefined;
  private queue: Promise<void> = Promise.resolve();
  private restartWanted: { timer: NodeJS.Timeout; done: Promise<void> } | undefined;
  /** The last line that the process wrote outside of its log: what Python says when it ends by an error. */
  private lastWords = "";

  constructor(
    private readonly context: vscode.ExtensionContext,
    readonly log: vscode.LogOutputChannel,
    private readonly middleware: () => Middleware,
  ) {
    this.trace = traceChannel(log);
  }

  get state(): ServerState {
    return this.current;
  }

  /** The client, only while it can be asked. */
  get client(): LanguageClient | undefined {
    return this.live?.isRunning() ? this.live : undefined;
  }

  /** Whether the running server has this document. */
  reads(document: vscode.TextDocument): boolean {
    return (
      vscode.languages.match(CUDA, document) > 0 ||
      (readsPython(this.client?.initializeResult?.capabilities) && isPythonWithCuda(document))
    );
  }

  get program(): Program | undefined {
    return this.found;
  }

  start(): Promise<void> {
    return this.inTurn(() => this.startNow());
  }

  stop(): Promise<void> {
    return this.inTurn(() => this.stopNow());
  }

  /** Restart soon. Wishes that come before it happens are served by the same restart. */
  restart(why: string): Promise<void> {
    this.log.info(`restart: ${why}`);
    if (this.restartWanted) {
      this.restartWanted.timer.refresh();
      return this.restartWanted.done;
    }
    let fire = (): void => {};
    const elapsed = new Promise<void>((resolve) => (fire = resolve));
    const done = elapsed.then(() => {
      this.restartWanted = undefined;
      if (this.live?.state === State.Starting) {
        // A start that hangs would hold the turn for ever.
        this.live.serverProcess?.kill("SIGKILL");
      }
      return this.inTurn(async () => {
        await this.stopNow();
        await this.startNow();
      });
    });
    this.restartWanted = { timer: setTimeout(fire, COALESCE_MS), done };
    return done;
  }

  async dispose(): Promise<void> {
    if (this.restartWanted) {
      clearTimeout(this.restartWanted.timer);
    }
    await this.stop();
    this.trace.dispose();
    this.changed.dispose();
    this.connected.dispose();
  }

  private inTurn(work: () => Promise<void>): Promise<void> {
    this.queue = this.queue.then(work, work);
    return this.queue;
  }

  private become(state: ServerState): void {
    if (state.kind === "starting") {
      this.lastWords = "";
    }
    this.current = state;
    void vscode.commands.executeCommand("setContext", "dice-lsp.running", state.kind === "running");
    this.changed.fire(state);
  }

  private async startNow(): Promise<void> {
    if (this.live && this.current.kind !== "failed") {
      return;
    }
    await this.stopNow();
    const program = locate(this.context);
    if (!("command" in program)) {
      this.found = undefined;
      this.log.warn(program.reason);
      this.become({ kind: "missing", reason: program.reason, named: program.named });
      return;
    }
    this.found = program;
    this.log.info(`server: ${[program.command, ...program.arguments].join(" ")} (from ${program.origin})`);
    this.become({ kind: "starting" });
    const client = this.makeClient(program);
    this.live = client;
    let problem: unknown;
    try {
      await client.start();
    } catch (error) {
      problem = error;
    }
    // The library also calls it a start when the process ended before it answered.
    if (!client.isRunning()) {
      // What the process said last comes by another pipe than the news of its end.
      await new Promise((resolve) => setTimeout(resolve, LAST_WORD_MS));
      if (this.live === client && !client.isRunning()) {
        this.fail(`the server did not start: ${this.lastWord(problem)}`);
      }
    }
  }

  private async stopNow(): Promise<void> {
    const client = this.live;
    this.live = undefined;
    if (client) {
      if (client.state === State.Starting) {
        // It cannot be asked to end yet.
        client.serverProcess?.kill("SIGKILL");
      }
      try {
        await client.dispose(STOP_MS);
      } catch (error) {
        this.log.info(`stop: ${String(error)}`);
      }
    }
    this.become({ kind: "stopped" });
  }

  private makeClient(program: Program): LanguageClient {
    const client: LanguageClient = new Client(
      "dice",
      "DICE",
      {
        command: program.command,
        args: [...program.arguments, "serve"],
        options: { env: { DICE_LSP_LOG: process.env["DICE_LSP_LOG"] ?? "INFO" } },
      },
      {
        documentSelector: [...CUDA],
        outputChannel: this.log,
        traceOutputChannel: this.trace,
        diagnosticCollectionName: "dice",
        initializationOptions: () => chosenSettings(this.context),
        initializationFailedHandler: () => false,
        // What fails is said by the part that asked, in one sentence; the rest is in the log.
        revealOutputChannelOn: RevealOutputChannelOn.Never,
        middleware: this.middleware(),
        errorHandler: this.errorHandler(() => this.live === client),
        stdioOptions: {
          stdout: () => {},
          stderr: (stream) => this.followLog(stream),
        },
      },
    );
    client.registerFeature(new Experimental());
    client.onDidChangeState(({ newState }) => {
      if (this.live !== client) {
        return;
      }
      if (newState === State.Running) {
        this.become({ kind: "running" });
      } else if (newState === State.Starting) {
        this.become({ kind: "starting" });
      }
    });
    this.connected.fire(client);
    return client;
  }

  private errorHandler(isLive: () => boolean): ErrorHandler {
    const crashes: number[] = [];
    return {
      error: (error, _message, count) => {
        this.log.error(`connection: ${error.message}`);
        // Without a count it is a pipe of a process that has just ended: `closed` comes next and decides.
        if ((count ?? 0) <= MAX_BROKEN_MESSAGES) {
          return { action: ErrorAction.Continue, handled: true };
        }
        this.fail(`the connection to the server broke: ${error.message}`);
        return { action: ErrorAction.Shutdown, handled: true };
      },
      closed: (): CloseHandlerResult => {
        if (!isLive()) {
          return { action: CloseAction.DoNotRestart, handled: true };
        }
        if (this.current.kind !== "running" && crashes.length === 0) {
          // It never came up: another try would end the same way. `start` says why.
          return { action: CloseAction.DoNotRestart, handled: true };
        }
        const now = Date.now();
        crashes.push(now);
        while (crashes[0] !== undefined && now - crashes[0] > CRASH_WINDOW_MS) {
          crashes.shift();
        }
        if (crashes.length <= MAX_CRASHES) {
          this.log.warn(`the server ended by itself; it is started again (${crashes.length} of ${MAX_CRASHES})`);
          return { action: CloseAction.Restart, handled: true };
        }
        this.fail(`the server ended ${crashes.length} times in 3 minutes: ${this.lastWord()}`);
        return { action: CloseAction.DoNotRestart, handled: true };
      },
    };
  }

  private fail(reason: string): void {
    this.log.error(reason);
    this.become({ kind: "failed", reason });
    void this.sayFailed(reason);
  }

  private async sayFailed(reason: string): Promise<void> {
    const answer = await vscode.window.showErrorMessage(`DICE: ${reason}`, "Restart", "Show Log");
    if (answer === "Restart") {
      await this.restart("asked after a failure");
    } else if (answer === "Show Log") {
      this.log.show();
    }
  }

  private lastWord(error?: unknown): string {
    if (this.lastWords) {
      return this.lastWords;
    }
    const told = error instanceof Error ? error.message : "";
    return !told || /EPIPE|disposed|closed/.test(told) ? "its process ended and said nothing" : told;
  }

  /** The server's log lines keep their level. */
  private followLog(stream: NodeJS.ReadableStream): void {
    let rest = "";
    stream.setEncoding("utf8");
    stream.on("data", (chunk: string) => {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines.filter((item) => item.trim())) {
        const level = /^\S+ \S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) /.exec(line)?.[1];
        if (level === "DEBUG") {
          this.log.debug(line);
        } else if (level === "INFO") {
          this.log.info(line);
        } else if (level === "WARNING") {
          this.log.warn(line);
        } else {
          this.log.error(line);
          this.lastWords = level ? this.lastWords : line.trim();
        }
      }
    });
  }
}
