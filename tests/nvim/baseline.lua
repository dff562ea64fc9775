-- A kernel is held against its baseline: accepted, then made hungrier, then wrong; its history; a folder that opts out.
local t = dofile(vim.env.DICE_TEST_SUPPORT)

local function settled(kernel)
  local label = t.hint_at(kernel)
  return label ~= "" and not (label:find("checking") or label:find("stale"))
end

local function save(kernel, what, words)
  vim.cmd("silent write")
  t.wait(what .. " is checked", function()
    return settled(kernel) and t.hint_at(kernel):find(words) ~= nil
  end)
  return t.hint_at(kernel)
end

local function change()
  vim.cmd("let &undolevels = &undolevels")
end

local function hover(kernel)
  local answer = t.ask("textDocument/hover", {
    textDocument = { uri = vim.uri_from_bufnr(0) },
    position = { line = kernel - 1, character = 18 },
  })
  return answer.result and answer.result.contents.value or ""
end

t.main(function()
  t.open()
  local kernel = vim.fn.search("^__global__ void saxpy")
  local original = t.text()
  t.wait("the kernel is verified", function()
    return t.hint_at(kernel):find("verified") ~= nil and settled(kernel)
  end)
  t.step("checked", t.hint_at(kernel))

  -- Accept it, through the action that every editor shows and through our command.
  local titles
  local params = vim.lsp.util.make_range_params(0, t.client().offset_encoding)
  params.context = { diagnostics = {} }
  t.wait("the action is offered", function()
    titles = vim.tbl_map(function(action)
      return action.title
    end, t.ask("textDocument/codeAction", params).result or {})
    return vim.tbl_contains(titles, "DICE: accept as baseline")
  end)
  vim.cmd("Dice accept-baseline")
  t.wait("it is accepted", function()
    return t.said("this version of saxpy is its baseline now")
  end)

  -- Shared memory that it does not need: fewer blocks fit, which is a regression even where no time can be taken.
  change()
  local body = { "    __shared__ float pad[11000];", "    pad[threadIdx.x] = a;", "    __syncthreads();" }
  vim.api.nvim_buf_set_lines(0, kernel, kernel, false, body)
  local place = kernel + #body + 3
  local line = vim.api.nvim_buf_get_lines(0, place - 1, place, false)[1]
  vim.api.nvim_buf_set_lines(0, place - 1, place, false, { (line:gsub("a %* x", "pad[threadIdx.x] * x")) })
  t.step("hungrier", save(kernel, "the hungrier kernel", "occ %d%d%%"))
  t.wait("the regression is a diagnostic", function()
    return #t.diagnostics("regression") == 1
  end)
  local regression = t.diagnostics("regression")[1]
  local name = vim.fn.getline(kernel):find("saxpy", 1, true)
  t.step("regression", {
    message = regression.message,
    at_name = regression.lnum + 1 == kernel and regression.col + 1 == name,
    warning = regression.severity == vim.diagnostic.severity.WARN,
  })
  t.step("hover of the regression", hover(kernel))

  -- Wrong: an error at its name, which goes as soon as its text does.
  change()
  vim.api.nvim_buf_set_lines(0, place - 1, place, false, { (line:gsub("a %* x%[i%]", "2.0f * a * x[i]")) })
  t.step("wrong", save(kernel, "the wrong kernel", "^wrong: "))
  t.wait("that is a diagnostic", function()
    return #t.diagnostics("wrong") == 1
  end)
  t.step("wrong is an error", t.diagnostics("wrong")[1].severity == vim.diagnostic.severity.ERROR)
  t.step("wrong says", t.diagnostics("wrong")[1].message)
  vim.cmd("silent undo")
  t.wait("it is gone with the text", function()
    return #t.diagnostics("wrong") == 0
  end, 10000)
  t.wait("the evidence of the text before holds again", function()
    return #t.diagnostics("regression") == 1
  end, 10000)
  vim.cmd("silent undo")
  t.step("back at the start", t.text() == original)
  t.wait("nothing is wrong with it", function()
    return #t.diagnostics() == 0
  end, 10000)

  -- The history, in the hover and in a float of its own.
  t.step("hover", hover(kernel))
  vim.api.nvim_win_set_cursor(0, { kernel, 0 })
  vim.cmd("Dice history")
  local history = require("dice_lsp.history")
  t.wait("the history is open", function()
    return history.float ~= nil
  end)
  t.step("history", vim.api.nvim_buf_get_lines(history.float, 0, -1, false))
  vim.cmd("silent! fclose!")
  vim.cmd("Dice status")
  t.wait("the status is said", function()
    return t.said("judge: ")
  end)
  vim.cmd("Dice forget-baseline saxpy")
  t.wait("the baseline is forgotten", function()
    return t.said("saxpy has no baseline any more")
  end)
  t.step(
    "health",
    (function()
      vim.cmd("silent checkhealth dice_lsp")
      local lines = t.text()
      vim.cmd("silent bwipeout")
      return lines
    end)()
  )

  -- A folder that wants no checks gets none, from the next save on.
  vim.fn.mkdir(vim.fs.dirname(vim.env.DICE_TEST_FILE) .. "/.dice", "p")
  vim.fn.writefile({ "check_on_save = false" }, vim.fs.dirname(vim.env.DICE_TEST_FILE) .. "/.dice/settings.toml")
  change()
  vim.api.nvim_buf_set_lines(0, kernel, kernel, false, { "    // slower by a comment", "    n = n + 0;" })
  vim.cmd("silent write")
  -- Asked for long enough that a check would have been begun.
  local checks = 0
  for _ = 1, 40 do
    checks = checks + t.ask("dice/status", vim.empty_dict()).result.checks
    vim.wait(25)
  end
  t.step("checks after a save that asks for none", checks)
  t.step("after a save that asks for no check", t.hint_at(kernel))
  vim.cmd("Dice check saxpy")
  t.wait("a check that was asked for runs", function()
    return settled(kernel)
  end)
  t.step("after a check", t.hint_at(kernel))
  t.stop()
end)
