--- The picker: the candidates of a fill in a list that grows while they are judged, each with its diff, one key to take it.
local M = {}

local LONGEST_LIST = 10 -- lines

local function dice()
  return require("dice_lsp")
end

local function holds(range, position)
  return position.line >= range.start.line and position.line <= range["end"].line
end

--- Ask the server which fills have candidates for a buffer; `on_fills(list)` gets the one at the cursor first.
function M.fills(bufnr, on_fills)
  local client = dice().client(bufnr)
  if not client then
    return
  end
  dice().request(bufnr, "dice/candidates", { uri = vim.uri_from_bufnr(bufnr) }, function(fills)
    local position = vim.lsp.util.make_position_params(0, client.offset_encoding).position
    table.sort(fills, function(a, b)
      local here, there = holds(a.range, position), holds(b.range, position)
      if here ~= there then
        return here
      end
      return a.fill > b.fill
    end)
    on_fills(fills)
  end)
end

local function fill_here(bufnr, on_fill, number)
  bufnr = bufnr == 0 and vim.api.nvim_get_current_buf() or bufnr
  M.fills(bufnr, function(fills)
    for _, fill in ipairs(fills) do
      if (number == nil or fill.fill == number) and (#fill.candidates > 0 or fill.running) then
        on_fill(fill, bufnr)
        return
      end
    end
    dice().notify("there are no candidates here; select a region and run :Dice fill")
  end)
end

--- Choose among the candidates of the fill at the cursor or of the newest one, or of the one with this number.
function M.pick(bufnr, number)
  fill_here(bufnr, function(fill, found_in)
    -- A fill that still runs has more to come, which only the list of the diff can show.
    if fill.running or dice().options.picker == "tab" then
      M.preview(found_in, fill, 1)
      return
    end
    vim.ui.select(fill.candidates, {
      prompt = ("DICE: candidates for %s"):format(fill.kernel or "this region"),
      kind = "dice_candidate",
      format_item = function(candidate)
        return candidate.title
      end,
    }, function(candidate, index)
      if candidate then
        M.preview(found_in, fill, index)
      end
    end)
  end, number)
end

--- Take a candidate. `on_done(applied)` is called once the server has seen the text change. The edit is the server's:
--- it alone knows where the region is by now, and whether it is still the text that was filled.
function M.apply(bufnr, fill, candidate, on_done)
  local arguments = { fill = fill.fill, candidate = candidate.label, key = candidate.key }
  dice().execute(bufnr, "dice.apply", arguments, function(result)
    if on_done then
      on_done(result.applied)
    end
  end)
end

local function may_be_taken(candidate)
  local verdict = candidate.verdict and candidate.verdict.kind
  return candidate.build and candidate.build.kind == "compiled" and (verdict == "verified" or verdict == "unverified")
end

--- Take the best candidate of the fill at the cursor, unless all were refused.
function M.apply_best(bufnr)
  fill_here(bufnr, function(fill, found_in)
    local best = fill.candidates[1]
    if best and may_be_taken(best) then
      M.apply(found_in, fill, best)
    else
      dice().notify("no candidate may be taken; :Dice candidates says why", vim.log.levels.WARN)
    end
  end)
end

--- Drop all candidates of a fill.
function M.discard(bufnr, fill)
  dice().execute(bufnr, "dice.discard", { fill = fill.fill })
end

--- Drop the candidates of the fill at the cursor.
function M.discard_here(bufnr)
  fill_here(bufnr, function(fill, found_in)
    M.discard(found_in, fill)
  end)
end

-- The diff

local function bar(text)
  return " " .. text:gsub("%%", "%%%%")
end

local function set_lines(bufnr, lines)
  vim.bo[bufnr].modifiable = true
  vim.api.nvim_buf_set_lines(bufnr, 0, -1, false, lines)
  vim.bo[bufnr].modifiable = false
end

local function show_list(state)
  local rows = vim.tbl_map(function(candidate)
    return candidate.title
  end, state.fill.candidates)
  set_lines(state.list, #rows > 0 and rows or { "waiting for the first candidate" })
  if not vim.api.nvim_win_is_valid(state.list_window) then
    return
  end
  pcall(vim.api.nvim_win_set_height, state.list_window, 1 + math.max(1, math.min(#rows, LONGEST_LIST)))
  vim.api.nvim_win_set_cursor(state.list_window, { math.max(1, math.min(state.index, #rows)), 0 })
  local running = state.fill.running and ", more are being judged  [c] stop" or ""
  local head = ("%d candidates for %s%s"):format(#rows, state.fill.kernel or "this region", running)
  vim.wo[state.list_window].winbar = bar(head .. "   [a] apply  [n]/[p] others  [d] discard all  [q] close")
end

local function show_diff(state)
  local candidate = state.fill.candidates[state.index]
  local scratch = state.scratch
  set_lines(scratch, vim.api.nvim_buf_get_lines(state.bufnr, 0, -1, false))
  if candidate then
    vim.bo[scratch].modifiable = true
    local edit = { range = vim.deepcopy(state.fill.range), newText = candidate.newText }
    vim.lsp.util.apply_text_edits({ edit }, scratch, state.encoding)
    vim.bo[scratch].modifiable = false
    vim.bo[scratch].buflisted = false -- the edit made Neovim list it
  end
  if vim.api.nvim_win_is_valid(state.window) then
    vim.wo[state.window].winbar = bar(candidate and candidate.title or "no candidate yet")
    vim.api.nvim_win_set_cursor(state.window, { state.fill.range.start.line + 1, 0 })
    vim.api.nvim_win_call(state.window, function()
      vim.cmd("silent! normal! zvzz")
      vim.cmd.diffupdate()
      vim.cmd("silent! syncbind")
    end)
  end
end

local function close(state)
  if state.closed then
    return
  end
  state.closed = true
  pcall(vim.api.nvim_del_augroup_by_id, state.group)
  if vim.api.nvim_tabpage_is_valid(state.tab) and #vim.api.nvim_list_tabpages() > 1 then
    local number = vim.api.nvim_tabpage_get_number(state.tab)
    pcall(vim.cmd.tabclose, number)
  end
  for _, scratch in ipairs({ state.scratch, state.list }) do
    if vim.api.nvim_buf_is_valid(scratch) then
      pcall(vim.api.nvim_buf_delete, scratch, { force = true })
    end
  end
  if vim.api.nvim_tabpage_is_valid(state.back) then
    vim.api.nvim_set_current_tabpage(state.back)
  end
  if M.current == state then
    M.current = nil
  end
end

--- Whether the diff of a fill is open.
function M.is_open(number)
  return M.current ~= nil and M.current.fill.fill == number
end

-- Show a candidate by its place in the list.
local function go_to(state, index)
  if index ~= state.index and state.fill.candidates[index] then
    state.index = index
    state.key = state.fill.candidates[index].key
    show_list(state)
    show_diff(state)
  end
end

-- Ask for the fill again: its candidates, their ranks, and where its region is by now.
local function follow(state)
  if state.asking then
    state.again = true
    return
  end
  state.asking = true
  dice().request(state.bufnr, "dice/candidates", { fill = state.fill.fill }, function(fills)
    state.asking = false
    if state.closed then
      return
    end
    if not fills[1] then
      dice().notify("the candidates are no longer on offer: the text that was filled has changed")
      close(state)
      return
    end
    local before = state.fill.candidates[state.index]
    state.fill = fills[1]
    state.index = 1
    -- The candidate that one looks at stays; before one has chosen any, the best so far is shown.
    for index, candidate in ipairs(state.fill.candidates) do
      if state.key and candidate.key == state.key then
        state.index = index
      end
    end
    show_list(state)
    local now = state.fill.candidates[state.index]
    if state.text_changed or not vim.deep_equal(before, now) then
      state.text_changed = false
      show_diff(state)
    end
    if state.again then
      state.again = false
      follow(state)
    end
  end)
end

local function scratch_buffer(name)
  local bufnr = vim.api.nvim_create_buf(false, true)
  vim.bo[bufnr].bufhidden = "wipe"
  pcall(vim.api.nvim_buf_set_name, bufnr, name)
  return bufnr
end

--- Show a candidate beside the present text, as a diff in a new tab above the list of all. Leaving the tab closes it.
--- Returns the state with `close()`, `apply()`, `next()`, `previous()`, `discard()` and `stop()`, which the keys call too.
function M.preview(bufnr, fill, index)
  if M.current then
    close(M.current)
  end
  local client = dice().client(bufnr)
  local state =
    { bufnr = bufnr, fill = fill, index = index or 1, encoding = client and client.offset_encoding or "utf-8" }
  -- Whoever chose a row means it; a list that opened by itself follows the best.
  state.key = not fill.running and fill.candidates[state.index] and fill.candidates[state.index].key or nil
  state.back = vim.api.nvim_get_current_tabpage()
  vim.cmd("tab split")
  state.tab = vim.api.nvim_get_current_tabpage()
  vim.api.nvim_win_set_buf(0, bufnr)
  vim.cmd.diffthis()
  -- A bar on both sides, so that the lines of the two texts stand side by side.
  vim.wo.winbar = " present"
  vim.cmd("rightbelow vertical split")
  state.window = vim.api.nvim_get_current_win()
  state.scratch = scratch_buffer(("dice://fill-%d"):format(fill.fill))
  vim.api.nvim_win_set_buf(state.window, state.scratch)
  vim.bo[state.scratch].syntax = "cuda"
  vim.bo[state.scratch].tabstop = vim.bo[bufnr].tabstop
  vim.cmd("botright 1split")
  state.list_window = vim.api.nvim_get_current_win()
  state.list = scratch_buffer(("dice://candidates-%d"):format(fill.fill))
  vim.api.nvim_win_set_buf(state.list_window, state.list)
  vim.cmd("diffoff")
  local look = { winfixheight = true, number = false, relativenumber = false, cursorline = true, wrap = false }
  for name, value in pairs(look) do
    vim.wo[state.list_window][name] = value
  end
  show_list(state)
  show_diff(state)
  vim.api.nvim_win_call(state.window, function()
    vim.cmd.diffthis()
    vim.wo.foldcolumn = "0"
  end)

  local function step(by)
    local count = #state.fill.candidates
    if count > 0 then
      go_to(state, (state.index - 1 + by) % count + 1)
    end
  end
  state.next = function()
    step(1)
  end
  state.previous = function()
    step(-1)
  end
  state.close = function()
    close(state)
  end
  state.apply = function()
    local candidate = state.fill.candidates[state.index]
    if candidate then
      close(state)
      M.apply(bufnr, state.fill, candidate)
    end
  end
  state.discard = function()
    close(state)
    M.discard(bufnr, state.fill)
  end
  state.stop = function()
    dice().cancel(bufnr)
  end
  local keys = {
    a = state.apply,
    ["<CR>"] = state.apply,
    n = state.next,
    p = state.previous,
    d = state.discard,
    c = state.stop,
    q = state.close,
    ["<Esc>"] = state.close,
  }
  for key, run in pairs(keys) do
    for _, scratch in ipairs({ state.scratch, state.list }) do
      vim.keymap.set("n", key, run, { buffer = scratch, nowait = true, desc = "DICE candidate" })
    end
  end
  state.group = vim.api.nvim_create_augroup("dice_lsp_preview_" .. state.tab, {})
  local function on(event, options, callback)
    options.group, options.callback = state.group, callback
    vim.api.nvim_create_autocmd(event, options)
  end
  on("CursorMoved", { buffer = state.list }, function()
    go_to(state, vim.api.nvim_win_get_cursor(state.list_window)[1])
  end)
  on("User", { pattern = "DiceCandidate" }, function(event)
    if event.data.fill == state.fill.fill then
      follow(state)
    end
  end)
  on("User", { pattern = "DiceStatus" }, function()
    if state.fill.running then
      follow(state)
    end
  end)
  on({ "TextChanged", "TextChangedI" }, { buffer = bufnr }, function()
    state.text_changed = true
    follow(state)
  end)
  on("TabLeave", {}, function()
    if vim.api.nvim_get_current_tabpage() == state.tab then
      vim.schedule(state.close)
    end
  end)
  for _, scratch in ipairs({ state.scratch, state.list }) do
    on("BufWipeout", { buffer = scratch }, function()
      vim.schedule(state.close)
    end)
  end
  M.current = state
  return state
end

return M
