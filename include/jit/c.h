/// @file
/// The C interface of the library, for programs in any language: the shared library libjit_attention.so.1, or the
/// static one. A problem is text, tensors are DLPack's, and a call takes a struct of named tensors:
///
/// @code
/// jit_context* context = NULL;
/// jit_operation* causal = NULL;
/// jit_error* error = NULL;
/// jit_spec spec = {.size = sizeof(spec), .text = "--head-dim 128 --gqa-ratio 4 --mask causal"};
/// jit_forward_arguments call = {.size = sizeof(call), .q = &q, .k = &k, .v = &v, .o = &o};
/// if (jit_context_create(NULL, &context, &error) ||
///     jit_operation_create(context, JIT_ATTENTION, &spec, &causal, &error) ||
///     jit_forward(causal, &call, stream, &error)) {
///   fprintf(stderr, "%s: %s\n", error->field, error->message);
///   jit_error_free(error);
/// }
/// jit_operation_free(causal);
/// jit_context_free(context);
/// @endcode
///
/// **Errors.** A function returns JIT_OK or the code of an error. Unless the code is JIT_LAUNCH_FAILED or
/// JIT_DRIVER_ERROR, nothing was launched, and no tensor was written. If `error` is not null, every call sets `*error`:
/// to null, or to an error that the caller owns and frees with jit_error_free. No exception leaves a function.
///
/// **Ownership.** The caller owns what a function writes to an out-parameter, and frees it with the function of its
/// type; after an error it is null. A function reads structs and texts only during the call. The memory of tensors must
/// stay valid until the work on the stream is complete.
///
/// **Threads.** All functions are thread-safe, also with the same context or operation. Do not free an object while
/// another thread uses it. An operation keeps what it needs of its context.
///
/// **Versions.** A struct of arguments begins with its size: `sizeof`, as the caller was compiled. Zero is the default
/// of every member. Programs that were compiled with an earlier header have smaller structs: members that these lack
/// have their defaults. A larger struct is refused if a member that this library does not know is not zero.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef DLPACK_DLPACK_H_
// <dlpack/dlpack.h> came first: its tensors are passed without a cast.
/// A tensor.
typedef DLTensor jit_tensor;
#else
/// Where a tensor lies: member by member DLDevice of DLPack.
typedef struct jit_tensor_device {
  int32_t device_type;  ///< 2, CUDA memory, or 13, managed CUDA memory; also of emulated devices
  int32_t device_id;    ///< ordinal of the device: must be that of the context
} jit_tensor_device;

/// An element type: member by member DLDataType of DLPack.
typedef struct jit_tensor_type {
  /// With `bits`: 0 signed integer (32, 64), 1 unsigned integer (8), 2 floating point (16, 32), 4 bfloat (16), 6 bool
  /// (8), 10 float8_e4m3fn (8), 12 float8_e5m2 (8).
  uint8_t code;
  uint8_t bits;    ///< of an element
  uint16_t lanes;  ///< 1
} jit_tensor_type;

/// A tensor: member by member DLTensor of DLPack before version 2, so that a pointer to one may be cast. If
/// <dlpack/dlpack.h> is included before this header, it is DLTensor itself. A tensor owns nothing.
typedef struct jit_tensor {
  void* data;                ///< address on the device
  jit_tensor_device device;  ///< where it lies
  int32_t ndim;              ///< number of dimensions: 1 to 4
  jit_tensor_type dtype;     ///< element type
  int64_t* shape;            ///< sizes of the dimensions
  int64_t* strides;          ///< distances of neighbors, in elements; null: dense, row-major
  uint64_t byte_offset;      ///< of the first element from `data`
} jit_tensor;
#endif

/// The code of an error: those of jit::ErrorCode, and two more.
typedef enum jit_code {
  JIT_OK = 0,                  ///< no error
  JIT_INVALID_SPEC = 1,        ///< the spec contradicts itself or asks for something unsupported
  JIT_INVALID_ARGUMENT = 2,    ///< an argument, a tensor or a pointer is wrong
  JIT_UNSUPPORTED_DEVICE = 3,  ///< this GPU cannot run what was asked
  JIT_NO_VALID_CONFIG = 4,     ///< no config fits the spec on this GPU
  JIT_COMPILE_FAILED = 5,      ///< NVRTC rejected the program; `log` has all errors
  JIT_NVRTC_UNAVAILABLE = 6,   ///< NVRTC was not found, or is too old
  JIT_DRIVER_UNAVAILABLE = 7,  ///< there is no CUDA driver, or no GPU
  JIT_LOAD_FAILED = 8,         ///< the driver refused the machine code
  JIT_LAUNCH_FAILED = 9,       ///< the driver refused the launch, or the kernel failed
  JIT_DRIVER_ERROR = 10,       ///< another driver call failed
  JIT_OFFLINE = 11,            ///< a kernel is in no cache and no pack, and compiling is forbidden
  JIT_NOT_PREPARED = 12,  ///< the stream is being captured, and the call would compile or tune: prepare first
  JIT_IO_ERROR = 13,      ///< a file could not be read or written
  JIT_OUT_OF_MEMORY = 14,  ///< host memory is exhausted
  JIT_INTERNAL_ERROR = 15  ///< a defect of the library
} jit_code;

