-- What the scripts that run inside Neovim share: `local t = dofile(vim.env.DICE_TEST_SUPPORT)`.
-- A script reads DICE_TEST_CMD (JSON list) and DICE_TEST_FILE, and writes what it saw as JSON to DICE_TEST_OUT.
-- DICE_TEST_PATIENCE_MS may shorten how long anything is waited for.
local t = { seen = { steps = {}, notices = {}, phrases = {} } }

--- Note something for the test to look at.
function t.step(name, value)
  t.seen.steps[#t.seen.steps + 1] = { name = name, value = value }
end

--- Wait for a condition. The time is generous: it only bounds a failure.
function t.wait(what, condition, timeout)
  assert(
    vim.wait(timeout or tonumber(vim.env.DICE_TEST_PATIENCE_MS or "180000"), condition, 20),
    "waited in vain until " .. what
  )
end

--- The label of our hint at a 1-based line, or "".
function t.hint_at(line)
  for _, hint in ipairs(require("dice_lsp.hints").get(0)) do
    if hint.line == line then
      return hint.label
    end
  end
  return ""
end

function t.text()
  return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n")
end

function t.client()
  return vim.lsp.get_clients({ name = "dice_lsp", bufnr = 0 })[1]
end

--- Our diagnostics of the buffer with this code.
function t.diagnostics(code)
  return vim.tbl_filter(function(item)
    return item.source == "dice" and (code == nil or item.code == code)
  end, vim.diagnostic.get(0))
end

function t.phrase()
  return require("dice_lsp").statusline()
end

--- Ask the server and wait for its answer.
function t.ask(method, params)
  local answer
  t.client():request(method, params, function(err, result)
    answer = { err = err, result = result }
  end, 0)
  t.wait("the answer to " .. method, function()
    return answer ~= nil
  end)
  return answer
end

--- Start with these server settings; edits the test's file and waits for the server.
function t.open(settings, file)
  vim.lsp.config("dice_lsp", {
    cmd = vim.json.decode(vim.env.DICE_TEST_CMD),
    settings = { dice = settings or vim.empty_dict() },
  })
  local notify = vim.notify
  vim.notify = function(message, level, options)
    t.seen.notices[#t.seen.notices + 1] = message
    return notify(message, level, options)
  end
  for _, pattern in ipairs({ "DiceStatus", "DiceCandidate" }) do
    vim.api.nvim_create_autocmd("User", {
      pattern = pattern,
      callback = function()
        local phrase = t.phrase()
        if t.seen.phrases[#t.seen.phrases] ~= phrase then
          t.seen.phrases[#t.seen.phrases + 1] = phrase
        end
      end,
    })
  end
  vim.cmd.edit(file or vim.env.DICE_TEST_FILE)
  t.wait("the server is attached", function()
    return t.client() ~= nil and t.client().initialized
  end)
end

--- Whether something that was said holds these words.
function t.said(words)
  return vim.iter(t.seen.notices):any(function(message)
    return message:find(words, 1, true) ~= nil
  end)
end

--- The number of fills that run, as the server says.
function t.running()
  local fills = t.ask("dice/candidates", { uri = vim.uri_from_bufnr(0) }).result or {}
  return #vim.tbl_filter(function(fill)
    return fill.running
  end, fills)
end

--- Stop the server and wait for its end.
function t.stop()
  local client = t.client()
  client:stop()
  t.wait("the server has stopped", function()
    return client:is_stopped()
  end)
end

--- Run the script, write what it saw, and end Neovim with a code that says how it went.
function t.main(run)
  local ok, failure = xpcall(run, debug.traceback)
  if not ok then
    t.seen.failure = failure
    pcall(function()
      t.seen.hints = require("dice_lsp.hints").get(0)
      t.seen.text = t.text()
      t.seen.phrase = t.phrase()
    end)
  end
  t.seen.messages = vim.fn.execute("messages")
  local file = assert(io.open(vim.env.DICE_TEST_OUT, "w"))
  file:write(vim.json.encode(t.seen))
  file:close()
  vim.cmd(ok and "qall!" or "cquit 1")
end

return t
