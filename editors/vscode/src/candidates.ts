/** The list of candidates: a row for each, its diff as the user moves, one key to take it. */

import * as vscode from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";

import { type Applied, type Candidate, isRefused, isVerified, type Offer } from "./protocol";

export const SCHEME = "dice-candidate";
/** A key that was pressed this soon after the rows moved by themselves was meant for another row. */
const MOVED_UNDER_FINGER_MS = 400;
const PREVIEW_DELAY_MS = 60;

const PREVIEW_BUTTON: vscode.QuickInputButton = {
  iconPath: new vscode.ThemeIcon("checklist"),
  tooltip: "Apply with Refactor Preview",
};

const DISCARD_BUTTON: vscode.QuickInputButton = {
  iconPath: new vscode.ThemeIcon("trash"),
  tooltip: "Discard these candidates",
};

interface Row extends vscode.QuickPickItem {
  readonly offer?: Offer;
  readonly candidate?: Candidate;
}

/** Texts of the right side of each diff: the document with one candidate in its place. */
class CandidateTexts implements vscode.TextDocumentContentProvider {
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changed.event;
  private readonly texts = new Map<string, string>();

  put(uri: vscode.Uri, text: string): void {
    const known = this.texts.get(uri.toString());
    this.texts.set(uri.toString(), text);
    if (known !== undefined && known !== text) {
      this.changed.fire(uri);
    }
  }

  clear(): void {
    this.texts.clear();
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.toString()) ?? "";
  }
}

export class Candidates implements vscode.Disposable {
  private readonly texts = new CandidateTexts();
  private readonly registration = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this.texts);
  private open: Picker | undefined;

  constructor(private readonly client: () => LanguageClient | undefined) {}

  /** The list that is shown, if one is. */
  get shown(): Picker | undefined {
    return this.open;
  }

  /** Show the candidates of a document, or of one fill of it. Undefined when there are none. */
  async show(document: vscode.TextDocument, fill?: number): Promise<Picker | undefined> {
    const client = this.client();
    const offers = client ? await fetchOffers(client, document, fill) : [];
    if (!client || !offers.some((offer) => offer.candidates.length > 0)) {
      return undefined;
    }
    // One after the other: a list that ends puts the editor back as it was.
    await this.open?.close();
    const picker = new Picker(client, this.texts, document, offers, fill);
    this.open = picker;
    picker.onDidEnd(() => {
      if (this.open === picker) {
        this.open = undefined;
      }
    });
    await picker.begin();
    return picker;
  }

  dispose(): void {
    void this.open?.close();
    this.registration.dispose();
  }
}

async function fetchOffers(client: LanguageClient, document: vscode.TextDocument, fill?: number): Promise<Offer[]> {
  const uri = client.code2ProtocolConverter.asUri(document.uri);
  const offers = await client.sendRequest<Offer[]>("dice/candidates", fill === undefined ? { uri } : { uri, fill });
  const cursor = vscode.window.activeTextEditor;
  const line = cursor?.document === document ? cursor.selection.active.line : -1;
  const isHere = (offer: Offer): number => Number(offer.range.start.line <= line && line <= offer.range.end.line);
  // The fill at the cursor comes first, then the newest.
  return offers.sort((one, other) => isHere(other) - isHere(one) || other.fill - one.fill);
}

export class Picker {
  private readonly pick = vscode.window.createQuickPick<Row>();
  private readonly ended = new vscode.EventEmitter<"applied" | "left">();
  readonly onDidEnd = this.ended.event;
  private readonly editor: vscode.TextEditor | undefined;
  private readonly selections: readonly vscode.Selection[];
  private readonly visible: vscode.Range | undefined;
  private readonly column: vscode.ViewColumn;
  private taken = false;
  private over = false;
  private follows = true;
  private movedTo: string | undefined;
  private movedAt = 0;
  private preview: NodeJS.Timeout | undefined;
  private previewing: Promise<void> = Promise.resolve();
  private following: vscode.Disposable | undefined;
  private leaving: Promise<void> | undefined;
  private refreshing: Promise<void> | undefined;
  private refreshAgain = false;

  constructor(
    private readonly client: LanguageClient,
    private readonly texts: CandidateTexts,
    private readonly document: vscode.TextDocument,
    private offers: readonly Offer[],
    readonly fill: number | undefined,
  ) {
    this.editor = vscode.window.visibleTextEditors.find((editor) => editor.document === document);
    this.selections = this.editor?.selections ?? [];
    this.visible = this.editor?.visibleRanges[0];
    this.column = this.editor?.viewColumn ?? vscode.ViewColumn.Active;
  }

  /** The rows as shown, for whoever drives this without eyes. */
  get rows(): readonly { label: string; key: string; refused: boolean; active: boolean }[] {
    const active = this.pick.activeItems[0]?.candidate?.key;
    return this.pick.items.flatMap(({ candidate, label }) =>
      candidate ? [{ label, key: candidate.key, refused: isRefused(candidate), active: candidate.key === active }] : [],
    );
  }

