--- The picker: a row for each candidate, its diff in a tab of its own, one key to take it.
local M = {}

local function encoding_of(bufnr)
  local client = require("dice_lsp").client(bufnr)
  return client and client.offset_encoding or "utf-16"
end

local function holds(range, position)
  local line, first, last = position.line, range.start.line, range["end"].line
  return line >= first and line <= last
end

--- Ask the server which fills have candidates for a buffer; `on_fills(list)` gets the one at the cursor first.
function M.fills(bufnr, on_fills)
  local client = require("dice_lsp").client(bufnr)
  if not client then
    return
  end
  client:request("dice/candidates", { uri = vim.uri_from_bufnr(bufnr) }, function(err, fills)
    if err then
      vim.notify("DICE: " .. (err.message or "the candidates could not be read"), vim.log.levels.ERROR)
      return
    end
    local position = vim.lsp.util.make_position_params(0, client.offset_encoding).position
    table.sort(fills, function(a, b)
      local here, there = holds(a.range, position), holds(b.range, position)
      if here ~= there then
        return here
      end
      return a.fill > b.fill
    end)
    on_fills(fills)
  end, bufnr)
end

--- Choose among the candidates of the fill at the cursor, or of the newest one.
function M.pick(bufnr)
  bufnr = bufnr == 0 and vim.api.nvim_get_current_buf() or bufnr
  M.fills(bufnr, function(fills)
    local fill = fills[1]
    if not fill or #fill.candidates == 0 then
      vim.notify("DICE: there are no candidates here; select a region and run :DiceFill", vim.log.levels.INFO)
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
        M.preview(bufnr, fill, index)
      end
    end)
  end)
end

--- Take a candidate. `on_done(applied)` is called once the server has seen the text change.
function M.apply(bufnr, fill, candidate, on_done)
  local arguments = { fill = fill.fill, candidate = candidate.label, key = candidate.key }
  require("dice_lsp").execute(bufnr, "dice.apply", arguments, function(result)
    if on_done then
      on_done(result.applied)
    end
  end)
end

--- Drop all candidates of a fill.
function M.discard(bufnr, fill)
  require("dice_lsp").execute(bufnr, "dice.discard", { fill = fill.fill })
end

local function show(state)
  local candidate = state.fill.candidates[state.index]
  local scratch = state.scratch
  vim.bo[scratch].modifiable = true
  vim.api.nvim_buf_set_lines(scratch, 0, -1, false, vim.api.nvim_buf_get_lines(state.bufnr, 0, -1, false))
  local edit = { range = state.fill.range, newText = candidate.newText }
  vim.lsp.util.apply_text_edits({ edit }, scratch, state.encoding)
  vim.bo[scratch].modifiable = false
  vim.wo[state.window].winbar = " " .. candidate.title:gsub("%%", "%%%%")
  if vim.api.nvim_win_is_valid(state.window) then
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
  if vim.api.nvim_buf_is_valid(state.scratch) then
    pcall(vim.api.nvim_buf_delete, state.scratch, { force = true })
  end
  if vim.api.nvim_tabpage_is_valid(state.back) then
    vim.api.nvim_set_current_tabpage(state.back)
  end
end

--- Show a candidate beside the present text, as a diff in a new tab. Leaving the tab closes it.
--- Returns the state with `close()`, `apply()`, `next()` and `previous()`, which the keys call too.
function M.preview(bufnr, fill, index)
  local state = { bufnr = bufnr, fill = fill, index = index or 1, encoding = encoding_of(bufnr) }
  state.back = vim.api.nvim_get_current_tabpage()
  vim.cmd("tab split")
  state.tab = vim.api.nvim_get_current_tabpage()
  vim.api.nvim_win_set_buf(0, bufnr)
  vim.cmd.diffthis()
  -- A bar on both sides, so that the lines of the two texts stand side by side.
  vim.wo.winbar = " present   [a] apply  [n]/[p] others  [d] discard all  [q] close"
  vim.cmd("rightbelow vertical split")
  state.window = vim.api.nvim_get_current_win()
  state.scratch = vim.api.nvim_create_buf(false, true)
  vim.bo[state.scratch].bufhidden = "wipe"
  pcall(vim.api.nvim_buf_set_name, state.scratch, ("dice://fill-%d"):format(fill.fill))
  vim.api.nvim_win_set_buf(state.window, state.scratch)
  vim.bo[state.scratch].filetype = ""
  vim.bo[state.scratch].syntax = "cuda"
  show(state)
  vim.cmd.diffthis()

  local function step(by)
    state.index = (state.index - 1 + by) % #fill.candidates + 1
    show(state)
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
    local candidate = fill.candidates[state.index]
    close(state)
    M.apply(bufnr, fill, candidate)
  end
  state.discard = function()
    close(state)
    M.discard(bufnr, fill)
  end
  local keys = {
    a = state.apply,
    ["<CR>"] = state.apply,
    n = state.next,
    p = state.previous,
    d = state.discard,
    q = state.close,
    ["<Esc>"] = state.close,
  }
  for key, run in pairs(keys) do
    vim.keymap.set("n", key, run, { buffer = state.scratch, nowait = true, desc = "DICE candidate" })
  end
  state.group = vim.api.nvim_create_augroup("dice_lsp_preview_" .. state.tab, {})
  vim.api.nvim_create_autocmd("TabLeave", {
    group = state.group,
    callback = function()
      if vim.api.nvim_get_current_tabpage() == state.tab then
        vim.schedule(state.close)
      end
    end,
  })
  vim.api.nvim_create_autocmd("BufWipeout", {
    group = state.group,
    buffer = state.scratch,
    callback = function()
      vim.schedule(state.close)
    end,
  })
  M.current = state
  return state
end

return M
