// The extension module jit_attention._core, the base of the Python package.
#include <jit/version.h>
#include <nanobind/nanobind.h>

#include "append_binding.h"
#include "attention_binding.h"
#include "backward_binding.h"
#include "block_mask_binding.h"
#include "cache_binding.h"
#include "choose_keys_binding.h"
#include "device_binding.h"
#include "emulator_binding.h"
#include "errors.h"
#include "exchange_binding.h"
#include "index_loss_binding.h"
#include "kernel_binding.h"
#include "key_exchange_binding.h"
#include "key_mass_binding.h"
#include "key_union_binding.h"
#include "list_gradients_binding.h"
#include "list_mass_binding.h"
#include "merge_binding.h"
#include "pack_binding.h"
#include "placement_binding.h"
#include "process.h"
#include "quantize_binding.h"
#include "score_blocks_binding.h"
#include "score_keys_binding.h"
#include "spec_conversion.h"
#include "tile_map_binding.h"
#include "tool_binding.h"
#include "top_k_binding.h"
#include "transpose_lists_binding.h"
#include "tuning_binding.h"
#include "tvm_binding.h"
#include "xla_binding.h"

NB_MODULE(_core, module) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0)
    throw nanobind::import_error("jit_attention works in the main interpreter of a process only");
  // Contexts and arrays of pending calls outlive the interpreter by design.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = JIT_ATTENTION_VERSION;
  jit::python::translate_errors();
  jit::python::bind_process(module);
  jit::python::bind_spec(module);
  jit::python::bind_kernel(module);
  jit::python::bind_attention(module);
  jit::python::bind_backward(module);
  jit::python::bind_append(module);
  jit::python::bind_quantize(module);
  jit::python::bind_merge(module);
  jit::python::bind_key_mass(module);
  jit::python::bind_key_union(module);
  jit::python::bind_list_gradients(module);
  jit::python::bind_list_mass(module);
  jit::python::bind_choose_keys(module);
  jit::python::bind_index_loss(module);
  jit::python::bind_score_blocks(module);
  jit::python::bind_score_keys(module);
  jit::python::bind_top_k(module);
  jit::python::bind_transpose_lists(module);
  jit::python::bind_exchange(module);
  jit::python::bind_block_mask(module);
  jit::python::bind_tuning(module);
  jit::python::bind_tile_map(module);
  jit::python::bind_placement(module);
  jit::python::bind_key_exchange(module);
  jit::python::bind_devices(module);
  jit::python::bind_emulator(module);
  jit::python::bind_cache(module);
  jit::python::bind_pack(module);
  jit::python::bind_tool(module);
  jit::python::bind_tvm(module);
  jit::python::bind_xla(module);
}
