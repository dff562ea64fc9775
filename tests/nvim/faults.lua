-- A session in which things go wrong: cancels, children that die, a server that is killed, restarts, two files.
local t = dofile(vim.env.DICE_TEST_SUPPORT)
local uv = vim.uv

-- The processes below one of ours, as { pid = command line }.
local function below(pid)
  local found = {}
  for _, child in ipairs(vim.api.nvim_get_proc_children(pid)) do
    local file = io.open(("/proc/%d/cmdline"):format(child), "rb")
    local line = file and file:read("*a") or ""
    if file then
      file:close()
    end
    -- One that ended in between has no command line any more.
    if line ~= "" then
      found[child] = line:gsub("%z", " ")
      found = vim.tbl_extend("force", found, below(child))
    end
  end
  return found
end

local function pid_of(words)
  for pid, line in pairs(below(vim.fn.getpid())) do
    if line:find(words, 1, true) then
      return pid
    end
  end
end

local function uri()
  return vim.uri_from_bufnr(0)
end

local function status()
  return t.ask("dice/status", vim.empty_dict()).result
end

local function at_rest()
  local now = status()
  return now.fills == 0 and now.checks == 0
end

-- Start a fill through the command; the answer comes into the returned table.
local function fill(candidates)
  local ended = {}
  local arguments = { uri = uri(), kernel = "saxpy", candidates = candidates }
  local params = { command = "dice.fill", arguments = { arguments } }
  t.client():request("workspace/executeCommand", params, function(err, result)
    ended.err, ended.result, ended.yes = err, result, true
  end, 0)
  return ended
end

local function fill_works(what)
  local ended = fill(1)
  t.wait("the fill " .. what .. " has ended", function()
    return ended.yes
  end)
  t.step(what, ended.err or { candidates = #ended.result.candidates, reason = ended.result.reason })
end

t.main(function()
  require("dice_lsp").setup({ pick_when_done = false })
  t.open({ checkOnOpen = false })
  local first = vim.api.nvim_get_current_buf()
  local kernel = vim.fn.search("^__global__")
  t.seen.pids = {}
  local function remember()
    for pid, line in pairs(below(vim.fn.getpid())) do
      t.seen.pids[tostring(pid)] = line
    end
  end

  -- A fill is cancelled while the model is still being loaded.
  local loading = fill(1)
  t.wait("the model is being loaded", function()
    local now = status()
    return now.fills == 1 and now.model.state == "loading"
  end)
  t.step("phrase while loading", t.phrase())
  vim.cmd("Dice cancel")
  t.wait("the fill is cancelled", function()
    return loading.yes
  end)
  t.step("cancelled while loading", loading.err or loading.result)
  t.wait("nothing runs after that", at_rest)
  fill_works("after a cancel while loading")

  -- Thirty hovers and their cancels and twenty edits during a fill.
  local running = fill(8)
  t.wait("eight candidates are being filled", function()
    return t.running() == 1
  end)
  local client, answers, sent = t.client(), {}, {}
  for turn = 1, 30 do
    local position = { line = kernel - 1, character = 18 }
    local params = { textDocument = { uri = uri() }, position = position }
    local _, number = client:request("textDocument/hover", params, function(err, result)
      answers[turn] = err and ("error %d"):format(err.code) or result and "hover" or "nothing"
    end, 0)
    sent[turn] = number
  end
  for turn = 1, 30 do
    client:cancel_request(sent[turn])
    if turn <= 20 then
      vim.api.nvim_buf_set_lines(0, 0, 0, false, { "// " .. turn })
    end
  end
  local tree = vim.tbl_count(below(vim.fn.getpid()))
  remember()
  -- A request after all of them is answered: nothing is stuck before it.
  t.wait("a hover after them is answered from the present text", function()
    local position = { line = kernel + 19, character = 18 }
    return t.ask("textDocument/hover", { textDocument = { uri = uri() }, position = position }).result ~= nil
  end)
  -- Neovim keeps a request until its answer has come, and tells nobody of the answer to one that it has cancelled.
  t.wait("each of them is answered", function()
    return not vim.iter(vim.tbl_values(client.requests)):any(function(request)
      return request.method == "textDocument/hover"
    end)
  end)
  vim.cmd("Dice cancel")
  t.wait("the fill has ended", function()
    return running.yes
  end)
  t.step("answers", vim.tbl_values(answers))
  t.step("processes seen", tree)
  t.wait("only the server and its two rooms are left", function()
    local left = vim.tbl_values(below(vim.fn.getpid()))
    return vim.iter(left):all(function(line)
      return line:find("dice_lsp", 1, true) ~= nil
    end)
  end)
  t.step("the text has its edits", vim.api.nvim_buf_get_lines(0, 0, 1, false)[1])
  vim.cmd("silent undo")
  t.step("the text is whole", vim.fn.search("^__global__", "nw") == kernel)

  -- The model's process is killed in a fill: that is said, nothing stays "filling", and the next fill works.
  running = fill(64)
  t.wait("the model is filling", function()
    return t.phrase():find("filling") ~= nil and pid_of("dice_lsp.diffusion") ~= nil
  end)
  uv.kill(pid_of("dice_lsp.diffusion"), "sigkill")
  t.wait("the fill has ended", function()
    return running.yes
  end)
  t.step("killed", running.result and running.result.reason or running.err)
  t.wait("nothing runs", at_rest)
  t.step("status after the kill", status())
  t.wait("the status line says so", function()
    return t.phrase():find("filling") == nil
  end)
  t.step("phrase after the kill", t.phrase())
  remember()
  fill_works("after the model was killed")
  t.step("phrase after the next fill", t.phrase())

  -- A second file, and a fill in each.
  vim.cmd.edit(vim.env.DICE_TEST_SECOND)
  t.wait("the second file is served", function()
    return t.client() ~= nil
  end)
  local second = vim.api.nvim_get_current_buf()
  t.step("one server for both", #vim.lsp.get_clients({ name = "dice_lsp" }))
  fill_works("in the second file")
  vim.cmd.buffer(first)
  t.step("fills of the first file", #t.ask("dice/candidates", { uri = uri() }).result)
  local offered = vim.tbl_map(function(item)
    return item.uri == vim.uri_from_bufnr(second)
  end, t.ask("dice/candidates", { uri = vim.uri_from_bufnr(second) }).result)
  t.step("fills of the second file", offered)

  -- The server is killed: it comes back by itself and serves both files.
  local old = t.client().id
  remember()
  uv.kill(pid_of("dice_lsp serve"), "sigkill")
  t.wait("a new server is there", function()
    local now = t.client()
    return now ~= nil and now.id ~= old and now.initialized
  end)
  t.wait("it serves the second file too", function()
    return #vim.lsp.get_clients({ name = "dice_lsp", bufnr = second }) == 1
  end)
  fill_works("after the server was killed")

  -- It is restarted, twice at once: that is one restart.
  old = t.client().id
  remember()
  vim.cmd("Dice restart")
  vim.cmd("Dice restart")
  t.wait("there is another server", function()
    local now = t.client()
    return now ~= nil and now.id ~= old and now.initialized
  end)
  vim.wait(1000)
  t.step("servers after a restart", #vim.lsp.get_clients({ name = "dice_lsp" }))
  vim.cmd("silent write")
  t.wait("the kernel is checked by it", function()
    return t.hint_at(kernel):find("verified") ~= nil
  end)
  t.step("hint after the restart", t.hint_at(kernel))
  remember()
  t.stop()
  t.wait("no process is left", function()
    return next(below(vim.fn.getpid())) == nil
  end)
end)
