// Makes dice-lsp-<version>.vsix. The licence of the repository is the extension's; those of what is bundled go with it.
import { execFileSync } from "node:child_process";
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";

import { extension, repository } from "./python.mjs";

copyFileSync(`${repository}LICENSE`, `${extension}LICENSE`);
writeFileSync(`${extension}THIRD_PARTY_NOTICES.txt`, notices());
execFileSync("npx", ["vsce", "package", "--no-dependencies", "--allow-missing-repository"], {
  cwd: extension,
  stdio: "inherit",
});

/** The licence of every package that has a file in the bundle. */
function notices() {
  const inputs = Object.keys(JSON.parse(readFileSync(`${extension}dist/meta.json`, "utf8")).inputs);
  const folders = new Set(
    inputs.map((path) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter(Boolean),
  );
  return [...folders]
    .sort()
    .map((folder) => {
      const { name, version, license } = JSON.parse(readFileSync(`${extension}${folder}/package.json`, "utf8"));
      const file = readdirSync(`${extension}${folder}`).find((item) => /^licen[cs]e/i.test(item));
      if (!file) {
        throw new Error(`${name} is in the bundle and brings no licence text`);
      }
      return `${name} ${version} (${license})\n\n${readFileSync(`${extension}${folder}/${file}`, "utf8").trim()}\n`;
    })
    .join(`\n${"-".repeat(80)}\n\n`);
}