/// An error. Its texts live as long as it does. They are never null; unknown parts are empty.
typedef struct jit_error {
  jit_code code;        ///< never JIT_OK
  int32_t native_code;  ///< the CUresult or nvrtcResult; 0: none
  const char* field;    ///< the argument or field that is wrong: "k", "spec.head_dim", "packs[1]"
  const char* message;  ///< one sentence: the argument, its value, the rule, and what would work
  const char* stage;    ///< the step that failed: "validate", "compile", "load", "launch", "tune", …
  const char* log;      ///< the compiler's log, if compiling failed
  const char* source;   ///< the generated program, if compiling failed
} jit_error;

/// Frees an error; null is allowed.
void jit_error_free(jit_error* error);

/// Frees a text that a function of this header returned through a `char**`; null is allowed.
void jit_text_free(char* text);

/// The version of the library that runs: "0.1.0". Static memory.
const char* jit_version(void);

// ---- contexts ----

/// The kind of an event.
typedef enum jit_event_kind {
  JIT_EVENT_NOTE = 0,     ///< something worth knowing, such as a remark of the assembler
  JIT_EVENT_WARNING = 1,  ///< something went wrong and was worked around
  JIT_EVENT_COMPILE = 2,  ///< a kernel was compiled in `seconds`
  JIT_EVENT_TUNE = 3,     ///< progress: `done` of `total` candidates
  JIT_EVENT_TUNED = 4     ///< tuning has ended
} jit_event_kind;

/// An event. It is valid during the call of the observer.
typedef struct jit_event {
  size_t size;          ///< of this struct, in bytes
  jit_event_kind kind;  ///< what happened
  int32_t done;         ///< with JIT_EVENT_TUNE: candidates that are measured
  int32_t total;        ///< of JIT_EVENT_TUNE
  int32_t reserved;     ///< 0
  double seconds;       ///< wall time; 0 where it is not known
  const char* message;  ///< one sentence
} jit_event;

/// Called from any thread, possibly from several at once. It must not use the operation that the event is about.
typedef void (*jit_observer)(void* data, const jit_event* event);

/// Options of a context. Settings of 0 or null come from the environment variables JIT_ATTENTION_…; device 0 is GPU 0.
typedef struct jit_context_options {
  size_t size;  ///< sizeof(jit_context_options)
  uint32_t
      dlpack_major;  ///< major version of DLPack that tensors follow: 0 or 1, which have the same tensors
  int32_t device;  ///< ordinal of the device; -1: the one that is current on the calling thread, at each call
  const char*
      devices;  ///< chooses for the process: "cuda", or "emulated:sm_90a,sm_80"; null: the environment's choice
  const char* cache_dir;               ///< folder of compiled kernels and tuning records
  uint64_t cache_max_bytes;            ///< limit in bytes; least recently used kernels are removed beyond it
  const char* const* readonly_caches;  ///< folders that are searched after cache_dir
  size_t readonly_cache_count;         ///< number of these
  const char* const* packs;            ///< files of kernels (docs/packs.md), searched after the caches
  size_t pack_count;                   ///< number of these
  int32_t disk_cache;                  ///< whether kernels are kept on the disk: 1 yes, -1 no
  int32_t offline;                     ///< whether compiling is forbidden: 1 yes, -1 no
  const char* tuning;                  ///< "off", "recorded", "first_run" or "exhaustive"
  double tuning_seconds;               ///< time limit for tuning one problem, in seconds
  const char* templates;               ///< folder that replaces the embedded templates
  const char* nvrtc;                   ///< path of libnvrtc, or of its folder
  jit_observer observer;               ///< receives events; null: none
  void* observer_data;                 ///< its first argument
} jit_context_options;

/// Settings, caches, compiler, and a device. Immutable; thread safe.
typedef struct jit_context jit_context;

