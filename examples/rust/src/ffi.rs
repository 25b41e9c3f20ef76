//! The part of `jit/c.h` that this crate calls.
use std::os::raw::{c_char, c_int, c_void};

pub const ATTENTION: c_int = 0;
pub const CUDA: i32 = 2;

pub enum Context {}
pub enum Operation {}

#[repr(C)]
pub struct Error {
    pub code: c_int,
    pub native_code: i32,
    pub field: *const c_char,
    pub message: *const c_char,
    pub stage: *const c_char,
    pub log: *const c_char,
    pub source: *const c_char,
}

#[repr(C)]
pub struct Buffer {
    pub data: *mut c_void,
    pub bytes: usize,
}

/// DLTensor of DLPack.
#[repr(C)]
pub struct Tensor {
    pub data: *mut c_void,
    pub device_type: i32,
    pub device_id: i32,
    pub ndim: i32,
    pub type_code: u8,
    pub type_bits: u8,
    pub type_lanes: u16,
    pub shape: *const i64,
    pub strides: *const i64,
    pub byte_offset: u64,
}

/// The members of a struct that this crate sets; `size` tells the library that it ends here.
#[repr(C)]
pub struct ContextOptions {
    pub size: usize,
    pub dlpack_major: u32,
    pub device: i32,
    pub devices: *const c_char,
}

#[repr(C)]
pub struct Spec {
    pub size: usize,
    pub text: *const c_char,
}

#[repr(C)]
pub struct ForwardArguments {
    pub size: usize,
    pub q: *const Tensor,
    pub k: *const Tensor,
    pub v: *const Tensor,
    pub o: *const Tensor,
    pub lse: *const Tensor,
    pub tensors: *const c_void,
    pub tensor_count: usize,
    pub cu_seqlens_q: *const Tensor,
    pub cu_seqlens_k: *const Tensor,
    pub seqused_q: *const Tensor,
    pub seqused_k: *const Tensor,
    pub cache_leftpad: *const Tensor,
    pub page_table: *const Tensor,
}

impl Default for ForwardArguments {
    fn default() -> ForwardArguments {
        // SAFETY: zero is the default of every member, and a value of its type.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
pub struct BackwardArguments {
    pub size: usize,
    pub d_o: *const Tensor,
    pub q: *const Tensor,
    pub k: *const Tensor,
    pub v: *const Tensor,
    pub o: *const Tensor,
    pub lse: *const Tensor,
    pub dq: *const Tensor,
    pub dk: *const Tensor,
    pub dv: *const Tensor,
}

#[link(name = "jit_attention")]
extern "C" {
    pub fn jit_error_free(error: *mut Error);
    pub fn jit_context_create(
        options: *const ContextOptions,
        context: *mut *mut Context,
        error: *mut *mut Error,
    ) -> c_int;
    pub fn jit_context_free(context: *mut Context);
    pub fn jit_buffer_create(
        context: *const Context,
        bytes: usize,
        buffer: *mut *mut Buffer,
        error: *mut *mut Error,
    ) -> c_int;
    pub fn jit_buffer_free(buffer: *mut Buffer);
    pub fn jit_buffer_upload(
        buffer: *const Buffer,
        from: *const c_void,
        bytes: usize,
        offset: usize,
        error: *mut *mut Error,
    ) -> c_int;
    pub fn jit_buffer_download(
        buffer: *const Buffer,
        to: *mut c_void,
        bytes: usize,
        offset: usize,
        stream: *mut c_void,
        error: *mut *mut Error,
    ) -> c_int;
    pub fn jit_operation_create(
        context: *const Context,
        kind: c_int,
        spec: *const Spec,
        operation: *mut *mut Operation,
        error: *mut *mut Error,
    ) -> c_int;
    pub fn jit_operation_free(operation: *mut Operation);
    pub fn jit_forward(
        attention: *const Operation,
        arguments: *const ForwardArguments,
        stream: *mut c_void,
        error: *mut *mut Error,
    ) -> c_int;
    pub fn jit_backward(
        attention: *const Operation,
        arguments: *const BackwardArguments,
        stream: *mut c_void,
        error: *mut *mut Error,
    ) -> c_int;
}
