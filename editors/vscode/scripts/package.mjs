// Makes dice-lsp-<version>.vsix. The licence of the repository is the extension's.
import { execFileSync } from "node:child_process";
import { copyFileSync } from "node:fs";

import { extension, repository } from "./python.mjs";

copyFileSync(`${repository}LICENSE`, `${extension}LICENSE`);
execFileSync("npx", ["vsce", "package", "--no-dependencies", "--allow-missing-repository"], {
  cwd: extension,
  stdio: "inherit",
});
