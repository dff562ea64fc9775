// A client of clangd, as a developer of CUDA has it beside ours. The library is the one of our extension.
const { LanguageClient, RevealOutputChannelOn } = require("vscode-languageclient/node");

exports.activate = async (context) => {
  const failures = [];
  const client = new LanguageClient(
    "clangd",
    "clangd",
    { command: process.env.DICE_TEST_CLANGD, args: ["--background-index=false", "--log=error"] },
    {
      documentSelector: [{ scheme: "file", language: "cuda-cpp" }],
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      errorHandler: {
        error: (error) => {
          failures.push(String(error));
          return { action: 1 };
        },
        closed: () => {
          failures.push("clangd ended");
          return { action: 1 };
        },
      },
    },
  );
  context.subscriptions.push(client);
  await client.start();
  return { failures };
};
