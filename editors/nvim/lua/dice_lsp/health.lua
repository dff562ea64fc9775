--- :checkhealth dice_lsp
local M = {}

local function executable()
  local config = vim.lsp.config.dice_lsp
  local cmd = config and config.cmd
  return type(cmd) == "table" and cmd or nil
end

local function doctor(cmd)
  -- The server's own program looks at compilers, GPU and checkpoint; `serve` is its last word in any configuration.
  local argv = vim.list_slice(cmd, 1, #cmd - 1)
  vim.list_extend(argv, { "doctor", "--json" })
  local ok, result = pcall(function()
    return vim.system(argv, { text = true }):wait(60000)
  end)
  if not ok then
    vim.health.error(("`%s` could not be run: %s"):format(table.concat(argv, " "), result))
    return
  end
  local parsed, report = pcall(vim.json.decode, result.stdout or "")
  if not parsed or type(report) ~= "table" then
    vim.health.error(
      ("`%s` ended with code %d and no report"):format(table.concat(argv, " "), result.code),
      vim.split(result.stderr or "", "\n", { trimempty = true })
    )
    return
  end
  for _, finding in ipairs(report.findings or {}) do
    local line = ("%s: %s"):format(finding.what, finding.found)
    local advice = finding.next_step ~= "" and { finding.next_step } or nil
    if finding.state == "ok" then
      vim.health.ok(line)
    elseif finding.state == "missing" then
      vim.health.error(line, advice)
    elseif finding.what ~= "Neovim" then -- the program cannot know which Neovim asks
      vim.health.warn(line, advice)
    end
  end
end

-- What a running server says of its model and its judge.
local function parts(client, bufnr)
  local answer = client:request_sync("dice/status", vim.empty_dict(), 3000, bufnr)
  local status = answer and answer.result
  if not status then
    vim.health.warn("the server does not answer", { ":Dice restart starts it anew, :Dice log shows what it wrote" })
    return
  end
  local report = { failed = vim.health.error, ready = vim.health.ok }
  for _, line in ipairs(require("dice_lsp.status").lines(status)) do
    local what, state = line:match("^(%a+): (%a+)")
    local tell = (what == "model" or what == "judge") and report[state] or vim.health.info
    tell(line)
  end
end

local function session()
  vim.health.start("dice_lsp: this session")
  local clients = vim.lsp.get_clients({ name = "dice_lsp" })
  if #clients == 0 then
    vim.health.warn("no server is running", { "open a .cu file, then look at :Dice log" })
  end
  for _, client in ipairs(clients) do
    local version = vim.tbl_get(client, "server_info", "version") or ""
    local buffers = vim.tbl_count(client.attached_buffers)
    vim.health.ok(
      ("server %s runs for %s, positions in %s"):format(
        version,
        buffers == 1 and "1 buffer" or ("%d buffers"):format(buffers),
        client.offset_encoding
      )
    )
    if client.root_dir then
      local own = vim.fs.joinpath(client.root_dir, ".dice", "settings.toml")
      if vim.uv.fs_stat(own) then
        vim.health.info(("%s has settings of this folder"):format(own))
      end
    end
    parts(client, next(client.attached_buffers))
  end
  local clangd = vim.lsp.get_clients({ name = "clangd" })[1]
  if clangd then
    vim.health.ok("clangd runs too: it does C++ diagnostics, navigation and formatting, dice_lsp does none of these")
  else
    vim.health.info("clangd does not run: dice_lsp works without it, C++ diagnostics and navigation are clangd's")
  end
  if vim.lsp.inline_completion then
    vim.health.ok("ghost text of the best candidate can be shown")
  else
    vim.health.info("ghost text needs Neovim 0.12; everything else works")
  end
end

function M.check()
  vim.health.start("dice_lsp: Neovim")
  if vim.fn.has("nvim-0.11") == 1 then
    vim.health.ok("Neovim " .. tostring(vim.version()))
  else
    vim.health.error("Neovim 0.11 or newer is needed", { "update Neovim" })
    return
  end

  vim.health.start("dice_lsp: server")
  local cmd = executable()
  if not cmd then
    vim.health.error("there is no configuration", { "put editors/nvim on 'runtimepath', see :help dice_lsp-install" })
    return
  end
  if vim.fn.executable(cmd[1]) == 1 then
    vim.health.ok(("server: %s"):format(vim.fn.exepath(cmd[1])))
    doctor(cmd)
  else
    vim.health.error(("%s is not executable"):format(cmd[1]), {
      "install it with `pip install dice-lsp`, then :Dice start",
      'or name it: vim.lsp.config("dice_lsp", { cmd = { "/path/to/dice-lsp", "serve" } })',
    })
  end

  session()
end

return M
