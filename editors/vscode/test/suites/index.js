// Runs the suites named in DICE_TEST_SUITES inside the extension host, one test after another, and writes what each
// one said to DICE_TEST_OUT. All share one window and one server; each has the folder of its name in the workspace.
const fs = require("node:fs");
const path = require("node:path");
const { enter, leave } = require("./support.js");

exports.run = async () => {
  const results = [];
  const save = () => fs.writeFileSync(process.env.DICE_TEST_OUT, JSON.stringify(results, null, 1));
  save();
  for (const suite of process.env.DICE_TEST_SUITES.split(",")) {
    enter(suite);
    for (const [name, test] of Object.entries(require(path.join(__dirname, `${suite}.js`)))) {
      const seen = {};
      const began = Date.now();
      const result = { suite, name, failure: "", seen };
      try {
        await test((key, value) => (seen[key] = value));
      } catch (error) {
        result.failure = String((error && error.stack) || error);
      }
      result.seconds = (Date.now() - began) / 1000;
      results.push(result);
      save();
    }
    await leave();
  }
  const failed = results.filter((result) => result.failure);
  if (failed.length) {
    throw new Error(failed.map((result) => `${result.suite}: ${result.name}: ${result.failure}`).join("\n"));
  }
};
