-- Kernels in the strings of a Python file have their hints without any configuration; other Python starts no server.
local t = dofile(vim.env.DICE_TEST_SUPPORT)

t.main(function()
  t.open()
  t.step("filetype", vim.bo.filetype)
  local kernel = vim.fn.search("^__global__ void biased_softmax_kernel")
  t.wait("the kernel is verified", function()
    return t.hint_at(kernel):find("  verified") ~= nil
  end)
  t.step("hint", t.hint_at(kernel))
  t.step("root", t.client().root_dir)

  vim.cmd.edit(vim.env.DICE_TEST_PLAIN)
  t.step("filetype of the other", vim.bo.filetype)
  -- Attaching is scheduled when a file is opened: a second file with kernels is attached after this one would have been.
  local plain = vim.api.nvim_get_current_buf()
  vim.cmd.edit(vim.env.DICE_TEST_SECOND)
  t.wait("the second file is attached", function()
    return t.client() ~= nil
  end)
  t.step("attached to the other", #vim.lsp.get_clients({ name = "dice_lsp", bufnr = plain }))
  t.stop()
end)
