// One file for the extension host; `vscode` is given by it. Sources are mapped unless the bundle is for a package.
import { writeFileSync } from "node:fs";

import * as esbuild from "esbuild";

const minify = process.argv.includes("--minify");
const options = {
  entryPoints: ["src/extension.ts"],
  outfile: "dist/extension.js",
  bundle: true,
  platform: "node",
  target: "node20",
  format: "cjs",
  external: ["vscode"],
  minify,
  sourcemap: !minify,
  logLevel: "info",
};

if (process.argv.includes("--watch")) {
  await (await esbuild.context(options)).watch();
} else {
  const { metafile } = await esbuild.build({ ...options, metafile: true });
  writeFileSync("dist/meta.json", JSON.stringify(metafile));
}
