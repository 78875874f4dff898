//! Transforms against their definition, for every layout and length.

use crate::{complex_to_complex, complex_to_real, real_to_complex, Source};
use num_complex::Complex64;

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
        complex_to_real(source, &mut back, n, 1.0 / n as f64, &serial).unwrap();
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
            }
        }
    }
}
