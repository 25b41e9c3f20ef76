//! Attention in Rust, over `libjit_attention.so.1`. Kernels are compiled while the program runs, and nothing while the
//! crate is built: it links the library by its name, and needs no build script. Where the library is no system's, set
//! `RUSTFLAGS="-L /path/to/lib"` and `LD_LIBRARY_PATH`.
//!
//! Work is queued on the default stream. A download waits for it, and so does freeing a buffer.
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::mem::{size_of, size_of_val};
use std::os::raw::{c_char, c_int};
use std::ptr;

mod ffi;

/// Why a call failed: nothing was computed.
#[derive(Debug, Clone)]
pub struct Error {
    /// A `jit_code`.
    pub code: i32,
    /// The argument or field that is wrong: `k`, `spec.head_dim`.
    pub field: String,
    /// One sentence: the argument, its value, the rule, and what would work.
    pub message: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

fn refused(field: &str, message: String) -> Error {
    Error { code: 2, field: field.into(), message: format!("{field}: {message}") }
}

/// Calls a function of the library with the place for its error.
fn call(function: impl FnOnce(*mut *mut ffi::Error) -> c_int) -> Result<()> {
    let mut error = ptr::null_mut();
    let code = function(&mut error);
    if code == 0 {
        return Ok(());
    }
    // SAFETY: after a failure the library has set `error`, whose texts are never null; it is freed once.
    unsafe {
        let text = |text: *const c_char| CStr::from_ptr(text).to_string_lossy().into_owned();
        let owned = Error { code, field: text((*error).field), message: text((*error).message) };
        ffi::jit_error_free(error);
        Err(owned)
    }
}

fn c_text(text: &str, field: &str) -> Result<CString> {
    CString::new(text).map_err(|_| refused(field, "has a null character".into()))
}

/// Settings, caches, compiler, and the device 0.
pub struct Context(*mut ffi::Context);

// SAFETY: the library's objects are immutable, and its functions may be called from any thread.
unsafe impl Send for Context {}
unsafe impl Sync for Context {}
unsafe impl Send for Attention {}
unsafe impl Sync for Attention {}
unsafe impl Send for Buffer {}
unsafe impl Sync for Buffer {}

impl Context {
    /// Chooses the devices of the process: `"cuda"`, `"emulated:sm_90a"`, or by the environment.
    pub fn new(devices: Option<&str>) -> Result<Context> {
        let devices = devices.map(|text| c_text(text, "devices")).transpose()?;
        let options = ffi::ContextOptions {
            size: size_of::<ffi::ContextOptions>(),
            dlpack_major: 1,
            device: 0,
            devices: devices.as_ref().map_or(ptr::null(), |text| text.as_ptr()),
        };
        let mut context = ptr::null_mut();
        // SAFETY: the options live during the call.
        call(|error| unsafe { ffi::jit_context_create(&options, &mut context, error) })?;
        Ok(Context(context))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it is freed once.
        unsafe { ffi::jit_context_free(self.0) }
    }
}

/// A type of tensors' elements: bits that the host copies as they are.
///
/// # Safety
/// Every pattern of bits must be a value.
pub unsafe trait Element: Copy {
    const CODE: u8;
    const BITS: u8;
}

/// bf16: the upper half of an `f32`.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl From<f32> for Bf16 {
    fn from(value: f32) -> Bf16 {
        Bf16((value.to_bits() >> 16) as u16)
    }
}

impl From<Bf16> for f32 {
    fn from(value: Bf16) -> f32 {
        f32::from_bits(u32::from(value.0) << 16)
    }
}

// SAFETY: numbers without invalid patterns.
unsafe impl Element for Bf16 {
    const CODE: u8 = 4;
    const BITS: u8 = 16;
}
// SAFETY: the same.
unsafe impl Element for f32 {
    const CODE: u8 = 2;
    const BITS: u8 = 32;
}
// SAFETY: the same.
unsafe impl Element for i32 {
    const CODE: u8 = 0;
    const BITS: u8 = 32;
}

/// A dense tensor in the device's memory.
pub struct Tensor<T: Element> {
    buffer: Buffer,
    shape: Vec<i64>,
    elements: PhantomData<T>,
}

