/** The status item: what is ready, what runs, what is wrong and what to do about it. */

import * as vscode from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";

import type { ServerStatus } from "./protocol";
import type { Server } from "./server";

export class Status implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem("dice-lsp.status", vscode.StatusBarAlignment.Left, 0);
  private told: ServerStatus | undefined;

  constructor(private readonly server: Server) {
    this.item.name = "DICE";
    this.item.command = "dice-lsp.menu";
    server.onDidChange(({ kind }) => {
      this.item.show();
      if (kind !== "running") {
        this.told = undefined;
      } else if (server.client) {
        void this.ask(server.client);
      }
      this.draw();
    });
    this.draw();
  }

  /** What stands in the status bar, and what the server said last. */
  get shown(): { readonly text: string; readonly tooltip: string; readonly server: ServerStatus | undefined } {
    return { text: this.item.text, tooltip: String(this.item.tooltip ?? ""), server: this.told };
  }

  listen(client: LanguageClient): void {
    client.onNotification("dice/status", (status: ServerStatus) => this.take(status));
  }

  dispose(): void {
    this.item.dispose();
  }

  private async ask(client: LanguageClient): Promise<void> {
    try {
      this.take(await client.sendRequest<ServerStatus>("dice/status", {}));
    } catch {
      // A server older than this request still tells its state by notification.
    }
  }

  private take(status: ServerStatus): void {
    this.told = { ...this.told, ...status };
    this.draw();
  }

  private draw(): void {
    const state = this.server.state;
    switch (state.kind) {
      case "stopped":
        return this.put("$(circle-slash) DICE: stopped", "The server is stopped");
      case "missing":
        return this.put("$(warning) DICE: server not found", state.reason, "warning");
      case "failed":
        return this.put("$(error) DICE: failed", state.reason, "error");
      case "starting":
        return this.put("$(sync~spin) DICE: starting", "The server is starting");
      case "running":
        return this.drawRunning(this.told);
    }
  }

  private drawRunning(status: ServerStatus | undefined): void {
    const details = status ? describe(status) : "The server runs";
    switch (status?.state) {
      case "failed":
        return this.put("$(error) DICE: failed", details, "error");
      case "starting":
        return this.put("$(sync~spin) DICE: starting", details);
      case "filling":
        return this.put("$(sync~spin) DICE: filling", details);
      case "checking":
        return this.put("$(sync~spin) DICE: checking", details);
      default: {
        const device = status?.judge?.device;
        const where = device === "host" ? "ready on host" : device ? `ready on ${device}` : "ready";
        const failed = status?.model?.state === "failed" || status?.judge?.state === "failed";
        return this.put(`$(${failed ? "warning" : "check"}) DICE: ${where}`, details, failed ? "warning" : undefined);
      }
    }
  }

  private put(text: string, tooltip: string, background?: "warning" | "error"): void {
    this.item.text = text;
    this.item.tooltip = `${tooltip}\nClick for the menu`;
    this.item.backgroundColor = background ? new vscode.ThemeColor(`statusBarItem.${background}Background`) : undefined;
  }
}

function describe({ message, model, judge }: ServerStatus): string {
  const lines = [message];
  if (model) {
    lines.push(`Model: ${model.name}, ${model.state}${model.reason ? `: ${model.reason}` : ""}`);
  }
  if (judge) {
    const parts = [judge.device, judge.state, judge.compiler, judge.driver && `driver ${judge.driver}`];
    lines.push(`Judge: ${parts.filter(Boolean).join(", ")}${judge.reason ? `: ${judge.reason}` : ""}`);
  }
  return lines.filter(Boolean).join("\n") || "The server runs";
}
