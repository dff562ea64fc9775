// The Python that has dice_lsp: DICE_PYTHON, the repository's environment, else the first on PATH.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const extension = fileURLToPath(new URL("..", import.meta.url));
export const repository = fileURLToPath(new URL("../../..", import.meta.url));
const own = `${repository}.venv/bin/python`;
export const python = process.env.DICE_PYTHON ?? (existsSync(own) ? own : "python3");
