// Builds the server's wheel into bundled/, which "Install Server" installs. Needs a Python with pip, and a package index
// for the build backend (hatchling).
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";

import { extension, python, repository } from "./python.mjs";

const bundled = `${extension}bundled`;
rmSync(bundled, { recursive: true, force: true });
mkdirSync(bundled);
execFileSync(python, ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", bundled, repository], {
  stdio: "inherit",
});
