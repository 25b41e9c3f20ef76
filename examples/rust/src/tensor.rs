//! Tensors in the device's memory.
use std::marker::PhantomData;
use std::mem::{size_of, size_of_val};
use std::ptr;

use crate::{call, ffi, refused, Context, Result};

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

// SAFETY: buffers are immutable, and the library's functions may be called from any thread.
unsafe impl Send for Buffer {}
unsafe impl Sync for Buffer {}

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

    /// The sizes of the dimensions.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    pub(crate) fn view(&self) -> ffi::Tensor {
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
