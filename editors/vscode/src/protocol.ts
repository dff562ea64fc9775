/** What the server says beyond LSP; docs/protocol.md is the source. Only what this client reads is named. */

import type { Range } from "vscode-languageclient/node";

export interface FillArguments {
  readonly uri: string;
  readonly version?: number;
  readonly range?: Range;
  readonly kernel?: string;
}

export interface Candidate {
  /** The present rank, which changes while others are judged. */
  readonly label: string;
  /** The name for good. */
  readonly key: string;
  readonly title: string;
  readonly newText: string;
  readonly build: { readonly kind: string };
  readonly verdict: { readonly kind: string };
}

/** One fill on offer, as `dice/candidates` has it. */
export interface Offer {
  readonly fill: number;
  readonly uri: string;
  readonly version: number;
  readonly range: Range;
  readonly text: string;
  readonly kernel: string | null;
  readonly running: boolean;
  readonly reason: string | null;
  readonly candidates: readonly Candidate[];
}

/** What `dice.fill` returns, and `dice/candidate` says on the way. */
export interface FillResult {
  readonly fill: number | null;
  readonly candidates: readonly unknown[];
  readonly reason: string | null;
}

export interface CandidateNews extends FillResult {
  readonly uri: string;
}

export interface Applied {
  readonly applied: boolean;
  readonly reason: string | null;
}

export type PartState = "off" | "starting" | "loading" | "ready" | "failed";

/** `dice/status`. A server older than this client may leave the parts out. */
export interface ServerStatus {
  readonly state: "starting" | "idle" | "checking" | "filling" | "failed";
  readonly fills: number;
  readonly checks: number;
  readonly message?: string;
  readonly model?: { readonly name: string; readonly state: PartState; readonly reason: string };
  readonly judge?: {
    readonly state: PartState;
    readonly device: string;
    readonly driver: string;
    readonly compiler: string;
    readonly reason: string;
  };
}

const REFUSED_VERDICTS = new Set(["wrong", "unsafe", "cheating"]);

/** A candidate that does not compile or was proved bad is shown with its reason and cannot be applied. */
export function isRefused(candidate: Candidate): boolean {
  return candidate.build.kind !== "compiled" || REFUSED_VERDICTS.has(candidate.verdict.kind);
}

export function isVerified(candidate: Candidate): boolean {
  return candidate.build.kind === "compiled" && candidate.verdict.kind === "verified";
}
