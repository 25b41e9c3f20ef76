//! Attention, its gradients, and attention over a cache.
use std::mem::size_of;
use std::ptr;

use crate::{c_text, call, ffi, Context, Element, Pages, Result, Tensor};

/// The kernels of one problem, for every size.
pub struct Attention(*mut ffi::Operation);

// SAFETY: operations are immutable, and the library's functions may be called from any thread.
unsafe impl Send for Attention {}
unsafe impl Sync for Attention {}

/// What backward writes: the gradients of q, k and v, each of the shape of its tensor.
pub struct Gradients<'a, T: Element> {
    pub dq: &'a mut Tensor<T>,
    pub dk: &'a mut Tensor<T>,
    pub dv: &'a mut Tensor<T>,
}

fn pointer(tensor: &Option<ffi::Tensor>) -> *const ffi::Tensor {
    tensor.as_ref().map_or(ptr::null(), |tensor| tensor)
}

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
        self.launch(q, [k, v], o, lse, None)
    }

    /// Computes `o` from the queries of each request (batch, seqlen, heads, head_dim) and its pages: decoding, with one
    /// query a request. The spec has `--sequences-kv paged --page-size N`.
    pub fn forward_paged<T: Element>(
        &self,
        q: &Tensor<T>,
        pages: &Pages<T>,
        o: &mut Tensor<T>,
        lse: Option<&mut Tensor<f32>>,
    ) -> Result<()> {
        self.launch(q, [&pages.keys, &pages.values], o, lse, Some([&pages.table, &pages.lengths]))
    }

    fn launch<T: Element>(
        &self,
        q: &Tensor<T>,
        keys_and_values: [&Tensor<T>; 2],
        o: &Tensor<T>,
        lse: Option<&mut Tensor<f32>>,
        table_and_lengths: Option<[&Tensor<i32>; 2]>,
    ) -> Result<()> {
        let [k, v] = keys_and_values.map(Tensor::view);
        let (q, o, lse) = (q.view(), o.view(), lse.map(|tensor| tensor.view()));
        let [table, lengths] = [0, 1].map(|i| table_and_lengths.map(|tensors| tensors[i].view()));
        let arguments = ffi::ForwardArguments {
            size: size_of::<ffi::ForwardArguments>(),
            q: &q,
            k: &k,
            v: &v,
            o: &o,
            lse: pointer(&lse),
            seqused_k: pointer(&lengths),
            page_table: pointer(&table),
            ..Default::default()
        };
        // SAFETY: the tensors live during the call, and their memory until it is freed, which waits for the work.
        call(|error| unsafe { ffi::jit_forward(self.0, &arguments, ptr::null_mut(), error) })
    }

    /// Computes the gradients of q, k and v from that of `o`, and from what forward read and wrote.
    #[allow(clippy::too_many_arguments)]
    pub fn backward<T: Element>(
        &self,
        d_o: &Tensor<T>,
        q: &Tensor<T>,
        k: &Tensor<T>,
        v: &Tensor<T>,
        o: &Tensor<T>,
        lse: &Tensor<f32>,
        gradients: Gradients<T>,
    ) -> Result<()> {
        let [d_o, q, k, v, o] = [d_o, q, k, v, o].map(Tensor::view);
        let lse = lse.view();
        let [dq, dk, dv] = [gradients.dq, gradients.dk, gradients.dv].map(|tensor| tensor.view());
        let arguments = ffi::BackwardArguments {
            size: size_of::<ffi::BackwardArguments>(),
            d_o: &d_o,
            q: &q,
            k: &k,
            v: &v,
            o: &o,
            lse: &lse,
            dq: &dq,
            dk: &dk,
            dv: &dv,
        };
        // SAFETY: as in forward.
        call(|error| unsafe { ffi::jit_backward(self.0, &arguments, ptr::null_mut(), error) })
    }
}

impl Drop for Attention {
    fn drop(&mut self) {
        // SAFETY: it is freed once.
        unsafe { ffi::jit_operation_free(self.0) }
    }
}
