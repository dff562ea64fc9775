// Writes the server's settings into package.json; tests/test_vscode_settings.py fails when this was forgotten.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

import { extension, python, repository } from "./python.mjs";

const path = `${extension}package.json`;
const manifest = JSON.parse(readFileSync(path, "utf8"));
const printed = execFileSync(python, ["-m", "dice_lsp", "settings", "--vscode"], { cwd: repository, encoding: "utf8" });
manifest.contributes.configuration[0].properties = JSON.parse(printed);
writeFileSync(path, JSON.stringify(manifest, null, 2) + "\n");