struct Buffer(*mut ffi::Buffer);

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it is freed once; the driver waits for work that uses it.
        unsafe { ffi::jit_buffer_free(self.0) }
    }
}

impl<T: Element> Tensor<T> {
    /// Copies the values of a row-major tensor of this shape to the device.
    pub fn new(context: &Context, shape: &[i64], values: &[T]) -> Result<Tensor<T>> {
        let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(usize::try_from(size).ok()?));
        if count != Some(values.len()) {
            return Err(refused("values", format!("has {} elements; a tensor {shape:?} has others", values.len())));
        }
        let mut buffer = ptr::null_mut();
        let bytes = size_of_val(values);
        // SAFETY: the context is alive.
        call(|error| unsafe { ffi::jit_buffer_create(context.0, bytes, &mut buffer, error) })?;
        let buffer = Buffer(buffer);
        // SAFETY: `values` has so many bytes, and the buffer, too.
        call(|error| unsafe { ffi::jit_buffer_upload(buffer.0, values.as_ptr().cast(), bytes, 0, error) })?;
        Ok(Tensor { buffer, shape: shape.to_vec(), elements: PhantomData })
    }

    /// The values, after all work that was launched before.
    pub fn values(&self) -> Result<Vec<T>> {
        let count = self.shape.iter().product::<i64>() as usize;
        let mut values: Vec<T> = Vec::with_capacity(count);
        // SAFETY: there is room for `count` elements, the buffer has as many, and all patterns are values.
        unsafe {
            let (to, bytes) = (values.as_mut_ptr(), count * size_of::<T>());
            call(|error| ffi::jit_buffer_download(self.buffer.0, to.cast(), bytes, 0, ptr::null_mut(), error))?;
            values.set_len(count);
        }
        Ok(values)
    }

    fn view(&self) -> ffi::Tensor {
        ffi::Tensor {
            // SAFETY: the buffer is alive.
            data: unsafe { (*self.buffer.0).data },
            device_type: ffi::CUDA,
            device_id: 0,
            ndim: self.shape.len() as i32,
            type_code: T::CODE,
            type_bits: T::BITS,
            type_lanes: 1,
            shape: self.shape.as_ptr(),
            strides: ptr::null(),
            byte_offset: 0,
        }
    }
}

/// The kernels of one problem, for every size.
pub struct Attention(*mut ffi::Operation);

impl Attention {
    /// `spec` is text as the command-line tool reads it: `--head-dim 128 --gqa-ratio 4 --mask causal`.
    pub fn new(context: &Context, spec: &str) -> Result<Attention> {
        let text = c_text(spec, "spec")?;
        let spec = ffi::Spec { size: size_of::<ffi::Spec>(), text: text.as_ptr() };
        let mut operation = ptr::null_mut();
        // SAFETY: the spec lives during the call.
        call(|error| unsafe { ffi::jit_operation_create(context.0, ffi::ATTENTION, &spec, &mut operation, error) })?;
        Ok(Attention(operation))
    }

    /// Computes `o` from q, k and v (batch, seqlen, heads, head_dim), and LSE (batch, heads, seqlen) if it is wanted.
    pub fn forward<T: Element>(
        &self,
        q: &Tensor<T>,
        k: &Tensor<T>,
        v: &Tensor<T>,
        o: &mut Tensor<T>,
        lse: Option<&mut Tensor<f32>>,
    ) -> Result<()> {
        let (q, k, v, o) = (q.view(), k.view(), v.view(), o.view());
        let lse = lse.map(|tensor| tensor.view());
        let arguments = ffi::ForwardArguments {
            size: size_of::<ffi::ForwardArguments>(),
            q: &q,
            k: &k,
            v: &v,
            o: &o,
            lse: lse.as_ref().map_or(ptr::null(), |tensor| tensor),
        };
        // SAFETY: the tensors live during the call, and their memory until it is freed, which waits for the work.
        call(|error| unsafe { ffi::jit_forward(self.0, &arguments, ptr::null_mut(), error) })
    }
}

impl Drop for Attention {
    fn drop(&mut self) {
        // SAFETY: it is freed once.
        unsafe { ffi::jit_operation_free(self.0) }
    }
}
