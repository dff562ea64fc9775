-- Our server beside the real clangd in one buffer: hints of both while lines come and go, actions of both, clangd formats.
local t = dofile(vim.env.DICE_TEST_SUPPORT)
local seen = t.seen

local function clangd_hints()
  return vim.tbl_map(function(item)
    return { line = item.inlay_hint.position.line + 1, client = vim.lsp.get_client_by_id(item.client_id).name }
  end, vim.lsp.inlay_hint.get({ bufnr = 0 }))
end

-- Draw twenty times: the answers of the two servers come in between, in either order.
local function redraw(pause_ms)
  for _ = 1, 20 do
    vim.wait(pause_ms)
    vim.cmd("redraw!")
  end
end

t.main(function()
  vim.o.lines = 60
  vim.lsp.config("clangd", {
    cmd = { vim.env.DICE_TEST_CLANGD },
    filetypes = { "cuda" },
    root_markers = { "compile_flags.txt" },
  })
  vim.lsp.enable("clangd")
  seen.edits = {}
  local apply_edit = vim.lsp.handlers["workspace/applyEdit"]
  vim.lsp.handlers["workspace/applyEdit"] = function(err, params, context)
    seen.edits[#seen.edits + 1] = vim.lsp.get_client_by_id(context.client_id).name
    return apply_edit(err, params, context)
  end

  t.open()
  t.wait("hints of both servers are there", function()
    return #clangd_hints() >= 2 and #require("dice_lsp.hints").get(0) == 2
  end)
  local kernel = vim.fn.search("^__global__ void scale")
  t.wait("the kernel is checked", function()
    return t.hint_at(kernel):find("checking") == nil
  end)
  t.step("hints of clangd", clangd_hints())

  -- Lines come and go, above and below, and the ends of lines move: each is drawn many times while both servers answer.
  local last = vim.api.nvim_buf_line_count(0)
  for round = 1, 10 do
    vim.api.nvim_buf_set_lines(0, 8, 8, false, { "// a", "", "" })
    redraw(round % 5 * 4)
    vim.api.nvim_buf_set_lines(0, 8, 11, false, {})
    redraw((round + 2) % 5 * 4)
    local body = vim.api.nvim_buf_get_lines(0, last - 3, last, false)
    vim.api.nvim_buf_set_lines(0, last - 3, last, false, {})
    redraw(round % 5 * 4)
    vim.api.nvim_buf_set_lines(0, last - 3, last - 3, false, body)
    redraw((round + 2) % 5 * 4)
  end
  t.step("the text is as before", vim.api.nvim_buf_line_count(0) == last)
  t.wait("hints of both are there again", function()
    return #clangd_hints() >= 2 and t.hint_at(kernel) ~= ""
  end)

  -- One mark moves with its line before any server has answered.
  local label = t.hint_at(kernel)
  vim.api.nvim_buf_set_lines(0, 0, 0, false, { "// one more line" })
  t.step("the hint has moved along", t.hint_at(kernel + 1) == label)
  vim.cmd("silent undo")

  -- Both offer their actions for one selection.
  local actions = {}
  local answers
  vim.lsp.buf_request_all(0, "textDocument/codeAction", function(client)
    local params = vim.lsp.util.make_given_range_params({ kernel + 1, 4 }, { kernel + 1, 7 }, 0, client.offset_encoding)
    params.context = { diagnostics = {} }
    return params
  end, function(results)
    answers = results
  end)
  t.wait("both have answered", function()
    return answers ~= nil
  end)
  for id, answer in pairs(answers) do
    actions[vim.lsp.get_client_by_id(id).name] = vim.tbl_map(function(action)
      return action.title
    end, answer.result or {})
  end
  t.step("actions", actions)

  -- Hints of both are turned off and on together.
  vim.cmd("Dice hints")
  redraw(8)
  t.wait("no hint is left", function()
    return #clangd_hints() == 0 and #require("dice_lsp.hints").get(0) == 0
  end)
  vim.cmd("Dice hints")
  t.wait("hints of both are there once more", function()
    return #clangd_hints() >= 2 and t.hint_at(kernel) ~= ""
  end)

  -- clangd formats on save; we only look at what comes out.
  vim.api.nvim_buf_set_lines(0, kernel, kernel, false, { "      int   unused   =   1;" })
  vim.api.nvim_create_autocmd("BufWritePre", {
    buffer = 0,
    callback = function()
      vim.lsp.buf.format({ name = "clangd", timeout_ms = 10000 })
    end,
  })
  vim.cmd("silent write")
  local formatted = t.text()
  t.step("formatted", vim.fn.getline(vim.fn.search("unused", "nw")))
  t.wait("the save is checked", function()
    local now = t.hint_at(vim.fn.search("__global__ void scale", "nw"))
    return now ~= "" and now:find("checking") == nil and now:find("stale") == nil
  end)
  vim.wait(500)
  t.step("nothing was edited after the save", t.text() == formatted and not vim.bo.modified)
  t.step(
    "sources",
    vim.tbl_map(function(item)
      return item.source
    end, vim.diagnostic.get(0))
  )
  vim.cmd("silent checkhealth dice_lsp")
  t.step("health", t.text())
end)
