//! The reference: groups of elements, their scales and biases, and the sum over them.

use super::{half, Form, Row, GROUP};

/// Elements of group `g` of a row, counted from 0 on, in the order of the row or of `place`.
pub fn group(form: Form, row: &[u8], g: usize) -> [u8; GROUP] {
    let nibbles = |b: &[u8]| -> [u8; GROUP] { std::array::from_fn(|i| b[i % 16] >> (i / 16 * 4) & 15) };
    match form {
        Form::Q4_0 => nibbles(&row[g * 18 + 2..]),
        Form::Affine4 => nibbles(&row[g * 16..]),
        Form::Q8_0 => std::array::from_fn(|i| row[g * 34 + 2 + i] ^ 128),
        Form::Affine8 => std::array::from_fn(|i| row[g * 32 + i]),
        Form::Q4K => {
            let low = &row[g / 8 * 144 + 16 + g % 8 / 2 * 32..];
            std::array::from_fn(|i| low[i] >> (g % 2 * 4) & 15)
        }
        Form::Q5K => {
            let block = &row[g / 8 * 176..];
            let low = &block[48 + g % 8 / 2 * 32..];
            std::array::from_fn(|i| low[i] >> (g % 2 * 4) & 15 | (block[16 + i] >> (g % 8) & 1) << 4)
        }
        Form::Q6K => {
            let (block, part, j) = (&row[g / 8 * 210..], g % 8 / 4, g % 4);
            let low = &block[64 * part + 32 * (j % 2)..];
            let high = &block[128 + 32 * part..];
            std::array::from_fn(|i| low[i] >> (j / 2 * 4) & 15 | (high[i] >> (2 * j) & 3) << 4)
        }
    }
}

/// Scale and minimum `j` of 8 that are packed into 12 bytes.
pub fn six_bits(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, least) = match j < 4 {
        true => (packed[j] & 63, packed[j + 4] & 63),
        false => (packed[j + 4] & 15 | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4),
    };
    (scale.into(), least.into())
}

/// The scales of both halves of a group, and its bias.
pub fn scales(form: Form, row: &[u8], sides: (&[f32], &[f32]), g: usize) -> ([f32; 2], f32) {
    let both = |s: f32, bias: f32| ([s, s], bias);
    match form {
        Form::Q4_0 => both(half(row, g * 18), 0.0),
        Form::Q8_0 => both(half(row, g * 34), 0.0),
        Form::Affine4 | Form::Affine8 => both(sides.0[g], sides.1[g]),
        Form::Q4K | Form::Q5K => {
            let block = &row[g / 8 * form.block().1..];
            let (s, m) = six_bits(&block[4..16], g % 8);
            both(half(block, 0) * s, -half(block, 2) * m)
        }
        Form::Q6K => {
            let block = &row[g / 8 * 210..];
            let (d, at) = (half(block, 208), 192 + g % 8 * 2);
            ([d * f32::from(block[at] as i8), d * f32::from(block[at + 1] as i8)], 0.0)
        }
    }
}

/// Group `g` of the inner product of a row, its elements less `shift`, and activations whose lanes have the rest of the
/// form's offset.
pub fn part(form: Form, row: &[u8], sides: (&[f32], &[f32]), x: Row<'_>, g: usize, shift: i32) -> f32 {
    let u = group(form, row, g);
    let (scales, bias) = scales(form, row, sides, g);
    let q = &x.q[g * GROUP..(g + 1) * GROUP];
    let mut sums = [0i32; 2];
    for (h, sum) in sums.iter_mut().enumerate() {
        let u = &u[16 * h..16 * h + 16];
        let lanes = &x.lanes[g * 8 + 4 * h..g * 8 + 4 * h + 4];
        *sum = lanes.iter().sum::<i32>()
            + u.iter().zip(&q[16 * h..]).map(|(&u, &q)| (i32::from(u) - shift) * i32::from(q)).sum::<i32>();
    }
    x.scales[g] * (scales[0] * sums[0] as f32 + scales[1] * sums[1] as f32) + bias * x.sums[g]
}

pub fn dot(form: Form, row: &[u8], sides: (&[f32], &[f32]), x: Row<'_>) -> f32 {
    (0..x.scales.len()).map(|g| part(form, row, sides, x, g, 0)).sum()
}
