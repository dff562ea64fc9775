// An extension of the tests: runs what a UI script sends it, with the whole API of the extension host at hand.
const fs = require("node:fs");
const net = require("node:net");
const vscode = require("vscode");

const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;

async function answer(line) {
  const { body, given } = JSON.parse(line);
  try {
    const value = await new AsyncFunction("vscode", "given", body)(vscode, given);
    return { value: value === undefined ? null : value };
  } catch (error) {
    return { error: String((error && error.stack) || error) };
  }
}

exports.activate = (context) => {
  const path = process.env.DICE_TEST_PROBE;
  if (!path) {
    return;
  }
  const server = net.createServer((socket) => {
    let buffered = "";
    socket.setEncoding("utf8");
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      buffered += chunk;
      const lines = buffered.split("\n");
      buffered = lines.pop();
      for (const line of lines) {
        answer(line).then((reply) => socket.write(JSON.stringify(reply) + "\n"));
      }
    });
  });
  // An extension host that was restarted takes over from the one before it.
  fs.rmSync(path, { force: true });
  server.listen(path);
  context.subscriptions.push({ dispose: () => server.close() });
};
