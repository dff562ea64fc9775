/** A fill from the key press to the list: progress that can be cancelled, and the list while the user waits for it. */

import * as vscode from "vscode";
import {
  type ExecuteCommandMiddleware,
  type LanguageClient,
  type Middleware,
  type ProgressToken,
  WorkDoneProgressCancelNotification,
} from "vscode-languageclient/node";

import type { Candidates, Picker } from "./candidates";
import type { CandidateNews, FillArguments, FillResult } from "./protocol";

type HandleProgress = NonNullable<Middleware["handleWorkDoneProgress"]>;
type ProgressParams = Parameters<HandleProgress>[1];
type Execute = NonNullable<ExecuteCommandMiddleware["executeCommand"]>;

const FILL_TITLE = "DICE: filling";

/** A fill that was asked for here and whose result has not come. */
interface Running {
  readonly document: vscode.TextDocument;
  readonly version: number;
  number: number | undefined;
  opening: Promise<Picker | undefined> | undefined;
}

interface Bar {
  readonly progress: vscode.Progress<{ message?: string; increment?: number }>;
  reported: number;
  readonly end: () => void;
}

export class Fills {
  private readonly running = new Set<Running>();
  private readonly bars = new Map<ProgressToken, Promise<Bar>>();

  constructor(
    private readonly client: () => LanguageClient | undefined,
    private readonly candidates: Candidates,
  ) {}

  listen(client: LanguageClient): void {
    client.onNotification("dice/candidate", (news: CandidateNews) => void this.onCandidate(client, news));
  }

  /** Runs the server's commands; a fill, wherever it was asked for, ends in the list. */
  readonly execute: Execute = async (command, given, next) => {
    try {
      return command === "dice.fill" ? await this.fill(command, given, next) : await next(command, given);
    } catch (error) {
      if (!(error instanceof vscode.CancellationError)) {
        const told = error instanceof Error ? error.message : String(error);
        void vscode.window
          .showErrorMessage(`DICE: ${command} failed: ${told}; the log has the rest`, "Show Log")
          .then((answer) => answer && vscode.commands.executeCommand("dice-lsp.showLog"));
      }
      return undefined;
    }
  };

  private async fill(command: string, given: unknown[], next: Parameters<Execute>[2]): Promise<unknown> {
    const wanted = given[0] as FillArguments | undefined;
    const client = this.client();
    if (!wanted || !client) {
      return next(command, given);
    }
    const uri = client.protocol2CodeConverter.asUri(wanted.uri);
    const document = vscode.workspace.textDocuments.find((item) => item.uri.toString() === uri.toString());
    if (!document) {
      return next(command, given);
    }
    const run: Running = { document, version: document.version, number: undefined, opening: undefined };
    this.running.add(run);
    try {
      const result = (await next(command, given)) as FillResult | undefined;
      if (result === undefined && !client.isRunning()) {
        void vscode.window.showWarningMessage(
          "DICE: the server ended while it was filling; fill again once it is ready",
        );
      }
      await this.onEnd(run, result);
      return result;
    } finally {
      this.running.delete(run);
    }
  }

  /** The server's progress of a fill becomes a notification with a cancel button; other progress is left as it is. */
  readonly progress: HandleProgress = (token, params, next) => {
    if (params.kind === "begin" && params.title.startsWith(FILL_TITLE)) {
      this.bars.set(token, this.openBar(token, params.title, params.message));
      return;
    }
    const bar = this.bars.get(token);
    if (!bar) {
      next(token, params);
      return;
    }
    void bar.then((open) => this.onBar(open, params));
    if (params.kind === "end") {
      this.bars.delete(token);
      next(token, params);
    }
  };

  /** The server is gone: nothing that it ran goes on. */
  forget(): void {
    for (const bar of this.bars.values()) {
      void bar.then((open) => open.end());
    }
    this.bars.clear();
    void this.candidates.shown?.close();
  }

  private openBar(token: ProgressToken, title: string, message: string | undefined): Promise<Bar> {
    return new Promise((opened) => {
      const options = { location: vscode.ProgressLocation.Notification, title, cancellable: true };
      void vscode.window.withProgress(options, (progress, cancelled) => {
        cancelled.onCancellationRequested(() => {
          void this.client()?.sendNotification(WorkDoneProgressCancelNotification.type, { token });
        });
        if (message) {
          progress.report({ message });
        }
        return new Promise<void>((end) => opened({ progress, reported: 0, end }));
      });
    });
  }

  private onBar(bar: Bar, params: ProgressParams): void {
    if (params.kind === "end") {
      bar.end();
      return;
    }
    const percentage = Math.max(bar.reported, params.percentage ?? 0);
    const increment = percentage - bar.reported;
    bar.reported = percentage;
    bar.progress.report(params.message ? { message: params.message, increment } : { increment });
    if (params.message) {
      this.candidates.shown?.say(params.message);
    }
  }

  private async onCandidate(client: LanguageClient, news: CandidateNews): Promise<void> {
    if (news.fill === null) {
      return;
    }
    const shown = this.candidates.shown;
    if (shown && (shown.fill === undefined || shown.fill === news.fill)) {
      await shown.refresh();
      return;
    }
    const uri = client.protocol2CodeConverter.asUri(news.uri).toString();
    const runs = [...this.running].filter((item) => item.document.uri.toString() === uri);
    // Fills are numbered in the order in which they were asked for.
    const run = runs.find((item) => item.number === news.fill) ?? runs.find((item) => item.number === undefined);
    if (run) {
      run.number = news.fill;
      await this.openFor(run, news.fill);
    }
  }

  /** Open the list once for each fill, if the user still waits in front of it: who types or looks elsewhere is let be. */
  private openFor(run: Running, fill: number): Promise<Picker | undefined> {
    const waits = vscode.window.activeTextEditor?.document === run.document && run.document.version === run.version;
    if (waits && !run.opening) {
      run.opening = this.candidates.show(run.document, fill);
    }
    return run.opening ?? Promise.resolve(undefined);
  }

  private async onEnd(run: Running, result: FillResult | undefined): Promise<void> {
    const fill = result?.fill ?? undefined;
    if (!result || fill === undefined || result.candidates.length === 0) {
      // The server has said why.
      await (await run.opening)?.close();
      return;
    }
    const wasOpened = run.opening !== undefined;
    if (wasOpened) {
      await run.opening;
      await this.candidates.shown?.refresh();
    } else if (result.reason !== "cancelled" && (await this.openFor(run, fill)) === undefined) {
      void this.offer(run.document, fill, result.candidates.length);
    }
  }

  private async offer(document: vscode.TextDocument, fill: number, count: number): Promise<void> {
    const name = document.uri.path.split("/").at(-1) ?? "";
    const found = count === 1 ? "1 candidate is" : `${count} candidates are`;
    if ((await vscode.window.showInformationMessage(`DICE: ${found} ready in ${name}`, "Show")) === "Show") {
      await vscode.window.showTextDocument(document);
      if ((await this.candidates.show(document, fill)) === undefined) {
        void vscode.window.showInformationMessage("DICE: the text has changed and the candidates are gone; fill again");
      }
    }
  }
}