  async begin(): Promise<void> {
    // A diff takes the place of a preview tab: the file's own tab must not be one, or the file would be closed.
    if (isPreviewTab(this.document.uri)) {
      await vscode.window.showTextDocument(this.document, { viewColumn: this.column, preview: false });
    }
    this.pick.matchOnDetail = true;
    this.pick.ignoreFocusOut = true;
    this.pick.keepScrollPosition = true;
    this.pick.onDidChangeActive(([row]) => this.onActive(row));
    this.pick.onDidAccept(() => void this.onAccept());
    this.pick.onDidTriggerItemButton(({ item }) => void this.take(item, true));
    this.pick.buttons = [DISCARD_BUTTON];
    this.pick.onDidTriggerButton(() => void this.discard());
    // The left side of the diff is the text itself and may be edited: places move.
    this.following = vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
      if (document === this.document && contentChanges.length > 0) {
        void this.refresh();
      }
    });
    this.pick.onDidHide(() => void this.onHide());
    this.fillIn();
    this.pick.show();
  }

  /** Ask again what there is; calls that come meanwhile are served by one more answer. */
  refresh(): Promise<void> {
    if (this.refreshing) {
      this.refreshAgain = true;
      return this.refreshing;
    }
    this.refreshing = this.fetch().finally(() => (this.refreshing = undefined));
    return this.refreshing;
  }

  /** The phase of the fill that still runs, under the input. */
  say(message: string): void {
    if (!this.over) {
      this.pick.placeholder = message;
    }
  }

  /** As Escape does; done once the editor is as it was. */
  async close(): Promise<void> {
    this.pick.hide();
    await this.leave();
  }

  private async fetch(): Promise<void> {
    do {
      this.refreshAgain = false;
      let offers;
      try {
        offers = await fetchOffers(this.client, this.document, this.fill);
      } catch {
        // What is shown stays; when the server is gone the list is closed.
        return;
      }
      if (this.over) {
        return;
      }
      this.offers = offers;
      if (!offers.some((offer) => offer.candidates.length > 0)) {
        void this.close();
        return;
      }
      this.fillIn();
    } while (this.refreshAgain);
  }

  private fillIn(): void {
    const [first] = this.offers;
    const running = this.offers.some((offer) => offer.running);
    this.pick.title = `DICE: candidates for ${this.offers.length === 1 && first?.kernel ? first.kernel : "this file"}`;
    this.pick.busy = running;
    if (running) {
      this.pick.placeholder ??= "More candidates are being judged";
    } else {
      this.pick.placeholder = "Enter applies, Escape leaves the text as it was";
    }
    const before = this.pick.activeItems[0]?.candidate?.key;
    const rows = this.offers.flatMap((offer) => this.rowsOf(offer));
    this.pick.items = rows;
    const kept = this.follows ? undefined : rows.find((row) => row.candidate?.key === before);
    const active = kept ?? rows.find((row) => row.candidate);
    if (active) {
      this.pick.activeItems = [active];
      if (active.candidate?.key !== before) {
        this.movedTo = active.candidate?.key;
        this.movedAt = before === undefined ? 0 : Date.now();
      }
      // The list may not tell of an active row that was set; its diff must be shown all the same.
      this.previewSoon(active);
    }
  }

  private rowsOf(offer: Offer): Row[] {
    const lines = `lines ${offer.range.start.line + 1} to ${offer.range.end.line + 1}`;
    const head: Row[] =
      this.offers.length > 1
        ? [{ label: `${offer.kernel ?? "fill"}, ${lines}`, kind: vscode.QuickPickItemKind.Separator }]
        : [];
    return head.concat(
      offer.candidates.map((candidate) => ({
        label: candidate.title,
        detail: firstWords(candidate.newText),
        iconPath: new vscode.ThemeIcon(
          isRefused(candidate) ? "circle-slash" : isVerified(candidate) ? "verified" : "question",
        ),
        buttons: isRefused(candidate) ? [] : [PREVIEW_BUTTON],
        offer,
        candidate,
      })),
    );
  }

  private onActive(row: Row | undefined): void {
    if (!row?.candidate) {
      return;
    }
    if (row.candidate.key !== this.movedTo) {
      // Moved by the user: from now on their row is kept, wherever it goes.
      this.follows = false;
    }
    this.movedTo = row.candidate.key;
    this.previewSoon(row);
  }

  private previewSoon(row: Row): void {
    clearTimeout(this.preview);
    this.preview = setTimeout(() => {
      // One diff after another: a slow one must not come out on top of a newer.
      this.previewing = this.previewing.then(() => this.showDiff(row)).catch(() => {});
    }, PREVIEW_DELAY_MS);
  }

  private async showDiff({ offer, candidate }: Row): Promise<void> {
    if (this.over || !offer || !candidate || this.document.isClosed) {
      return;
    }
    const place = this.client.protocol2CodeConverter.asRange(offer.range);
    const text = this.document.getText();
    const start = this.document.offsetAt(place.start);
    const spliced = text.slice(0, start) + candidate.newText + text.slice(this.document.offsetAt(place.end));
    const uri = vscode.Uri.from({
      scheme: SCHEME,
      path: this.document.uri.path,
      query: `fill=${offer.fill}&key=${candidate.key}`,
    });
    this.texts.put(uri, spliced);
    if (diffTabs().some((tab) => tab.isActive && diffSide(tab)?.toString() === uri.toString())) {
      return;
    }
    const name = this.document.uri.path.split("/").at(-1) ?? "";
    await vscode.commands.executeCommand("vscode.diff", this.document.uri, uri, `${name} with ${candidate.title}`, {
      preview: true,
      preserveFocus: true,
      viewColumn: this.column,
      selection: new vscode.Range(place.start, place.start),
    } satisfies vscode.TextDocumentShowOptions);
    // VS Code may leave the left side at its top when the right one opens further down; it follows when the right one moves.
    const right = vscode.window.visibleTextEditors.find(({ document }) => document.uri.toString() === uri.toString());
    right?.revealRange(new vscode.Range(0, 0, 0, 0), vscode.TextEditorRevealType.AtTop);
    right?.revealRange(new vscode.Range(place.start, place.start), vscode.TextEditorRevealType.InCenter);
    if (this.over) {
      await closeDiffs();
    } else {
      await closeDiffs(uri);
    }
  }

  private async onAccept(): Promise<void> {
    const [row] = this.pick.activeItems;
    if (row && Date.now() - this.movedAt > MOVED_UNDER_FINGER_MS) {
      await this.take(row, false);
    }
  }

  private async take({ offer, candidate }: Row, preview: boolean): Promise<void> {
    if (!offer || !candidate || this.taken) {
      return;
    }
    if (isRefused(candidate)) {
      this.say(`${candidate.label} was refused and cannot be applied; choose another`);
      return;
    }
    this.taken = true;
    this.pick.hide();
    await this.leave();
    this.ended.fire("applied");
    const choice = { fill: offer.fill, candidate: candidate.label, key: candidate.key };
    await vscode.commands.executeCommand<Applied>("dice.apply", preview ? { ...choice, preview } : choice);
  }

  private async discard(): Promise<void> {
    const fills = this.offers.filter((offer) => !offer.running).map((offer) => offer.fill);
    await this.close();
    for (const fill of fills) {
      await vscode.commands.executeCommand("dice.discard", { fill });
    }
  }

  private async onHide(): Promise<void> {
    if (!this.taken) {
      await this.leave();
      this.ended.fire("left");
    }
  }

  /** The editor as it was before the list. */
  private leave(): Promise<void> {
    this.leaving ??= this.leaveNow();
    return this.leaving;
  }

  private async leaveNow(): Promise<void> {
    this.over = true;
    this.following?.dispose();
    clearTimeout(this.preview);
    this.pick.dispose();
    await this.previewing;
    await closeDiffs();
    this.texts.clear();
    if (this.document.isClosed) {
      return;
    }
    const editor = await vscode.window.showTextDocument(this.document, { viewColumn: this.column, preview: false });
    if (this.selections.length > 0) {
      editor.selections = [...this.selections];
    }
    if (this.visible) {
      editor.revealRange(this.visible, vscode.TextEditorRevealType.AtTop);
    }
  }
}

function firstWords(text: string): string {
  const words = text
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line && line !== "{" && line !== "}")
    .join(" ");
  return words.length > 120 ? words.slice(0, 118) + ".." : words;
}

function isPreviewTab(uri: vscode.Uri): boolean {
  return vscode.window.tabGroups.all
    .flatMap((group) => group.tabs)
    .some(
      (tab) => tab.isPreview && tab.input instanceof vscode.TabInputText && tab.input.uri.toString() === uri.toString(),
    );
}

function diffSide(tab: vscode.Tab): vscode.Uri | undefined {
  const input = tab.input;
  return input instanceof vscode.TabInputTextDiff && input.modified.scheme === SCHEME ? input.modified : undefined;
}

function diffTabs(): vscode.Tab[] {
  return vscode.window.tabGroups.all.flatMap((group) => group.tabs).filter((tab) => diffSide(tab) !== undefined);
}

async function closeDiffs(except?: vscode.Uri): Promise<void> {
  const tabs = diffTabs().filter((tab) => diffSide(tab)?.toString() !== except?.toString());
  if (tabs.length > 0) {
    await vscode.window.tabGroups.close(tabs, true);
  }
}
