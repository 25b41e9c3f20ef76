// Sizes and offsets of the structs of jit/c.h: programs that are compiled already count on them.
#include <cstddef>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <jit/c.h>
#include <jit/c_key_mass.h>

#include "tests/support/fresh_folder.h"

namespace jit::testing {
namespace {

// A line for each member; those of a struct leave no gap, so that none is forgotten.
class Layout {
 public:
  void begin(const char* name, std::size_t size) {
    text_ << fmt::format("{} {}\n", name, size);
    size_ = size;
    end_ = 0;
  }
  void add(const char* name, std::size_t offset, std::size_t size) {
    EXPECT_EQ(offset, end_) << "before " << name << " lies a member that this test does not list, or a gap";
    text_ << fmt::format("  {} {} {}\n", name, offset, size);
    end_ = offset + size;
  }
  void end() { EXPECT_EQ(end_, size_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::size_t size_ = 0, end_ = 0;
};

#define JIT_BEGIN(type) layout.begin(#type, sizeof(type))
#define JIT_MEMBER(type, member) layout.add(#member, offsetof(type, member), sizeof(type::member))

TEST(CLayout, IsTheRecordedOne) {
  Layout layout;
  JIT_BEGIN(jit_tensor_device);
  JIT_MEMBER(jit_tensor_device, device_type);
  JIT_MEMBER(jit_tensor_device, device_id);
  layout.end();
  JIT_BEGIN(jit_tensor_type);
  JIT_MEMBER(jit_tensor_type, code);
  JIT_MEMBER(jit_tensor_type, bits);
  JIT_MEMBER(jit_tensor_type, lanes);
  layout.end();
  JIT_BEGIN(jit_tensor);
  JIT_MEMBER(jit_tensor, data);
  JIT_MEMBER(jit_tensor, device);
  JIT_MEMBER(jit_tensor, ndim);
  JIT_MEMBER(jit_tensor, dtype);
  JIT_MEMBER(jit_tensor, shape);
  JIT_MEMBER(jit_tensor, strides);
  JIT_MEMBER(jit_tensor, byte_offset);
  layout.end();
  JIT_BEGIN(jit_error);
  JIT_MEMBER(jit_error, code);
  JIT_MEMBER(jit_error, native_code);
  JIT_MEMBER(jit_error, field);
  JIT_MEMBER(jit_error, message);
  JIT_MEMBER(jit_error, stage);
  JIT_MEMBER(jit_error, log);
  JIT_MEMBER(jit_error, source);
  layout.end();
  JIT_BEGIN(jit_event);
  JIT_MEMBER(jit_event, size);
  JIT_MEMBER(jit_event, kind);
  JIT_MEMBER(jit_event, done);
  JIT_MEMBER(jit_event, total);
  JIT_MEMBER(jit_event, reserved);
  JIT_MEMBER(jit_event, seconds);
  JIT_MEMBER(jit_event, message);
  layout.end();
  JIT_BEGIN(jit_context_options);
  JIT_MEMBER(jit_context_options, size);
  JIT_MEMBER(jit_context_options, dlpack_major);
  JIT_MEMBER(jit_context_options, device);
  JIT_MEMBER(jit_context_options, devices);
  JIT_MEMBER(jit_context_options, cache_dir);
  JIT_MEMBER(jit_context_options, cache_max_bytes);
  JIT_MEMBER(jit_context_options, readonly_caches);
  JIT_MEMBER(jit_context_options, readonly_cache_count);
  JIT_MEMBER(jit_context_options, packs);
  JIT_MEMBER(jit_context_options, pack_count);
  JIT_MEMBER(jit_context_options, disk_cache);
  JIT_MEMBER(jit_context_options, offline);
  JIT_MEMBER(jit_context_options, tuning);
  JIT_MEMBER(jit_context_options, tuning_seconds);
  JIT_MEMBER(jit_context_options, templates);
  JIT_MEMBER(jit_context_options, nvrtc);
  JIT_MEMBER(jit_context_options, observer);
  JIT_MEMBER(jit_context_options, observer_data);
  layout.end();
  JIT_BEGIN(jit_buffer);
  JIT_MEMBER(jit_buffer, data);
  JIT_MEMBER(jit_buffer, bytes);
  layout.end();
  JIT_BEGIN(jit_functor);
  JIT_MEMBER(jit_functor, name);
  JIT_MEMBER(jit_functor, text);
  layout.end();
  JIT_BEGIN(jit_spec);
  JIT_MEMBER(jit_spec, size);
  JIT_MEMBER(jit_spec, text);
  JIT_MEMBER(jit_spec, functors);
  JIT_MEMBER(jit_spec, functor_count);
  JIT_MEMBER(jit_spec, config);
  layout.end();
  JIT_BEGIN(jit_named_tensor);
  JIT_MEMBER(jit_named_tensor, name);
  JIT_MEMBER(jit_named_tensor, tensor);
  layout.end();
  JIT_BEGIN(jit_forward_arguments);
  JIT_MEMBER(jit_forward_arguments, size);
  JIT_MEMBER(jit_forward_arguments, q);
  JIT_MEMBER(jit_forward_arguments, k);
  JIT_MEMBER(jit_forward_arguments, v);
  JIT_MEMBER(jit_forward_arguments, o);
  JIT_MEMBER(jit_forward_arguments, lse);
  JIT_MEMBER(jit_forward_arguments, tensors);
  JIT_MEMBER(jit_forward_arguments, tensor_count);
  JIT_MEMBER(jit_forward_arguments, cu_seqlens_q);
  JIT_MEMBER(jit_forward_arguments, cu_seqlens_k);
  JIT_MEMBER(jit_forward_arguments, seqused_q);
  JIT_MEMBER(jit_forward_arguments, seqused_k);
  JIT_MEMBER(jit_forward_arguments, cache_leftpad);
  JIT_MEMBER(jit_forward_arguments, page_table);
  JIT_MEMBER(jit_forward_arguments, sinks);
  JIT_MEMBER(jit_forward_arguments, q_descale);
  JIT_MEMBER(jit_forward_arguments, k_descale);
  JIT_MEMBER(jit_forward_arguments, v_descale);
  JIT_MEMBER(jit_forward_arguments, v_mean);
  JIT_MEMBER(jit_forward_arguments, lse_shift);
  JIT_MEMBER(jit_forward_arguments, rng_state);
  JIT_MEMBER(jit_forward_arguments, dropout_p);
  JIT_MEMBER(jit_forward_arguments, num_splits);
  JIT_MEMBER(jit_forward_arguments, zero_padding);
  JIT_MEMBER(jit_forward_arguments, only_check);
  JIT_MEMBER(jit_forward_arguments, k_block_scales);
  JIT_MEMBER(jit_forward_arguments, v_block_scales);
  JIT_MEMBER(jit_forward_arguments, max_logit);
  JIT_MEMBER(jit_forward_arguments, row_max);
  JIT_MEMBER(jit_forward_arguments, o_raw);
  JIT_MEMBER(jit_forward_arguments, mean_score);
  JIT_MEMBER(jit_forward_arguments, o_descale);
  JIT_MEMBER(jit_forward_arguments, running_lse);
  layout.end();
  JIT_BEGIN(jit_backward_arguments);
  JIT_MEMBER(jit_backward_arguments, size);
  JIT_MEMBER(jit_backward_arguments, d_o);
  JIT_MEMBER(jit_backward_arguments, q);
  JIT_MEMBER(jit_backward_arguments, k);
  JIT_MEMBER(jit_backward_arguments, v);
  JIT_MEMBER(jit_backward_arguments, o);
  JIT_MEMBER(jit_backward_arguments, lse);
  JIT_MEMBER(jit_backward_arguments, dq);
  JIT_MEMBER(jit_backward_arguments, dk);
  JIT_MEMBER(jit_backward_arguments, dv);
  JIT_MEMBER(jit_backward_arguments, tensors);
  JIT_MEMBER(jit_backward_arguments, tensor_count);
  JIT_MEMBER(jit_backward_arguments, cu_seqlens_q);
  JIT_MEMBER(jit_backward_arguments, cu_seqlens_k);
  JIT_MEMBER(jit_backward_arguments, seqused_q);
  JIT_MEMBER(jit_backward_arguments, seqused_k);
  JIT_MEMBER(jit_backward_arguments, rng_state);
  JIT_MEMBER(jit_backward_arguments, d_lse);
  JIT_MEMBER(jit_backward_arguments, sinks);
  JIT_MEMBER(jit_backward_arguments, d_sinks);
  JIT_MEMBER(jit_backward_arguments, d_tensors);
  JIT_MEMBER(jit_backward_arguments, d_tensor_count);
  JIT_MEMBER(jit_backward_arguments, dropout_p);
  JIT_MEMBER(jit_backward_arguments, deterministic);
  JIT_MEMBER(jit_backward_arguments, only_check);
  JIT_MEMBER(jit_backward_arguments, reserved);
  JIT_MEMBER(jit_backward_arguments, mean_score);
  JIT_MEMBER(jit_backward_arguments, d_mean_score);
  layout.end();
  JIT_BEGIN(jit_append_arguments);
  JIT_MEMBER(jit_append_arguments, size);
  JIT_MEMBER(jit_append_arguments, k);
  JIT_MEMBER(jit_append_arguments, v);
  JIT_MEMBER(jit_append_arguments, k_cache);
  JIT_MEMBER(jit_append_arguments, v_cache);
  JIT_MEMBER(jit_append_arguments, slot_mapping);
  JIT_MEMBER(jit_append_arguments, seqused_k);
  JIT_MEMBER(jit_append_arguments, cu_seqlens_q);
  JIT_MEMBER(jit_append_arguments, page_table);
  JIT_MEMBER(jit_append_arguments, q);
  JIT_MEMBER(jit_append_arguments, q_out);
  JIT_MEMBER(jit_append_arguments, cos_sin);
  JIT_MEMBER(jit_append_arguments, cos);
  JIT_MEMBER(jit_append_arguments, sin);
  JIT_MEMBER(jit_append_arguments, positions);
  JIT_MEMBER(jit_append_arguments, q_norm_weight);
  JIT_MEMBER(jit_append_arguments, k_norm_weight);
  JIT_MEMBER(jit_append_arguments, k_scale);
  JIT_MEMBER(jit_append_arguments, v_scale);
  JIT_MEMBER(jit_append_arguments, only_check);
  JIT_MEMBER(jit_append_arguments, reserved);
  JIT_MEMBER(jit_append_arguments, k_block_scales);
  JIT_MEMBER(jit_append_arguments, v_block_scales);
  layout.end();
  JIT_BEGIN(jit_partial_state);
  JIT_MEMBER(jit_partial_state, o);
  JIT_MEMBER(jit_partial_state, lse);
  layout.end();
  JIT_BEGIN(jit_merge_arguments);
  JIT_MEMBER(jit_merge_arguments, size);
  JIT_MEMBER(jit_merge_arguments, parts);
  JIT_MEMBER(jit_merge_arguments, part_count);
  JIT_MEMBER(jit_merge_arguments, o);
  JIT_MEMBER(jit_merge_arguments, lse);
  JIT_MEMBER(jit_merge_arguments, only_check);
  JIT_MEMBER(jit_merge_arguments, reserved);
  layout.end();
  JIT_BEGIN(jit_key_mass_arguments);
  JIT_MEMBER(jit_key_mass_arguments, size);
  JIT_MEMBER(jit_key_mass_arguments, q);
  JIT_MEMBER(jit_key_mass_arguments, k);
  JIT_MEMBER(jit_key_mass_arguments, lse);
  JIT_MEMBER(jit_key_mass_arguments, mass);
  JIT_MEMBER(jit_key_mass_arguments, tensors);
  JIT_MEMBER(jit_key_mass_arguments, tensor_count);
  JIT_MEMBER(jit_key_mass_arguments, cu_seqlens_q);
  JIT_MEMBER(jit_key_mass_arguments, cu_seqlens_k);
  JIT_MEMBER(jit_key_mass_arguments, only_check);
  JIT_MEMBER(jit_key_mass_arguments, reserved);
  JIT_MEMBER(jit_key_mass_arguments, page_table);
  JIT_MEMBER(jit_key_mass_arguments, seqused_k);
  layout.end();
  JIT_BEGIN(jit_quantize_arguments);
  JIT_MEMBER(jit_quantize_arguments, size);
  JIT_MEMBER(jit_quantize_arguments, q);
  JIT_MEMBER(jit_quantize_arguments, k);
  JIT_MEMBER(jit_quantize_arguments, v);
  JIT_MEMBER(jit_quantize_arguments, q_out);
  JIT_MEMBER(jit_quantize_arguments, k_out);
  JIT_MEMBER(jit_quantize_arguments, v_out);
  JIT_MEMBER(jit_quantize_arguments, q_descale);
  JIT_MEMBER(jit_quantize_arguments, k_descale);
  JIT_MEMBER(jit_quantize_arguments, v_descale);
  JIT_MEMBER(jit_quantize_arguments, k_mean);
  JIT_MEMBER(jit_quantize_arguments, v_mean);
  JIT_MEMBER(jit_quantize_arguments, lse_shift);
  JIT_MEMBER(jit_quantize_arguments, q_norm_weight);
  JIT_MEMBER(jit_quantize_arguments, k_norm_weight);
  JIT_MEMBER(jit_quantize_arguments, cos_sin);
  JIT_MEMBER(jit_quantize_arguments, q_positions);
  JIT_MEMBER(jit_quantize_arguments, k_positions);
  JIT_MEMBER(jit_quantize_arguments, cu_seqlens_q);
  JIT_MEMBER(jit_quantize_arguments, cu_seqlens_k);
  JIT_MEMBER(jit_quantize_arguments, seqused_q);
  JIT_MEMBER(jit_quantize_arguments, seqused_k);
  JIT_MEMBER(jit_quantize_arguments, rotation_seed);
  JIT_MEMBER(jit_quantize_arguments, only_check);
  JIT_MEMBER(jit_quantize_arguments, reserved);
  layout.end();
  JIT_BEGIN(jit_block_lists);
  JIT_MEMBER(jit_block_lists, counts);
  JIT_MEMBER(jit_block_lists, indices);
  JIT_MEMBER(jit_block_lists, indptr);
  layout.end();
  JIT_BEGIN(jit_block_mask_arguments);
  JIT_MEMBER(jit_block_mask_arguments, size);
  JIT_MEMBER(jit_block_mask_arguments, block_mask);
  JIT_MEMBER(jit_block_mask_arguments, block_places);
  JIT_MEMBER(jit_block_mask_arguments, block_scores);
  JIT_MEMBER(jit_block_mask_arguments, seqlen_q);
  JIT_MEMBER(jit_block_mask_arguments, seqlen_kv);
  JIT_MEMBER(jit_block_mask_arguments, heads_q);
  JIT_MEMBER(jit_block_mask_arguments, total_q);
  JIT_MEMBER(jit_block_mask_arguments, total_k);
  JIT_MEMBER(jit_block_mask_arguments, tensors);
  JIT_MEMBER(jit_block_mask_arguments, tensor_count);
  JIT_MEMBER(jit_block_mask_arguments, map);
  JIT_MEMBER(jit_block_mask_arguments, partial);
  JIT_MEMBER(jit_block_mask_arguments, full);
  JIT_MEMBER(jit_block_mask_arguments, cu_seqlens_q);
  JIT_MEMBER(jit_block_mask_arguments, cu_seqlens_k);
  JIT_MEMBER(jit_block_mask_arguments, seqused_q);
  JIT_MEMBER(jit_block_mask_arguments, seqused_k);
  JIT_MEMBER(jit_block_mask_arguments, cache_leftpad);
  JIT_MEMBER(jit_block_mask_arguments, only_check);
  JIT_MEMBER(jit_block_mask_arguments, reserved);
  layout.end();
  // A line that differs breaks compiled programs. A new member at the end of a struct of arguments does not.
  EXPECT_EQ(layout.text(), read_text(JIT_ATTENTION_SOURCE_DIR "/tests/capi/layout.txt"));
}

}  // namespace
}  // namespace jit::testing
