//! A step of decoding over a cache in pages, in bf16, checked against double precision.
use jit_attention::{Attention, Bf16, Context, Pages, Result, Tensor};

const DIM: usize = 64;
const HEADS: usize = 4; // of queries; one of keys
const PAGE_SIZE: usize = 16;
const PAGES: usize = 8;

fn random_values(count: usize, seed: &mut u32) -> Vec<Bf16> {
    let mut number = || {
        *seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
        Bf16::from((*seed >> 8) as f32 / (1 << 22) as f32 - 2.0)
    };
    (0..count).map(|_| number()).collect()
}

fn row(values: &[Bf16], index: usize) -> [f64; DIM] {
    std::array::from_fn(|i| f64::from(f32::from(values[index * DIM + i])))
}

fn exact(q: &[f64; DIM], keys: &[[f64; DIM]], values: &[[f64; DIM]]) -> [f64; DIM] {
    let score = |key: &[f64; DIM]| q.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() / (DIM as f64).sqrt();
    let weights: Vec<f64> = keys.iter().map(|key| score(key).exp()).collect();
    let sum: f64 = weights.iter().sum();
    std::array::from_fn(|i| weights.iter().zip(values).map(|(weight, row)| weight * row[i]).sum::<f64>() / sum)
}

fn main() -> Result<()> {
    let context = Context::new(None)?;
    let spec = "--head-dim 64 --gqa-ratio 4 --mask causal --sequences-kv paged --page-size 16";
    let attention = Attention::new(&context, spec)?;
    let table = [vec![5, 0, 2], vec![7]];
    let lengths = [41, 9];
    let mut seed = 7;
    let q = random_values(table.len() * HEADS * DIM, &mut seed);
    let [keys, values] = [(); 2].map(|_| random_values(PAGES * PAGE_SIZE * DIM, &mut seed));
    let cache = |values: &[Bf16]| Tensor::new(&context, &[PAGES as i64, PAGE_SIZE as i64, 1, DIM as i64], values);
    let one_token = |values: &[Bf16]| Tensor::new(&context, &[table.len() as i64, 1, HEADS as i64, DIM as i64], values);
    let pages = Pages::new(&context, cache(&keys)?, cache(&values)?, &table, &lengths)?;
    let mut o = one_token(&vec![Bf16::default(); q.len()])?;
    attention.forward_paged(&one_token(&q)?, &pages, &mut o, None)?;

    let o = o.values()?;
    let mut largest = 0.0;
    for (request, pages) in table.iter().enumerate() {
        let place = |key: usize| pages[key / PAGE_SIZE] as usize * PAGE_SIZE + key % PAGE_SIZE;
        let of =
            |values: &[Bf16]| (0..lengths[request] as usize).map(|key| row(values, place(key))).collect::<Vec<_>>();
        for head in request * HEADS..(request + 1) * HEADS {
            let expected = exact(&row(&q, head), &of(&keys), &of(&values));
            for (expected, found) in expected.iter().zip(row(&o, head)) {
                let error = (expected - found).abs();
                largest = if error <= largest { largest } else { error };
            }
        }
    }
    println!("largest error against double precision: {largest:.1e}");
    assert!(largest < 0.02);

    let beyond = Pages::new(&context, cache(&keys)?, cache(&values)?, &[vec![8]], &[1]);
    let refusal = beyond.err().expect("page 8 of 8 is refused").message;
    assert_eq!(refusal, "table: names page 8 in row 0; there are 8 pages");
    Ok(())
}