/// Creates a context. It opens the cache folder; it neither compiles nor loads. `options` may be null. A folder or pack
/// that cannot be used is an event, not an error; jit_context_info says why. Fails with JIT_INVALID_ARGUMENT, whose
/// field is the option's name, and with JIT_IO_ERROR if `templates` cannot be read.
///
/// @code
/// const char* packs[] = {"llama.pack"};
/// jit_context_options options = {.size = sizeof(options), .packs = packs, .pack_count = 1, .offline = 1};
/// jit_context_create(&options, &context, &error);
/// @endcode
jit_code jit_context_create(const jit_context_options* options, jit_context** context, jit_error** error);

/// Frees a context; null is allowed. Operations that were made from it stay usable.
void jit_context_free(jit_context* context);

/// Describes the context as a JSON object, as a bug report should begin: version, cache_directory, cache_reason,
/// compiler, packs (path, entries, targets, and the reason if one is not used) and devices. If the compiler or the
/// devices are missing, a sentence in their place says why. Free `json` with jit_text_free.
jit_code jit_context_info(const jit_context* context, char** json, jit_error** error);

// ---- memory: for programs without CUDA, and for emulated devices, which have no other ----

/// A piece of a device's memory.
typedef struct jit_buffer {
  void* data;    ///< address on the device; null without bytes
  size_t bytes;  ///< its size
} jit_buffer;

/// Allocates memory on the context's device; it is not initialized. Fails with JIT_DRIVER_ERROR if memory is short.
///
/// @code
/// jit_buffer_create(context, 1 << 20, &buffer, &error);
/// q.data = buffer->data;
/// @endcode
jit_code jit_buffer_create(const jit_context* context, size_t bytes, jit_buffer** buffer, jit_error** error);

/// Frees the memory; null is allowed. Work that uses it must be complete.
void jit_buffer_free(jit_buffer* buffer);

/// Copies `bytes` bytes from the host to `offset` of the buffer; the copy is done when the call returns. Fails with
/// JIT_INVALID_ARGUMENT for bytes outside of the buffer.
jit_code jit_buffer_upload(const jit_buffer* buffer, const void* from, size_t bytes, size_t offset,
                           jit_error** error);

/// Copies `bytes` bytes from `offset` of the buffer to the host, after the work already queued on `stream`; complete on
/// return. Fails as jit_buffer_upload does, and with the error of that work.
jit_code jit_buffer_download(const jit_buffer* buffer, void* to, size_t bytes, size_t offset, void* stream,
                             jit_error** error);

// ---- problems ----

/// A mask, score or output of your own.
typedef struct jit_functor {
  const char* name;  ///< by which `--mask`, `--score` or `--output` calls it: text(name)
  /// The body of a C++ function, with comments on top that declare its constants and tensors, as in the tool's files:
  /// "// tensor: ids int32\nreturn ids[q] == ids[k];" (docs/masks.md).
  const char* text;
} jit_functor;

/// A problem: what a kernel is specialized for.
typedef struct jit_spec {
  size_t size;  ///< sizeof(jit_spec)
  /// Options as the tool reads them: "--head-dim 128 --mask 'causal && sliding_window(1023)'". Quotes hold a value with
  /// spaces together; an option without a value means true. Options are the fields of jit::AttentionSpec, AppendSpec,
  /// MergeSpec, QuantizeSpec, BlockMaskSpec or KeyMassSpec, with dashes and the same defaults. Null: all defaults.
  const char* text;
  const jit_functor* functors;  ///< what `--mask`, `--score` and `--output` call by text(name)
  size_t functor_count;         ///< number of these
  /// Attention only: fields of the forward kernel's config, "family=forward_wgmma tile_q=128". All sizes use it, and
  /// nothing is tuned. Null: the library chooses.
  const char* config;
} jit_spec;

/// The reasons why the library does not serve an attention spec, as a JSON array of objects with field, value, rule,
/// nearest (a value that would work) and sentence; "[]" if it does. With `arch`, an architecture such as "sm_90a", no
/// GPU is needed, and `context` may be null. Without, the answer is for the context's device. Free `json` with
/// jit_text_free. Fails with JIT_INVALID_ARGUMENT if the text cannot be read.
///
/// @code
/// jit_refusals(NULL, "sm_90a", &spec, &json, &error);  // [{"field": "head_dim", "value": "100", …}]
/// @endcode
jit_code jit_refusals(const jit_context* context, const char* arch, const jit_spec* spec, char** json,
                      jit_error** error);

