//! Gradients of causal attention in bf16, checked against double precision.
use jit_attention::{Attention, Bf16, Context, Gradients, Result, Tensor};

const SEQLEN: usize = 40;
const DIM: usize = 64;
const SCALE: f64 = 0.125;

type Rows = Vec<[f64; DIM]>;

fn random_values(seed: &mut u32) -> Vec<Bf16> {
    let mut number = || {
        *seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
        Bf16::from((*seed >> 8) as f32 / (1 << 22) as f32 - 2.0)
    };
    (0..SEQLEN * DIM).map(|_| number()).collect()
}

fn rows(values: &[Bf16]) -> Rows {
    values.chunks(DIM).map(|row| std::array::from_fn(|i| f64::from(f32::from(row[i])))).collect()
}

fn dot(a: &[f64; DIM], b: &[f64; DIM]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64; DIM], factor: f64, row: &[f64; DIM]) {
    to.iter_mut().zip(row).for_each(|(to, value)| *to += factor * value);
}

/// dq, dk and dv.
fn exact(q: &Rows, k: &Rows, v: &Rows, d_o: &Rows) -> [Rows; 3] {
    let [mut dq, mut dk, mut dv] = [(); 3].map(|_| vec![[0.0; DIM]; SEQLEN]);
    for i in 0..SEQLEN {
        let weights: Vec<f64> = (0..=i).map(|j| (SCALE * dot(&q[i], &k[j])).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let share = |j: usize| weights[j] / sum;
        let mean: f64 = (0..=i).map(|j| share(j) * dot(&d_o[i], &v[j])).sum();
        for j in 0..=i {
            let d_score = SCALE * share(j) * (dot(&d_o[i], &v[j]) - mean);
            add(&mut dq[i], d_score, &k[j]);
            add(&mut dk[j], d_score, &q[i]);
            add(&mut dv[j], share(j), &d_o[i]);
        }
    }
    [dq, dk, dv]
}

fn main() -> Result<()> {
    let context = Context::new(None)?;
    let attention = Attention::new(&context, "--head-dim 64 --mask causal")?;
    let shape = [1, SEQLEN as i64, 1, DIM as i64];
    let mut seed = 7;
    let values = [(); 4].map(|_| random_values(&mut seed));
    let tensor = |values: &[Bf16]| Tensor::new(&context, &shape, values);
    let empty = || tensor(&[Bf16::default(); SEQLEN * DIM]);
    let (q, k, v, d_o) = (tensor(&values[0])?, tensor(&values[1])?, tensor(&values[2])?, tensor(&values[3])?);
    let (mut o, mut dq, mut dk, mut dv) = (empty()?, empty()?, empty()?, empty()?);
    let mut lse = Tensor::new(&context, &[1, 1, SEQLEN as i64], &[0f32; SEQLEN])?;
    attention.forward(&q, &k, &v, &mut o, Some(&mut lse))?;
    let gradients = Gradients { dq: &mut dq, dk: &mut dk, dv: &mut dv };
    attention.backward(&d_o, &q, &k, &v, &o, &lse, gradients)?;

    let [q, k, v, d_o] = values.map(|values| rows(&values));
    for ((name, exact), found) in ["dq", "dk", "dv"].iter().zip(exact(&q, &k, &v, &d_o)).zip([dq, dk, dv]) {
        let found = rows(&found.values()?);
        let errors = exact.iter().flatten().zip(found.iter().flatten()).map(|(exact, found)| (exact - found).abs());
        let largest = errors.fold(0.0, |a, b| if b <= a { a } else { b });
        println!("largest error of {name} against double precision: {largest:.1e}");
        assert!(largest < 0.05);
    }
    Ok(())
}
