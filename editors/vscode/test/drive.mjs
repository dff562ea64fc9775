// Opens the editor in a browser and runs either a suite inside its extension host or a script of key presses.
// Usage: node drive.mjs SPECIFICATION.json; writes result.json and pictures into the specification's `out`.
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const given = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const result = { ok: false, failure: "", steps: {}, console: [] };

function remote(file) {
  return `vscode-remote://${given.authority}${file}`;
}

function address() {
  const payload = given.extension ? [["extensionDevelopmentPath", remote(given.extension)]] : [];
  if (given.suites) {
    payload.push(["extensionTestsPath", remote(given.suites)]);
  }
  for (const file of given.open ?? []) {
    payload.push(["openFile", remote(file)]);
  }
  const url = new URL(`http://${given.authority}/`);
  url.searchParams.set("folder", given.folder);
  url.searchParams.set("payload", JSON.stringify(payload));
  return url.href;
}

/** Runs a function's body inside the extension host, see probe/probe.js. */
function probe(action, argument = null) {
  const source = action.toString();
  const body = `return (${source})(vscode, given);`;
  return new Promise((resolve, reject) => {
    const socket = net.connect(given.probe);
    let buffered = "";
    socket.setEncoding("utf8");
    socket.on("error", reject);
    socket.on("connect", () => socket.write(JSON.stringify({ body, given: argument }) + "\n"));
    socket.on("data", (chunk) => {
      buffered += chunk;
      if (!buffered.endsWith("\n")) {
        return;
      }
      socket.end();
      const reply = JSON.parse(buffered);
      if (reply.error) {
        reject(new Error(`in the extension host: ${reply.error}`));
      } else {
        resolve(reply.value);
      }
    });
  });
}

/** Asks until the answer is true; a failure says what was waited for and what was seen last. */
async function until(what, condition, deadline_s = 180) {
  const end = Date.now() + deadline_s * 1000;
  let last;
  while (Date.now() < end) {
    try {
      last = await condition();
      if (last) {
        return last;
      }
    } catch (error) {
      last = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`waited in vain until ${what}; last seen: ${String(last?.stack ?? JSON.stringify(last))}`);
}

const browser = await chromium.launch({
  executablePath: given.browser,
  args: ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb", "--hide-scrollbars"],
  env: { ...process.env, ...given.browser_environment },
});
let page;
try {
  const context = await browser.newContext({ viewport: given.viewport, deviceScaleFactor: given.scale ?? 1 });
  // Only bounds a failure: the machine may be busy with other tests.
  context.setDefaultTimeout(180_000);
  page = await context.newPage();
  let ended;
  const exit = new Promise((resolve) => (ended = resolve));
  await page.exposeFunction("codeAutomationLog", (kind, words) => {
    result.console.push(`[${kind}] ${words.filter((word) => !String(word).startsWith("%c")).join(" ")}`.slice(0, 2000));
  });
  await page.exposeFunction("codeAutomationExit", (code) => ended(code));
  page.on("console", (message) => result.console.push(`[${message.type()}] ${message.text()}`.slice(0, 2000)));
  page.on("pageerror", (error) => result.console.push(`[pageerror] ${error}`.slice(0, 2000)));
  await page.goto(address(), { waitUntil: "domcontentloaded" });
  await page.waitForSelector(".monaco-workbench", { timeout: 180_000 });
  const deadline = new Promise((resolve) => setTimeout(resolve, given.deadline_s * 1000, "deadline"));
  if (given.suites) {
    const code = await Promise.race([exit, deadline]);
    if (code === "deadline") {
      throw new Error(`the suite did not end within ${given.deadline_s} s`);
    }
    result.ok = code === 0;
    result.failure = result.ok ? "" : `the extension host ended with ${code}`;
  } else {
    const script = await import(pathToFileURL(given.script).href);
    const shot = (name, options = {}) => page.screenshot({ path: path.join(given.out, `${name}.png`), ...options });
    const step = (name, value) => (result.steps[name] = value);
    await until("the extension host of the tests answers", () => probe(() => true));
    const run = script.default({ page, probe, until, shot, step, given });
    if ((await Promise.race([run, deadline])) === "deadline") {
      throw new Error(`the script did not end within ${given.deadline_s} s`);
    }
    result.ok = true;
  }
} catch (error) {
  result.failure = String(error.stack ?? error);
} finally {
  if (!result.ok && page) {
    await page.screenshot({ path: path.join(given.out, "failure.png") }).catch(() => {});
  }
  fs.writeFileSync(path.join(given.out, "result.json"), JSON.stringify(result, null, 1));
  await browser.close().catch(() => {});
}
process.exit(result.ok ? 0 : 1);