/// Compiles the forward kernel of an attention spec for an architecture, and writes it to a folder, which is created:
/// kernel.cu, kernel.ptx, kernel.cubin, report.json, templates/, and kernel.sass if a disassembler is found. Needs no
/// GPU. `json` is an array of the paths; free it with jit_text_free. Fails with JIT_INVALID_SPEC, JIT_NO_VALID_CONFIG,
/// JIT_COMPILE_FAILED, JIT_NVRTC_UNAVAILABLE, JIT_OFFLINE and JIT_IO_ERROR.
///
/// @code
/// jit_dump(context, "sm_90a", &spec, "out", &json, &error);
/// @endcode
jit_code jit_dump(const jit_context* context, const char* arch, const jit_spec* spec, const char* folder,
                  char** json, jit_error** error);

/// The kind of an operation.
typedef enum jit_kind {
  JIT_ATTENTION = 0,   ///< attention: jit_forward and jit_backward
  JIT_APPEND = 1,      ///< new keys and values for a KV cache: jit_append
  JIT_MERGE = 2,       ///< partial results over different keys become one: jit_merge
  JIT_QUANTIZE = 3,    ///< q, k and v become FP8: jit_quantize
  JIT_BLOCK_MASK = 4,  ///< the blocks that a mask keeps: jit_block_mask
  JIT_KEY_MASS = 5     ///< the probabilities of each key, summed over queries (jit/c_key_mass.h)
} jit_kind;

/// The kernels of one problem on every device and for every size. Immutable; thread safe.
typedef struct jit_operation jit_operation;

/// Creates an operation for a spec, which it checks. It neither compiles nor needs a GPU: the first call, or
/// jit_prepare, compiles the kernel or takes it from a cache or pack. Fails with JIT_INVALID_SPEC or
/// JIT_INVALID_ARGUMENT, whose field is the spec's: "spec.head_dim".
///
/// @code
/// jit_spec spec = {.size = sizeof(spec), .text = "--dtype fp16 --score 'softcap(30), alibi'"};
/// jit_operation_create(context, JIT_ATTENTION, &spec, &attention, &error);
/// @endcode
jit_code jit_operation_create(const jit_context* context, jit_kind kind, const jit_spec* spec,
                              jit_operation** operation, jit_error** error);

/// Frees an operation; null is allowed. Work that it launched goes on.
void jit_operation_free(jit_operation* operation);

// ---- calls ----
//
// A tensor that is null is absent. Strides are arbitrary if the last one is 1. `stream` is a CUstream or cudaStream_t;
// null is the default stream. A call returns once the work is queued. The first call of a size class compiles and
// tunes, as the settings say; later calls only launch, also while the stream is captured into a CUDA graph. A call
// fails with JIT_INVALID_ARGUMENT, whose field is the member's name, or with JIT_LAUNCH_FAILED; the first one also as
// compiling and loading fail. With `only_check` a call checks its arguments, needs no device and computes nothing.

/// A tensor that a mask or score reads, by its name: "alibi_slopes", "bias", "document_ids_q", one of a functor.
typedef struct jit_named_tensor {
  const char* name;          ///< as the mask or score has it
  const jit_tensor* tensor;  ///< the tensor
} jit_named_tensor;

