//! A KV cache in pages.
use crate::{refused, Context, Element, Result, Tensor};

/// Keys and values (pages, page_size, heads_kv, head_dim), and which pages hold those of each request.
pub struct Pages<T: Element> {
    pub(crate) keys: Tensor<T>,
    pub(crate) values: Tensor<T>,
    pub(crate) table: Tensor<i32>,
    pub(crate) lengths: Tensor<i32>,
}

impl<T: Element> Pages<T> {
    /// `table[i]` lists the pages of request i in the order of its keys, `lengths[i]` is how many keys it has. Kernels read
    /// what the table names without a check, so it is checked here.
    pub fn new(
        context: &Context,
        keys: Tensor<T>,
        values: Tensor<T>,
        table: &[Vec<i32>],
        lengths: &[i32],
    ) -> Result<Pages<T>> {
        let &[pages, page_size, ..] = keys.shape() else {
            return Err(refused("keys", format!("has shape {:?}; pages have four dimensions", keys.shape())));
        };
        if values.shape().first() != Some(&pages) {
            return Err(refused("values", format!("has shape {:?}; keys have {pages} pages", values.shape())));
        }
        if table.len() != lengths.len() {
            return Err(refused("lengths", format!("has {} requests; the table has {}", lengths.len(), table.len())));
        }
        for (i, (row, &length)) in table.iter().zip(lengths).enumerate() {
            if let Some(page) = row.iter().find(|&&page| page < 0 || i64::from(page) >= pages) {
                return Err(refused("table", format!("names page {page} in row {i}; there are {pages} pages")));
            }
            let room = row.len() as i64 * page_size;
            if length < 0 || i64::from(length) > room {
                return Err(refused("lengths", format!("is {length} at {i}; its pages have room for {room} keys")));
            }
        }
        let width = table.iter().map(Vec::len).max().unwrap_or(0);
        let padded = |row: &Vec<i32>| row.iter().copied().chain(std::iter::repeat(0)).take(width).collect::<Vec<i32>>();
        let flat: Vec<i32> = table.iter().flat_map(padded).collect();
        let table = Tensor::new(context, &[table.len() as i64, width as i64], &flat)?;
        let lengths = Tensor::new(context, &[lengths.len() as i64], lengths)?;
        Ok(Pages { keys, values, table, lengths })
    }
}
