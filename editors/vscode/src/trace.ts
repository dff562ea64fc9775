import * as vscode from "vscode";

/**
 * The channel that `dice.trace.server` writes into.
 *
 * The client traces only into a channel whose level is Trace, which is set in another place of VS Code; with this one the
 * setting alone is enough.
 */
export function traceChannel(log: vscode.LogOutputChannel): vscode.LogOutputChannel & vscode.Disposable {
  const level = (): vscode.LogLevel => {
    const traced = vscode.workspace.getConfiguration("dice").get<string>("trace.server", "off");
    return traced === "off" ? log.logLevel : vscode.LogLevel.Trace;
  };
  const changed = new vscode.EventEmitter<vscode.LogLevel>();
  const followed = [
    log.onDidChangeLogLevel(() => changed.fire(level())),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("dice.trace")) {
        changed.fire(level());
      }
    }),
  ];
  return Object.create(log, {
    logLevel: { get: level },
    onDidChangeLogLevel: { value: changed.event },
    trace: { value: (message: string) => log.info(message) },
    dispose: {
      value: () => {
        followed.forEach((item) => item.dispose());
        changed.dispose();
      },
    },
  }) as vscode.LogOutputChannel & vscode.Disposable;
}