/// Tensors of a forward call: those of jit::AttentionArguments.
typedef struct jit_forward_arguments {
  size_t size;  ///< sizeof(jit_forward_arguments)
  const jit_tensor*
      q;  ///< queries (batch, seqlen_q, heads_q, head_dim); varlen: (total_q, heads_q, head_dim)
  /// Keys (batch, seqlen_kv, heads_kv, head_dim); varlen: (total_k, heads_kv, head_dim); paged: (pages, page_size,
  /// heads_kv, head_dim).
  const jit_tensor* k;
  const jit_tensor* v;  ///< values, as k with head_dim_v; absent with --values-in-keys
  const jit_tensor* o;  ///< written: the output, as q with head_dim_v
  /// Optional, written: natural log of the sum of exp(score): fp32 (batch, heads_q, seqlen_q), or (heads_q, total_q).
  const jit_tensor* lse;
  const jit_named_tensor* tensors;  ///< the tensors that mask and score read
  size_t tensor_count;              ///< number of these, at most 8
  const jit_tensor* cu_seqlens_q;   ///< int32 (batch + 1): the first row of each varlen sequence of queries
  const jit_tensor* cu_seqlens_k;   ///< int32 (batch + 1): the same of keys
  const jit_tensor* seqused_q;      ///< optional, int32 (batch): queries of each sequence
  const jit_tensor* seqused_k;      ///< optional, int32 (batch): keys of each sequence
  const jit_tensor* cache_leftpad;  ///< optional, int32 (batch): padding rows before the first key
  const jit_tensor* page_table;     ///< with pages: int32 (batch, max_pages)
  const jit_tensor* sinks;          ///< with --sinks: fp32 (heads_q), one extra logit for each head
  const jit_tensor* q_descale;      ///< fp32 scales of FP8 q, as --descale-per says
  const jit_tensor*
      k_descale;  ///< fp32 scales of 8- or 4-bit k: (heads_kv), (1), (batch, heads_kv), or by --descale-per
  const jit_tensor* v_descale;       ///< likewise of v; with FP8 q as --v-descale-per says
  const jit_tensor* v_mean;          ///< with --v-mean: fp32 (batch, heads_kv, head_dim_v), added to o
  const jit_tensor* lse_shift;       ///< with --lse-shift: fp32, of lse's shape
  const jit_tensor* rng_state;       ///< with --dropout: int64 (2), seed and offset
  float dropout_p;                   ///< with --dropout: rate from 0 up to, but not including, 1
  int32_t num_splits;                ///< most blocks that share the keys of a query; 0: the library chooses
  int32_t zero_padding;              ///< 1: padding rows of o and lse are written, as 0 and -inf
  int32_t only_check;                ///< 1: nothing is computed
  const jit_tensor* k_block_scales;  ///< with --kv-dtype nvfp4 or mxfp4: a byte for 16 or 32 columns of k
  const jit_tensor* v_block_scales;  ///< the same of v
  const jit_tensor* max_logit;       ///< with --max-logit, raised: fp32 (heads_q); initialize it to -inf
  const jit_tensor* row_max;         ///< with --row-max, raised: fp32, of lse's shape
  const jit_tensor* o_raw;  ///< optional with --output, written: o before it, which jit_backward takes as o
  const jit_tensor* mean_score;  ///< with --mean-score, written: fp32, of lse's shape
  /// Scales of 8-bit o: fp32, of lse's shape: written with --o-descale; else read, sizes may be 1.
  const jit_tensor* o_descale;
  const jit_tensor* running_lse;  ///< with --running-lse, read and written: LSE of all keys so far
} jit_forward_arguments;

/// Computes attention: o = softmax(mask(score(softmax_scale · q kᵀ))) v. Decoding is a forward call over pages; if few
/// queries see many keys, blocks share the keys of a query:
///
/// @code
/// jit_spec spec = {.size = sizeof(spec), .text = "--mask causal --sequences-kv paged --page-size 16"};
/// jit_operation_create(context, JIT_ATTENTION, &spec, &attention, &error);
/// jit_forward_arguments call = {.size = sizeof(call), .q = &q, .k = &k_pages, .v = &v_pages, .o = &o};
/// call.page_table = &page_table;
/// call.seqused_k = &lengths;
/// jit_forward(attention, &call, stream, &error);
/// @endcode
jit_code jit_forward(const jit_operation* attention, const jit_forward_arguments* arguments, void* stream,
                     jit_error** error);

/// Tensors of a backward call: those of jit::BackwardArguments. Errors name d_o "do" and d_lse "dlse".
typedef struct jit_backward_arguments {
  size_t size;                        ///< sizeof(jit_backward_arguments)
  const jit_tensor* d_o;              ///< the gradient of o, of o's shape
  const jit_tensor* q;                ///< as in forward
  const jit_tensor* k;                ///< as in forward
  const jit_tensor* v;                ///< as in forward
  const jit_tensor* o;                ///< forward's output; with --output its o_raw
  const jit_tensor* lse;              ///< forward's LSE
  const jit_tensor* dq;               ///< written: the gradient of q, of q's shape
  const jit_tensor* dk;               ///< written: the gradient of k, of k's shape
  const jit_tensor* dv;               ///< written: the gradient of v, of v's shape
  const jit_named_tensor* tensors;    ///< the tensors that mask and score read
  size_t tensor_count;                ///< number of these, at most 8
  const jit_tensor* cu_seqlens_q;     ///< as in forward
  const jit_tensor* cu_seqlens_k;     ///< as in forward
  const jit_tensor* seqused_q;        ///< as in forward
  const jit_tensor* seqused_k;        ///< as in forward
  const jit_tensor* rng_state;        ///< as in forward
  const jit_tensor* d_lse;            ///< optional: the gradient of lse, fp32, of its shape
  const jit_tensor* sinks;            ///< with --sinks: as in forward
  const jit_tensor* d_sinks;          ///< optional, written: the gradient of sinks, fp32 (heads_q)
  const jit_named_tensor* d_tensors;  ///< optional, written: gradients of some of `tensors`, of their shapes
  size_t d_tensor_count;              ///< number of these
  float dropout_p;                    ///< as in forward
  int32_t deterministic;              ///< 1: equal inputs give bitwise identical gradients
  int32_t only_check;                 ///< 1: nothing is computed
  int32_t reserved;                   ///< 0
  const jit_tensor* mean_score;       ///< with --mean-score: forward's
  const jit_tensor* d_mean_score;     ///< with --mean-score: its gradient, fp32, of lse's shape
} jit_backward_arguments;

