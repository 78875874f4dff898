use super::*;
use crate::tests::many;

const FORMS: [Form; 7] = [Form::Q4_0, Form::Q8_0, Form::Q4K, Form::Q5K, Form::Q6K, Form::Affine4, Form::Affine8];

fn noise(n: usize, seed: u64) -> Vec<u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    };
    (0..n).map(next).collect()
}

/// Bytes of a matrix whose scales are ordinary numbers.
fn matrix(form: Form, rows: usize, columns: usize) -> Vec<u8> {
    let (elements, bytes) = form.block();
    let mut made: Vec<u8> = noise(rows * columns / elements * bytes, 3).iter().map(|&v| v as u8).collect();
    for (i, block) in made.chunks_exact_mut(bytes).enumerate() {
        let scale = f16::from_f32(0.01 + 0.001 * (i % 17) as f32).to_le_bytes();
        match form {
            Form::Q4_0 | Form::Q8_0 => block[..2].copy_from_slice(&scale),
            Form::Q4K | Form::Q5K => {
                block[..2].copy_from_slice(&scale);
                block[2..4].copy_from_slice(&scale);
            }
            Form::Q6K => block[208..].copy_from_slice(&scale),
            Form::Affine4 | Form::Affine8 => {}
        }
    }
    made
}

fn sides(row: usize, scales: &mut [f32], biases: &mut [f32]) {
    for (g, (s, b)) in scales.iter_mut().zip(biases).enumerate() {
        (*s, *b) = (0.01 * (1 + (row + g) % 5) as f32, 0.1 * ((row * 3 + g) % 7) as f32 - 0.3);
    }
}

/// The element of a row, as its format says it, in float64.
fn element(form: Form, row: &[u8], number: usize, k: usize) -> f64 {
    let groups = row.len() / form.block().1 * form.block().0 / GROUP;
    let (mut s, mut b) = (vec![0f32; groups], vec![0f32; groups]);
    sides(number, &mut s, &mut b);
    let (g, i) = (k / GROUP, k % GROUP);
    let at = (0..GROUP).find(|&p| place(form, p) == i).unwrap();
    let (scales, bias) = plain::scales(form, row, (&s, &b), g);
    let q = i32::from(plain::group(form, row, g)[at]) - form.offset();
    f64::from(scales[at / 16]) * f64::from(q) + f64::from(bias)
}

#[test]
fn every_way_gives_the_sum_over_elements_and_rounded_activations() {
    for form in FORMS {
        // Whole chunks of eight groups, and some groups more.
        for columns in [256usize, 32 * 19] {
            if !columns.is_multiple_of(form.block().0) || columns > many(usize::MAX, 256) {
                continue;
            }
            let rows = many(35, 2);
            let bytes = matrix(form, rows, columns);
            let affine = matches!(form, Form::Affine4 | Form::Affine8);
            let w = Packed { form, bytes: &bytes, rows, columns, sides: if affine { Some(&sides) } else { None } };
            for count in [1, 3, 21, 40].into_iter().take(many(4, 1)) {
                let mut x: Vec<f32> =
                    noise(count * columns, 5).iter().map(|&v| (v % 4001) as f32 / 1000.0 - 2.0).collect();
                x[..32].fill(0.0);
                x[40] = 100.0;
                // What rounding makes of them.
                let rounded: Vec<f64> = x
                    .chunks_exact(GROUP)
                    .flat_map(|x| {
                        let scale = x.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0;
                        let by = if scale > 0.0 { 1.0 / f64::from(scale) } else { 0.0 };
                        x.iter().map(move |&v| (f64::from(v) * by).round() * f64::from(scale)).collect::<Vec<_>>()
                    })
                    .collect();
                for way in Way::all() {
                    let mut y = vec![f32::NAN; count * rows];
                    product_by(way, &x, &w, &mut y);
                    for m in 0..count {
                        for r in 0..rows {
                            let row = &bytes[r * w.stride()..(r + 1) * w.stride()];
                            let terms = (0..columns).map(|k| element(form, row, r, k) * rounded[m * columns + k]);
                            let (want, size) = terms.fold((0.0, 0.0), |(s, a), t| (s + t, a + t.abs()));
                            let got = f64::from(y[m * rows + r]);
                            // A half that is rounded the other way moves the sum a little.
                            assert!(
                                (got - want).abs() < 1e-4 * size,
                                "{form:?} {way:?} {count} {columns}: {got} {want}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_not_finite_makes_no_number() {
    let bytes = matrix(Form::Q8_0, 3, 256);
    let w = Packed { form: Form::Q8_0, bytes: &bytes, rows: 3, columns: 256, sides: None };
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for way in Way::all() {
            // One such element, and a row of nothing else.
            for (count, others) in [(1, 77..78), (5, 77..78), (5, 0..256)] {
                let mut x = vec![1f32; count * 256];
                x[others].fill(odd);
                let mut y = vec![0f32; count * 3];
                product_by(way, &x, &w, &mut y);
                assert!(y[..3].iter().all(|v| v.is_nan()) && y[3..].iter().all(|v| v.is_finite()));
            }
        }
    }
}
