//! Causal attention in bf16, checked against double precision.
use jit_attention::{Attention, Bf16, Context, Result, Tensor};

const SEQLEN: usize = 100;
const DIM: usize = 64;

fn random_values(seed: &mut u32) -> Vec<Bf16> {
    let mut number = || {
        *seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
        Bf16::from((*seed >> 8) as f32 / (1 << 22) as f32 - 2.0)
    };
    (0..SEQLEN * DIM).map(|_| number()).collect()
}

fn exact(q: &[Bf16], k: &[Bf16], v: &[Bf16], query: usize, column: usize) -> f64 {
    let at = |values: &[Bf16], row: usize, i: usize| f64::from(f32::from(values[row * DIM + i]));
    let score = |key: usize| (0..DIM).map(|i| at(q, query, i) * at(k, key, i)).sum::<f64>() / (DIM as f64).sqrt();
    let weights: Vec<f64> = (0..=query).map(|key| score(key).exp()).collect();
    let sum: f64 = weights.iter().sum();
    (0..=query).map(|key| weights[key] * at(v, key, column)).sum::<f64>() / sum
}

fn main() -> Result<()> {
    let context = Context::new(None)?;
    let attention = Attention::new(&context, "--head-dim 64 --mask causal")?;
    let shape = [1, SEQLEN as i64, 1, DIM as i64];
    let mut seed = 7;
    let [q, k, v] = [(); 3].map(|_| random_values(&mut seed));
    let tensor = |values: &[Bf16]| Tensor::new(&context, &shape, values);
    let mut o = tensor(&vec![Bf16::default(); SEQLEN * DIM])?;
    attention.forward(&tensor(&q)?, &tensor(&k)?, &tensor(&v)?, &mut o, None)?;
    let error = |(i, value): (usize, Bf16)| (exact(&q, &k, &v, i / DIM, i % DIM) - f64::from(f32::from(value))).abs();
    let errors = o.values()?.into_iter().enumerate().step_by(7).map(error);
    let largest = errors.fold(0.0, |a, b| if b <= a { a } else { b });
    println!("largest error against double precision: {largest:.1e}");
    assert!(largest < 0.02);
    Ok(())
}
