--- The hints of our server, drawn by us at the end of their lines.
---
--- Neovim 0.11 keeps the hints of all servers of a buffer under one version: the answer of one makes the older hints of
--- another pass as current, and a hint beyond the end of a line that has become shorter is then an error on every redraw
--- (neovim/neovim#32248). Marks of our own move with their lines and take no part in that.
--- `vim.lsp.inlay_hint.enable()` turns them on and off like any other hints.
local M = {}

local namespace = vim.api.nvim_create_namespace("dice_lsp_hints")
local shown = {} -- buffer -> mark -> hint

local function label_of(hint)
  if type(hint.label) == "string" then
    return hint.label
  end
  return vim
    .iter(hint.label)
    :map(function(part)
      return part.value
    end)
    :join("")
end

local function clear(bufnr)
  shown[bufnr] = nil
  if vim.api.nvim_buf_is_valid(bufnr) then
    vim.api.nvim_buf_clear_namespace(bufnr, namespace, 0, -1)
  end
end

-- A hint looks as bad as what the server reports at its line; its words are for people.
local function look(bufnr, line)
  local worst
  for _, item in ipairs(vim.diagnostic.get(bufnr, { lnum = line })) do
    if item.source == "dice" and (worst == nil or item.severity < worst) then
      worst = item.severity
    end
  end
  local names = { [vim.diagnostic.severity.ERROR] = "DiceHintError", [vim.diagnostic.severity.WARN] = "DiceHintWarn" }
  return names[worst] or "DiceHint"
end

local function draw(bufnr, mark, line, hint)
  return vim.api.nvim_buf_set_extmark(bufnr, namespace, line, 0, {
    id = mark,
    virt_text = { { label_of(hint), look(bufnr, line) } },
    virt_text_pos = "eol",
    hl_mode = "combine",
    invalidate = true,
    undo_restore = false,
  })
end

local function place_of(bufnr, mark)
  local place = vim.api.nvim_buf_get_extmark_by_id(bufnr, namespace, mark, { details = true })
  return place[1] and not place[3].invalid and place[1] or nil
end

--- Handler of `textDocument/inlayHint`.
function M.on_answer(err, result, context)
  local bufnr = context.bufnr
  -- An error means that the text is still being read: what is shown stays until the server asks to ask again.
  if err or not bufnr or not vim.api.nvim_buf_is_loaded(bufnr) then
    return
  end
  if not vim.lsp.inlay_hint.is_enabled({ bufnr = bufnr }) then
    clear(bufnr)
    return
  end
  if context.version and context.version ~= vim.lsp.util.buf_versions[bufnr] then
    return -- these are hints of an earlier text, and a request for the present one is on its way
  end
  clear(bufnr)
  local marks, last = {}, vim.api.nvim_buf_line_count(bufnr) - 1
  for _, hint in ipairs(type(result) == "table" and result or {}) do
    if hint.position.line <= last then
      local mark = draw(bufnr, nil, hint.position.line, hint)
      marks[mark] = hint
    end
  end
  shown[bufnr] = marks
  vim.api.nvim_exec_autocmds("User", { pattern = "DiceHints", modeline = false, data = { buf = bufnr } })
end

--- What is shown in a buffer: a list of `{ line = 1-based line, label = string, hint = as the server sent it }`.
function M.get(bufnr)
  bufnr = (bufnr == nil or bufnr == 0) and vim.api.nvim_get_current_buf() or bufnr
  local found = {}
  for mark, hint in pairs(shown[bufnr] or {}) do
    local line = place_of(bufnr, mark)
    if line then
      found[#found + 1] = { line = line + 1, label = label_of(hint), hint = hint }
    end
  end
  table.sort(found, function(a, b)
    return a.line < b.line
  end)
  return found
end

--- Take back what is shown in a buffer.
function M.clear(bufnr)
  clear(bufnr)
end

vim.api.nvim_create_autocmd("DiagnosticChanged", {
  group = vim.api.nvim_create_augroup("dice_lsp_hints", {}),
  callback = function(event)
    for mark, hint in pairs(shown[event.buf] or {}) do
      local line = place_of(event.buf, mark)
      if line then
        draw(event.buf, mark, line, hint)
      end
    end
  end,
})

vim.api.nvim_set_decoration_provider(namespace, {
  on_win = function(_, _, bufnr)
    -- Nothing tells that hints were turned off, so it is looked at when a window is drawn.
    if shown[bufnr] and not vim.lsp.inlay_hint.is_enabled({ bufnr = bufnr }) then
      vim.schedule(function()
        clear(bufnr)
      end)
    end
    return false
  end,
})

return M