/// Computes the gradients of q, k and v, and on request of sinks and of tensors that the score reads. Also fails with
/// JIT_INVALID_SPEC for paged, FP8, 8- or 4-bit keys, 8-bit o, --values-in-keys or --list-block.
///
/// @code
/// jit_backward_arguments call = {.size = sizeof(call), .d_o = &d_o, .q = &q, .k = &k, .v = &v, .o = &o,
///                                .lse = &lse, .dq = &dq, .dk = &dk, .dv = &dv, .deterministic = 1};
/// jit_backward(attention, &call, stream, &error);
/// @endcode
jit_code jit_backward(const jit_operation* attention, const jit_backward_arguments* arguments, void* stream,
                      jit_error** error);

/// Tensors of an append: those of jit::AppendArguments.
typedef struct jit_append_arguments {
  size_t size;          ///< sizeof(jit_append_arguments)
  const jit_tensor* k;  ///< new keys (tokens, heads_kv, head_dim), or (batch, seqlen, heads_kv, head_dim)
  const jit_tensor* v;  ///< new values, as k with head_dim_v
  const jit_tensor* k_cache;  ///< written: (pages, page_size, heads_kv, head_dim), or (batch, capacity, …)
  const jit_tensor* v_cache;  ///< written: likewise with head_dim_v
  const jit_tensor*
      slot_mapping;  ///< int64 (tokens): page · page_size + row of each token; -1: it is not stored
  const jit_tensor*
      seqused_k;  ///< or int32 (batch): keys of each request, of which the new ones are the last
  const jit_tensor* cu_seqlens_q;   ///< with seqused_k: int32 (batch + 1), the first token of each request
  const jit_tensor* page_table;     ///< with seqused_k: int32 (batch, max_pages)
  const jit_tensor* q;              ///< optional: queries, normalized and rotated in place, or into q_out
  const jit_tensor* q_out;          ///< optional, written: see q
  const jit_tensor* cos_sin;        ///< with --rotary-dim: (max_pos, rotary_dim), cosines and then sines
  const jit_tensor* cos;            ///< or cosines (max_pos, rotary_dim / 2)
  const jit_tensor* sin;            ///< and sines
  const jit_tensor* positions;      ///< int64 (tokens), or (3, tokens) with --mrope-sections
  const jit_tensor* q_norm_weight;  ///< with --norm and q: (head_dim)
  const jit_tensor* k_norm_weight;  ///< with --norm: (head_dim)
  const jit_tensor* k_scale;  ///< with caches of 8 or 4 bits: fp32, read, or written with --scale-per token
  const jit_tensor* v_scale;  ///< the same of v
  int32_t only_check;         ///< 1: nothing is computed
  int32_t reserved;           ///< 0
  const jit_tensor* k_block_scales;  ///< with --cache-dtype nvfp4 or mxfp4: written, (…, head_dim / 16 or 32)
  const jit_tensor* v_block_scales;  ///< the same of v
} jit_append_arguments;

/// Stores new keys and values in a KV cache, normalized and rotated as the spec says, in one launch.
///
/// @code
/// jit_append_arguments call = {.size = sizeof(call), .k = &k, .v = &v, .k_cache = &k_pages,
///                              .v_cache = &v_pages, .slot_mapping = &slots};
/// jit_append(append, &call, stream, &error);
/// @endcode
jit_code jit_append(const jit_operation* append, const jit_append_arguments* arguments, void* stream,
                    jit_error** error);

/// A partial result: attention over some of the keys; or several, stacked.
typedef struct jit_partial_state {
  /// (tokens, heads, head_dim_v), (batch, seqlen, heads, head_dim_v), or (states, tokens, heads, head_dim_v).
  const jit_tensor* o;
  const jit_tensor* lse;  ///< fp32 (heads, tokens), (batch, heads, seqlen) or (states, heads, tokens)
} jit_partial_state;

