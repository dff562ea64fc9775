-- Starts the server for CUDA files. Set vim.g.dice_lsp_disable = true before this is read to start it yourself.
if vim.g.loaded_dice_lsp then
  return
end
vim.g.loaded_dice_lsp = true

if vim.fn.has("nvim-0.11") == 0 then
  vim.notify("dice_lsp needs Neovim 0.11 or newer, see :help dice_lsp", vim.log.levels.WARN)
  return
end

vim.filetype.add({ extension = { cu = "cuda", cuh = "cuda" } })
for name, link in pairs({
  DiceHint = "LspInlayHint",
  DiceHintWarn = "DiagnosticVirtualTextWarn",
  DiceHintError = "DiagnosticVirtualTextError",
}) do
  vim.api.nvim_set_hl(0, name, { link = link, default = true })
end

local group = vim.api.nvim_create_augroup("dice_lsp", {})

local function on_our_client(event, callback)
  vim.api.nvim_create_autocmd(event, {
    group = group,
    callback = function(args)
      local client = vim.lsp.get_client_by_id(args.data.client_id)
      if client and client.name == "dice_lsp" then
        callback(client, args)
      end
    end,
  })
end

on_our_client("LspAttach", function(client, args)
  require("dice_lsp").attach(client, args.buf)
end)
on_our_client("LspDetach", function(_, args)
  require("dice_lsp").detach(args.buf)
end)
on_our_client("LspProgress", function(client, args)
  require("dice_lsp.status").on_progress(args.data.params, client.id)
end)

vim.api.nvim_create_user_command("Dice", function(given)
  require("dice_lsp.command").run(given)
end, {
  nargs = "*",
  range = true,
  complete = function(lead, line)
    return require("dice_lsp.command").complete(lead, line)
  end,
  desc = "Fill CUDA kernels and see what each candidate is worth",
})

local function plug(modes, name, right, description, options)
  options = vim.tbl_extend("force", { desc = "DICE: " .. description }, options or {})
  vim.keymap.set(modes, ("<Plug>(dice-%s)"):format(name), right, options)
end

plug("n", "fill", function()
  vim.o.operatorfunc = "v:lua.require'dice_lsp'.operator"
  return "g@"
end, "fill what the motion covers", { expr = true })
plug("x", "fill", ":Dice fill<CR>", "fill the selection", { silent = true })
for name, description in pairs({
  body = "fill the kernel at the cursor",
  candidates = "choose among the candidates",
  ["apply-best"] = "apply the best candidate",
  discard = "drop the candidates",
  check = "check the kernels of this file",
  cancel = "stop what runs for this file",
  ["accept-baseline"] = "hold later versions against this one",
  history = "show what the kernel was worth over time",
}) do
  plug("n", name, ("<Cmd>Dice %s<CR>"):format(name), description)
end
plug("i", "accept-inline", function()
  require("dice_lsp").accept_inline()
end, "take the ghost text")

if not vim.g.dice_lsp_disable then
  vim.lsp.enable("dice_lsp")
end
