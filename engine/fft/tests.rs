//! Transforms against their definition, for every layout and length.

use crate::{complex_to_complex, complex_to_real, real_to_complex, Source};
use num_complex::{Complex32, Complex64};

const LENGTHS: [usize; 14] = [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 64, 100, 101];

fn serial(tasks: usize, f: &(dyn Fn(usize) + Sync)) {
    (0..tasks).for_each(f);
}

/// Threads of the standard library, one for each task.
fn threads(tasks: usize, f: &(dyn Fn(usize) + Sync)) {
    std::thread::scope(|scope| {
        for i in 0..tasks {
            scope.spawn(move || f(i));
        }
    });
}

fn number(i: usize) -> Complex64 {
    Complex64::new((i as f64 * 0.7).sin(), (i as f64 * 1.3 + 0.2).cos())
}

/// The transform along one dimension, by its definition.
fn along(x: &[Complex64], shape: &[usize], axis: usize, sign: f64) -> Vec<Complex64> {
    let (n, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let at = |i: usize| {
        let (lane, k) = (i / (n * inner) * n * inner + i % inner, i / inner % n);
        (0..n)
            .map(|j| {
                x[lane + j * inner] * Complex64::cis(sign * std::f64::consts::TAU * ((j * k % n) as f64) / n as f64)
            })
            .sum()
    };
    (0..x.len()).map(at).collect()
}

fn close(got: &[Complex64], want: &[Complex64]) {
    let most = want.iter().fold(1.0, |m: f64, x| m.max(x.norm()));
    assert_eq!(got.len(), want.len());
    for (a, b) in got.iter().zip(want) {
        assert!((a - b).norm() < 1e-12 * most, "{a} is not {b}");
    }
}

#[test]
fn every_length_forward_and_back() {
    for n in LENGTHS {
        let x: Vec<Complex64> = (0..3 * n).map(number).collect();
        let source = Source { data: &x, offset: 0, shape: &[3, n], strides: &[n, 1] };
        for (inverse, sign) in [(false, -1.0), (true, 1.0)] {
            let mut out = vec![Complex64::default(); 3 * n];
            complex_to_complex(source, &mut out, 1, inverse, 0.5, &serial).unwrap();
            let want: Vec<_> = along(&x, &[3, n], 1, sign).iter().map(|x| x * 0.5).collect();
            close(&out, &want);
        }
        let real: Vec<f64> = x.iter().map(|x| x.re).collect();
        let source = Source { data: &real, offset: 0, shape: &[3, n], strides: &[n, 1] };
        let want = along(&real.iter().map(|&x| x.into()).collect::<Vec<_>>(), &[3, n], 1, -1.0);
        let mut full = vec![Complex64::default(); 3 * n];
        real_to_complex(source, &mut full, 1, false, 1.0, &serial).unwrap();
        close(&full, &want);
        let half = n / 2 + 1;
        let mut halves = vec![Complex64::default(); 3 * half];
        real_to_complex(source, &mut halves, 1, true, 1.0, &serial).unwrap();
        let mut back = vec![0.0; 3 * n];
        // What the symmetry says is 0 is not read.
        halves[0].im = f64::NAN;
        let source = Source { data: &halves, offset: 0, shape: &[3, half], strides: &[half, 1] };
        complex_to_real(source, &mut back, 1, n, 1.0 / n as f64, &serial).unwrap();
        assert!(back.iter().zip(&real).all(|(a, b)| (a - b).abs() < 1e-12), "{n}");
    }
}

#[test]
fn several_dimensions_and_strides() {
    for shape in [[3, 4, 5], [2, 16, 9], [5, 1, 8], [1, 33, 64], [40, 3, 2]] {
        let numel = shape.iter().product::<usize>();
        let x: Vec<Complex64> = (0..numel + 7).map(number).collect();
        // Row-major, and with the dimensions in the opposite order.
        for strides in [[shape[1] * shape[2], shape[2], 1], [1, shape[0], shape[0] * shape[1]]] {
            let source = Source { data: &x, offset: 7, shape: &shape, strides: &strides };
            let at = |i: usize| {
                let index = [i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]];
                x[7 + index.iter().zip(strides).map(|(i, s)| i * s).sum::<usize>()]
            };
            let dense: Vec<Complex64> = (0..numel).map(at).collect();
            for axes in 1..=3 {
                let want = (3 - axes..3).fold(dense.clone(), |x, axis| along(&x, &shape, axis, -1.0));
                for pool in [&serial as crate::Pool<'_>, &threads] {
                    let mut out = vec![Complex64::default(); numel];
                    complex_to_complex(source, &mut out, axes, false, 1.0, pool).unwrap();
                    close(&out, &want);
                }
                let real: Vec<f64> = x.iter().map(|x| x.re).collect();
                let wide: Vec<Complex64> = dense.iter().map(|x| x.re.into()).collect();
                let want = (3 - axes..3).fold(wide, |x, axis| along(&x, &shape, axis, -1.0));
                let source = Source { data: &real, offset: 7, shape: &shape, strides: &strides };
                let mut out = vec![Complex64::default(); numel];
                real_to_complex(source, &mut out, axes, false, 1.0, &threads).unwrap();
                close(&out, &want);
                let half = shape[2] / 2 + 1;
                let mut out = vec![Complex64::default(); numel / shape[2] * half];
                real_to_complex(source, &mut out, axes, true, 1.0, &serial).unwrap();
                let want: Vec<_> = want.chunks(shape[2]).flat_map(|row| row[..half].to_vec()).collect();
                close(&out, &want);
                // And back, from the same memory and from one in the opposite order.
                let numbers = shape[3 - axes..].iter().product::<usize>();
                let sizes = [shape[0], shape[1], half];
                for strides in [[sizes[1] * half, half, 1], [1, shape[0], shape[0] * shape[1]]] {
                    let mut spectrum = vec![Complex64::default(); out.len()];
                    for (i, &x) in out.iter().enumerate() {
                        let index = [i / (sizes[1] * half), i / half % sizes[1], i % half];
                        spectrum[index.iter().zip(strides).map(|(i, s)| i * s).sum::<usize>()] = x;
                    }
                    let source = Source { data: &spectrum, offset: 0, shape: &sizes, strides: &strides };
                    let mut back = vec![0.0; numel];
                    complex_to_real(source, &mut back, axes, shape[2], 1.0 / numbers as f64, &threads).unwrap();
                    assert!(back.iter().zip(&dense).all(|(a, b)| (a - b.re).abs() < 1e-12), "{shape:?} {axes}");
                }
            }
        }
    }
}