/// Tensors of a merge: those of jit::MergeArguments.
typedef struct jit_merge_arguments {
  size_t size;                     ///< sizeof(jit_merge_arguments)
  const jit_partial_state* parts;  ///< in the order of the sum
  size_t part_count;               ///< number of these
  const jit_tensor* o;    ///< written: (tokens, heads, head_dim_v) or (batch, seqlen, heads, head_dim_v)
  const jit_tensor* lse;  ///< optional, written: fp32 (heads, tokens) or (batch, heads, seqlen)
  int32_t only_check;     ///< 1: nothing is computed
  int32_t reserved;       ///< 0
} jit_merge_arguments;

/// Merges partial results over different keys. Errors name parts "parts[1].lse".
///
/// @code
/// jit_partial_state parts[] = {{&prefix_o, &prefix_lse}, {&suffix_o, &suffix_lse}};
/// jit_merge_arguments call = {.size = sizeof(call), .parts = parts, .part_count = 2, .o = &o};
/// jit_merge(merge, &call, stream, &error);
/// @endcode
jit_code jit_merge(const jit_operation* merge, const jit_merge_arguments* arguments, void* stream,
                   jit_error** error);

/// Tensors of a quantization: those of jit::QuantizeArguments (jit/quantize.h), with its shapes.
typedef struct jit_quantize_arguments {
  size_t size;                  ///< sizeof(jit_quantize_arguments)
  const jit_tensor* q;          ///< (batch, seqlen_q, heads_q, head_dim), or varlen
  const jit_tensor* k;          ///< (batch, seqlen_kv, heads_kv, head_dim), or varlen
  const jit_tensor* v;          ///< (batch, seqlen_kv, heads_kv, head_dim_v), or varlen
  const jit_tensor* q_out;      ///< written: FP8 queries
  const jit_tensor* k_out;      ///< written: FP8 keys
  const jit_tensor* v_out;      ///< written: FP8 values
  const jit_tensor* q_descale;  ///< fp32 scales, written; with --scales given read
  const jit_tensor* k_descale;  ///< the same of k
  const jit_tensor* v_descale;  ///< the same of v, by --value-scales
  const jit_tensor* k_mean;     ///< with --center-keys, optional, written: fp32 (batch, heads_kv, head_dim)
  const jit_tensor* v_mean;     ///< with --center-values, written: fp32 (batch, heads_kv, head_dim_v)
  const jit_tensor* lse_shift;  ///< with --center-keys, optional, written: fp32 (batch, heads_q, seqlen_q)
  const jit_tensor* q_norm_weight;  ///< with --norm: (head_dim)
  const jit_tensor* k_norm_weight;  ///< with --norm: (head_dim)
  const jit_tensor* cos_sin;        ///< with --rotary-dim: (max_pos, rotary_dim)
  const jit_tensor* q_positions;    ///< int64 (batch, seqlen_q)
  const jit_tensor* k_positions;    ///< int64 (batch, seqlen_kv)
  const jit_tensor* cu_seqlens_q;   ///< int32 (batch + 1)
  const jit_tensor* cu_seqlens_k;   ///< int32 (batch + 1)
  const jit_tensor* seqused_q;      ///< int32 (batch)
  const jit_tensor* seqused_k;      ///< int32 (batch)
  uint64_t rotation_seed;           ///< with --rotate: which columns change their signs
  int32_t only_check;               ///< 1: nothing is computed
  int32_t reserved;                 ///< 0
} jit_quantize_arguments;

/// Quantizes q, k and v to FP8 in one launch, with scales that it computes.
///
/// @code
/// jit_quantize_arguments call = {.size = sizeof(call), .q = &q, .k = &k, .v = &v, .q_out = &q8, .k_out = &k8,
///                                .v_out = &v8, .q_descale = &qs, .k_descale = &ks, .v_descale = &vs};
/// jit_quantize(quantize, &call, stream, &error);
/// @endcode
jit_code jit_quantize(const jit_operation* quantize, const jit_quantize_arguments* arguments, void* stream,
                      jit_error** error);

/// Lists of blocks: the count and columns of each row, or one list with the first index of each row (indptr).
typedef struct jit_block_lists {
  const jit_tensor* counts;   ///< int32 (batch, heads, rows)
  const jit_tensor* indices;  ///< int32 (batch, heads, rows, capacity); with indptr (blocks of all rows)
  const jit_tensor* indptr;   ///< in place of counts: int32 (batch, heads, rows + 1)
} jit_block_lists;

