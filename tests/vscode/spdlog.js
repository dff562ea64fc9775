// Stands in for VS Code's native logger, whose binary is not in the npm package: without it output channels are lost.
// Lines go to the file at once, so that a failed test can read what came last.
const fs = require("node:fs");
const path = require("node:path");

const LEVELS = ["trace", "debug", "info", "warn", "error", "critical"];

class Logger {
  constructor(_kind, _name, file) {
    fs.mkdirSync(path.dirname(file), { recursive: true });
    this.file = file;
    this.level = 2;
    this.plain = false;
  }

  setLevel(level) {
    this.level = level;
  }

  getLevel() {
    return this.level;
  }

  clearFormatters() {
    this.plain = true;
  }

  write(level, message) {
    if (level >= this.level) {
      const head = `${new Date().toISOString().replace("T", " ").replace("Z", "")} [${LEVELS[level]}] `;
      fs.appendFileSync(this.file, this.plain ? message : `${head}${message}\n`);
    }
  }

  setPattern() {}
  flush() {}
  drop() {}
}
LEVELS.forEach((name, level) => {
  Logger.prototype[name] = function (message) {
    this.write(level, message);
  };
});

exports.version = 0;
exports.Logger = Logger;
exports.setLevel = () => {};
exports.setFlushOn = () => {};
exports.createRotatingLogger = async (name, file) => new Logger("rotating", name, file);
exports.createAsyncRotatingLogger = async (name, file) => new Logger("rotating_async", name, file);
