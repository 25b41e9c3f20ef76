//! Attention in Rust, over `libjit_attention.so.1`. Kernels are compiled while the program runs, and nothing while the
//! crate is built: it links the library by its name, and needs no build script. Where the library is no system's, set
//! `RUSTFLAGS="-L /path/to/lib"` and `LD_LIBRARY_PATH`.
//!
//! Work is queued on the default stream. A download waits for it, and so does freeing a buffer.
use std::ffi::{CStr, CString};
use std::mem::size_of;
use std::os::raw::{c_char, c_int};
use std::ptr;

mod attention;
mod ffi;
mod pages;
mod tensor;

pub use attention::{Attention, Gradients};
pub use pages::Pages;
pub use tensor::{Bf16, Element, Tensor};

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

// SAFETY: contexts are immutable, and the library's functions may be called from any thread.
unsafe impl Send for Context {}
unsafe impl Sync for Context {}

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