#[test]
fn batches_of_rows_are_the_rows() {
    // Lengths with and without a plan of their own, rows that fill batches and that are left over, with and without gaps.
    for (n, rows) in [50, 100, 150, 300, 500, 600, 1000, 2500, 5000].into_iter().flat_map(|n| [(n, 7), (n, 8), (n, 21)])
    {
        let half = n / 2 + 1;
        let numbers: Vec<f32> = (0..rows * n * 2).map(|i| number(i).re as f32 * (1 + i / (2 * n)) as f32).collect();
        for step in [1, 2] {
            let source = Source { data: &numbers, offset: 0, shape: &[rows, n], strides: &[n * step, step] };
            let mut together = vec![Complex32::default(); rows * half];
            real_to_complex(source, &mut together, 1, true, 0.5, &serial).unwrap();
            let mut all = vec![Complex32::default(); rows * n];
            real_to_complex(source, &mut all, 1, false, 0.5, &threads).unwrap();
            let mut back = vec![0.0f32; rows * n];
            let spectra = Source { data: &together, offset: 0, shape: &[rows, half], strides: &[half, 1] };
            complex_to_real(spectra, &mut back, 1, n, 2.0 / n as f64, &serial).unwrap();
            for i in 0..rows {
                let row: Vec<f64> = (0..n).map(|k| numbers[(i * n + k) * step].into()).collect();
                let mut alone = vec![Complex64::default(); half];
                let source = Source { data: &row, offset: 0, shape: &[1, n], strides: &[n, 1] };
                real_to_complex(source, &mut alone, 1, true, 0.5, &serial).unwrap();
                let size = 1e-6 * alone.iter().fold(0.0, |most: f64, x| most.max(x.norm()));
                for k in 0..n {
                    let want = if k < half { alone[k] } else { alone[n - k].conj() };
                    for got in
                        [Some(all[i * n + k]), together[i * half..][..half].get(k).copied()].into_iter().flatten()
                    {
                        let got = Complex64::new(got.re.into(), got.im.into());
                        assert!((got - want).norm() < size, "{n} numbers, row {i} of {rows}, {k}: {got}, not {want}");
                    }
                    let (got, most) = (f64::from(back[i * n + k]), 2.0 * (i + 1) as f64 * step as f64);
                    assert!((got - row[k]).abs() < 1e-6 * most, "{n} numbers, row {i} of {rows}, back {k}");
                }
            }
        }
    }
}

#[test]
fn rows_of_a_batch_do_not_meet() {
    let (n, rows) = (1000, 8);
    let mut numbers: Vec<f32> = (0..rows * n).map(|i| number(i).re as f32).collect();
    fn source(data: &[f32]) -> Source<'_, f32> {
        Source { data, offset: 0, shape: &[8, 1000], strides: &[1000, 1] }
    }
    let (mut before, mut after) = (vec![Complex32::default(); rows * 501], vec![Complex32::default(); rows * 501]);
    real_to_complex(source(&numbers), &mut before, 1, true, 1.0, &serial).unwrap();
    numbers[3 * n..4 * n].fill(f32::NAN);
    numbers[5 * n..6 * n].fill(f32::INFINITY);
    real_to_complex(source(&numbers), &mut after, 1, true, 1.0, &serial).unwrap();
    for i in (0..rows).filter(|i| ![3, 5].contains(i)) {
        assert_eq!(before[i * 501..(i + 1) * 501], after[i * 501..(i + 1) * 501]);
    }
    assert!(after[3 * 501..4 * 501].iter().all(|x| x.re.is_nan()));
}