/// Tensors and sizes of a block mask: those of jit::BlockMaskArguments (jit/block_mask.h), with its shapes.
typedef struct jit_block_mask_arguments {
  size_t size;                   ///< sizeof(jit_block_mask_arguments)
  const jit_tensor* block_mask;  ///< written: int32 (batch, heads, block_rows, block_words)
  const jit_tensor*
      block_places;  ///< with --scores, written: int32 (batch, heads, block_rows, block_columns)
  const jit_tensor* block_scores;   ///< with --scores, written: int32 (batch, heads, room, score_words)
  int64_t seqlen_q;                 ///< most queries of a sequence
  int64_t seqlen_kv;                ///< most keys of a sequence
  int64_t heads_q;                  ///< query heads of the attention; 0: those of the table
  int64_t total_q;                  ///< rows of varlen q
  int64_t total_k;                  ///< rows of varlen k
  const jit_named_tensor* tensors;  ///< what the mask reads
  size_t tensor_count;              ///< number of these, at most 8
  const jit_tensor* map;            ///< optional: uint8 (batch, heads, rows, columns); 0 drops a block
  jit_block_lists partial;          ///< optional: blocks of which the mask is asked
  jit_block_lists full;             ///< optional: blocks whose scores are all kept
  const jit_tensor* cu_seqlens_q;   ///< as in forward
  const jit_tensor* cu_seqlens_k;   ///< as in forward
  const jit_tensor* seqused_q;      ///< as in forward
  const jit_tensor* seqused_k;      ///< as in forward
  const jit_tensor* cache_leftpad;  ///< as in forward
  int32_t only_check;               ///< 1: nothing is computed
  int32_t reserved;                 ///< 0
} jit_block_mask_arguments;

/// Writes the table of blocks that attention with `--mask 'block_mask(128, 128)'` reads as its tensor "block_mask".
/// block_rows is seqlen_q / block_q and block_columns is seqlen_kv / block_kv, both rounded up; block_words is twice
/// block_columns / 32, rounded up, and one more.
///
/// @code
/// jit_block_mask_arguments call = {.size = sizeof(call), .block_mask = &table, .seqlen_q = 8192,
///                                  .seqlen_kv = 8192};
/// jit_block_mask(blocks, &call, stream, &error);
/// @endcode
jit_code jit_block_mask(const jit_operation* block_mask, const jit_block_mask_arguments* arguments,
                        void* stream, jit_error** error);

// ---- ahead of calls, and what runs ----

/// Compiles, tunes and loads as the first call would: afterwards calls of these sizes only launch, also under capture.
/// For attention give `forward`, `backward` or both; tensors of masks and scores must have their contents. For other
/// operations give neither. Fails as a first call does.
///
/// @code
/// jit_prepare(attention, &call, NULL, &error);
/// @endcode
jit_code jit_prepare(const jit_operation* operation, const jit_forward_arguments* forward,
                     const jit_backward_arguments* backward, jit_error** error);

/// Measures configs for calls like this one on the context's device, and records the fastest for this and later
/// processes. Give `forward` or `backward`; no tensor is written. `json` is an object of configs, median_us and
/// default_us (microseconds), candidates, out_of_time and recorded_in; free it with jit_text_free. Fails with
/// JIT_UNSUPPORTED_DEVICE on an emulated device, which has no time to measure.
///
/// @code
/// jit_tune(attention, &call, NULL, &json, &error);
/// @endcode
jit_code jit_tune(const jit_operation* attention, const jit_forward_arguments* forward,
                  const jit_backward_arguments* backward, char** json, jit_error** error);

/// A part of a kernel.
typedef enum jit_kernel_part {
  JIT_KERNEL_SOURCE = 0,  ///< the generated program
  JIT_KERNEL_PTX = 1,     ///< its PTX
  JIT_KERNEL_SASS = 2,    ///< its SASS; needs nvdisasm or cuobjdump
  JIT_KERNEL_REPORT = 3   ///< a JSON object: config, why it was chosen, registers, spills, shared memory
} jit_kernel_part;

/// A part of each kernel that a call launches, concatenated. For attention give `forward` or `backward`, or neither for
/// the kernel of sizes without a chosen config. For other operations give neither; they have the source only. Kernels
/// are compiled if necessary. Free `text` with jit_text_free. Fails as a first call does, and with
/// JIT_IO_ERROR for SASS without a disassembler.
///
/// @code
/// jit_kernel_text(attention, &call, NULL, JIT_KERNEL_PTX, &text, &error);
/// @endcode
jit_code jit_kernel_text(const jit_operation* operation, const jit_forward_arguments* forward,
                         const jit_backward_arguments* backward, jit_kernel_part part, char** text,
                         jit_error** error);

#ifdef __cplusplus
}
#endif
