//! What LAPACK and BLAS decompose, multiplied out again, in each dtype: also flags, orders of values, and halves that are
//! not read, which hold garbage here.

use super::{Decompose, Eigen, Lapack, Packed};
use crate::tests::numbers;
use num_complex::{Complex32, Complex64, ComplexFloat};
use num_traits::{NumCast, ToPrimitive, Zero};
use std::ffi::c_int;

/// Dtypes, all as complex128.
trait Sample: Decompose + Eigen + Packed {
    const NEAR: f64;
    fn of(z: Complex64) -> Self;
}

macro_rules! samples {
    ($($t:ty, $near:expr, $of:expr);*) => {
        $(impl Sample for $t {
            const NEAR: f64 = $near;
            fn of(z: Complex64) -> $t {
                let of: fn(Complex64) -> $t = $of;
                of(z)
            }
        })*
    };
}
samples! {
    f32, 1e-4, |z| z.re as f32;
    f64, 1e-11, |z| z.re;
    Complex32, 1e-4, |z| Complex32::new(z.re as f32, z.im as f32);
    Complex64, 1e-11, |z| z
}

/// Sizes on both sides of what small matrices are factored by.
const SIZES: [usize; 4] = [1, 2, 5, 11];
const GARBAGE: Complex64 = Complex64::new(77.0, -77.0);

fn real<R: ToPrimitive>(x: R) -> f64 {
    x.to_f64().unwrap()
}

fn wide<T: ComplexFloat>(x: &[T]) -> Vec<Complex64> {
    x.iter().map(|x| Complex64::new(real(x.re()), real(x.im()))).collect()
}

/// The elements of a dtype, row by row.
fn of<T: Sample>(x: &[Complex64]) -> Vec<T> {
    x.iter().map(|&z| T::of(z)).collect()
}

/// `m` rows of `n` numbers that the dtype has.
fn matrix<T: Sample>(m: usize, n: usize, seed: usize) -> Vec<Complex64> {
    let parts = numbers(m * n, seed).into_iter().zip(numbers(m * n, seed + 5));
    // The numbers repeat themselves after 23; with this no two rows do.
    let parts = parts.enumerate().map(|(i, (re, im))| Complex64::new(re + (i * i % 7) as f64 / 16.0, im));
    wide(&parts.map(T::of).collect::<Vec<T>>())
}

fn product([m, n, k]: [usize; 3], a: &[Complex64], b: &[Complex64]) -> Vec<Complex64> {
    let at = |i: usize| (0..k).map(|l| a[i / n * k + l] * b[l * n + i % n]).sum();
    (0..m * n).map(at).collect()
}

/// The transpose of `m` rows of `n`: also columns as rows.
fn transposed(m: usize, n: usize, a: &[Complex64]) -> Vec<Complex64> {
    (0..m * n).map(|i| a[i % m * n + i / m]).collect()
}

fn adjoint(m: usize, n: usize, a: &[Complex64]) -> Vec<Complex64> {
    transposed(m, n, a).iter().map(Complex64::conj).collect()
}

fn diagonal<R: ToPrimitive + Copy>(values: &[R]) -> Vec<Complex64> {
    let n = values.len();
    let at = |i: usize| if i / n == i % n { real(values[i % n]) } else { 0.0 };
    (0..n * n).map(|i| at(i).into()).collect()
}

/// The same with one half's place taken by garbage, and with `whole` the diagonal's too.
fn half_read(n: usize, a: &[Complex64], upper: bool, whole: bool) -> Vec<Complex64> {
    let unread = |r: usize, c: usize| if r == c { whole } else { (c > r) != upper };
    a.iter().enumerate().map(|(i, &z)| if unread(i / n, i % n) { GARBAGE } else { z }).collect()
}

#[track_caller]
fn close<T: Sample>(what: &str, got: &[Complex64], want: &[Complex64]) {
    let size = want.iter().map(|z| z.norm()).fold(1.0, f64::max);
    let near = got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).norm() < T::NEAR * size);
    assert!(near, "{what} of {:?}: {got:?} is not {want:?}", T::DTYPE);
}

#[track_caller]
fn ordered<R: PartialOrd + std::fmt::Debug>(values: &[R]) {
    assert!(values.windows(2).all(|w| w[0] <= w[1]), "{values:?} do not ascend");
}

/// A matrix plus its adjoint, and what is larger on the diagonal.
fn hermitian<T: Sample>(n: usize, more: f64) -> Vec<Complex64> {
    let a = matrix::<T>(n, n, 3);
    let mut sum: Vec<_> = a.iter().zip(adjoint(n, n, &a)).map(|(a, b)| a + b).collect();
    (0..n).for_each(|i| sum[i * n + i] += more);
    sum
}

fn eigenvalues_of_hermitian_matrices<T: Sample>() {
    for n in SIZES {
        let a = hermitian::<T>(n, 0.0);
        let mut rows = of::<T>(&half_read(n, &a, false, false));
        let mut alone = rows.clone();
        let zero = <T::Real as NumCast>::from(0.0).unwrap();
        let (mut values, mut again) = (vec![zero; n], vec![zero; n]);
        assert_eq!(T::eigh(n, true, &mut rows, &mut values), 0);
        assert_eq!(T::eigh(n, false, &mut alone, &mut again), 0);
        ordered(&values);
        close::<T>("eigenvalues alone", &diagonal(&again), &diagonal(&values));
        let vectors = adjoint(n, n, &wide(&rows));
        let scaled = product([n, n, n], &vectors, &diagonal(&values));
        close::<T>("eigenvectors", &product([n, n, n], &a, &vectors), &scaled);
        close::<T>("a basis", &product([n, n, n], &wide(&rows), &vectors), &diagonal(&vec![1.0; n]));
    }
}

fn triangular_systems<T: Sample>() {
    for (n, k) in SIZES.into_iter().flat_map(|n| [(n, 1), (n, 4)]) {
        for (upper, unit) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut a: Vec<_> = matrix::<T>(n, n, 9).iter().map(|z| z * 0.25).collect();
            (0..n).for_each(|i| a[i * n + i] += 2.0);
            let given = of::<T>(&half_read(n, &a, upper, unit));
            let read = |r: usize, c: usize| if r == c { !unit } else { (c > r) == upper };
            for i in (0..n * n).filter(|i| !read(i / n, i % n)) {
                a[i] = if i / n == i % n { 1.0 } else { 0.0 }.into();
            }
            let x = matrix::<T>(n, k, 1);
            let mut columns = of::<T>(&transposed(n, k, &product([n, k, n], &a, &x)));
            T::triangular(n, k, upper, unit, &given, &mut columns);
            close::<T>(&format!("upper {upper}, unit {unit}"), &wide(&columns), &transposed(n, k, &x));
        }
    }
}

fn cholesky_factors<T: Sample>() {
    for n in SIZES {
        let a = hermitian::<T>(n, 8.0 * n as f64);
        let mut rows = of::<T>(&half_read(n, &a, false, false));
        assert_eq!(T::cholesky(n, &mut rows), 0);
        let mut lower = wide(&rows);
        (0..n * n).filter(|i| i % n > i / n).for_each(|i| lower[i] = Complex64::zero());
        close::<T>("a Cholesky factor", &product([n, n, n], &lower, &adjoint(n, n, &lower)), &a);
        let mut indefinite = a.clone();
        indefinite[n * n - 1] = (-1.0).into();
        assert_eq!(T::cholesky(n, &mut of::<T>(&half_read(n, &indefinite, false, false))), n as c_int);
    }
}

fn systems_and_inverses<T: Sample>() {
    for (n, k) in SIZES.into_iter().flat_map(|n| [(n, 1), (n, 4)]) {
        let (mut a, x) = (matrix::<T>(n, n, 2), matrix::<T>(n, k, 1));
        (0..n).for_each(|i| a[i * n + (i + 1) % n] += 3.0);
        let (mut factors, mut pivots) = (of::<T>(&a), vec![0; n]);
        assert_eq!(<T as Lapack>::lu(n, &mut factors, &mut pivots), 0);
        let mut columns = of::<T>(&transposed(n, k, &product([n, k, n], &a, &x)));
        T::solve(n, k, &factors, &pivots, &mut columns);
        close::<T>("a solution", &wide(&columns), &transposed(n, k, &x));
        <T as Lapack>::inverse(n, &mut factors, &pivots);
        close::<T>("an inverse", &product([n, n, n], &a, &wide(&factors)), &diagonal(&vec![1.0; n]));
        let mut singular = of::<T>(&vec![Complex64::zero(); n * n]);
        assert_eq!(<T as Lapack>::lu(n, &mut singular, &mut pivots), 1);
    }
}

fn symmetric_systems<T: Sample>() {
    for (n, of_hermitian) in SIZES.into_iter().flat_map(|n| [(n, false), (n, true)]) {
        let mut a = hermitian::<T>(n, 0.0);
        if !of_hermitian {
            (0..n * n).filter(|i| i % n > i / n).for_each(|i| a[i] = a[i % n * n + i / n]);
        }
        let x = matrix::<T>(n, 3, 1);
        let mut columns = of::<T>(&transposed(n, n, &half_read(n, &a, false, false)));
        let (mut pivots, mut right) = (vec![0; n], of::<T>(&transposed(n, 3, &product([n, 3, n], &a, &x))));
        assert_eq!(T::ldl(n, of_hermitian, &mut columns, &mut pivots), 0);
        assert!(T::ldl_solve(n, 3, of_hermitian, &columns, &pivots, &mut right));
        close::<T>("a solution", &wide(&right), &transposed(n, 3, &x));
    }
}

fn orthogonal_factors<T: Sample>() {
    for (m, n) in [(1, 1), (5, 3), (3, 5), (11, 11), (2, 12)] {
        let (k, a) = (m.min(n), matrix::<T>(m, n, 4));
        let mut columns = of::<T>(&transposed(m, n, &a));
        let mut reflected = columns.clone();
        let (mut r, mut tau) = (of::<T>(&vec![GARBAGE; k * n]), of::<T>(&vec![GARBAGE; k]));
        assert_eq!(T::qr(m, n, &mut columns, &mut r), 0);
        let (q, r) = (transposed(k, m, &wide(&columns)[..m * k]), transposed(n, k, &wide(&r)));
        close::<T>("Q R", &product([m, n, k], &q, &r), &a);
        close::<T>("a basis", &product([k, k, m], &adjoint(m, k, &q), &q), &diagonal(&vec![1.0; k]));
        assert!((0..k * n).filter(|i| i % n < i / n).all(|i| r[i].is_zero()));
        assert_eq!(T::reflections(m, n, &mut reflected, &mut tau), 0);
        let mut upper = transposed(n, m, &wide(&reflected));
        (0..m * n).filter(|i| i % n < i / n).for_each(|i| upper[i] = Complex64::zero());
        let squared = |x: &[Complex64]| product([n, n, m], &adjoint(m, n, x), x);
        close::<T>("R of reflections", &squared(&upper), &squared(&a));
    }
}

fn singular_values<T: Sample>() {
    for ((m, n), job) in [(1, 1), (5, 3), (3, 5), (11, 11)].into_iter().flat_map(|s| [(s, b'S'), (s, b'A')]) {
        let (k, a) = (m.min(n), matrix::<T>(m, n, 6));
        let (ku, kv) = if job == b'A' { (m, n) } else { (k, k) };
        let zero = <T::Real as NumCast>::from(0.0).unwrap();
        let (mut s, mut alone) = (vec![zero; k], vec![zero; k]);
        let (mut u, mut vt) = (of::<T>(&vec![GARBAGE; m * ku]), of::<T>(&vec![GARBAGE; kv * n]));
        assert_eq!(T::svd(job, m, n, &mut of::<T>(&a), &mut s, &mut u, &mut vt), 0);
        assert_eq!(T::svd(b'N', m, n, &mut of::<T>(&a), &mut alone, &mut [], &mut []), 0);
        close::<T>("singular values alone", &diagonal(&alone), &diagonal(&s));
        ordered(&s.iter().rev().collect::<Vec<_>>());
        let (u, vt) = (wide(&u), wide(&vt));
        let first: Vec<_> = u.chunks(ku).flat_map(|row| row[..k].to_vec()).collect();
        let scaled = product([m, k, k], &first, &diagonal(&s));
        close::<T>("U S V", &product([m, n, k], &scaled, &vt[..k * n]), &a);
        close::<T>("U", &product([ku, ku, m], &adjoint(m, ku, &u), &u), &diagonal(&vec![1.0; ku]));
        close::<T>("V", &product([kv, kv, n], &vt, &adjoint(kv, n, &vt)), &diagonal(&vec![1.0; kv]));
    }
}

fn eigenvalues_of_any_matrix<T: Sample>()
where
    num_complex::Complex<T::Real>: ComplexFloat,
    <num_complex::Complex<T::Real> as ComplexFloat>::Real: ToPrimitive,
{
    for n in SIZES {
        let a = matrix::<T>(n, n, 8);
        let zero = <T::Real as NumCast>::from(0.0).unwrap();
        let none = num_complex::Complex::new(zero, zero);
        let (mut values, mut vectors) = (vec![none; n], vec![none; n * n]);
        assert_eq!(T::eig(n, &mut of::<T>(&transposed(n, n, &a)), &mut values, Some(&mut vectors)), 0);
        let (values, vectors) = (wide(&values), transposed(n, n, &wide(&vectors)));
        let scaled: Vec<_> = vectors.iter().enumerate().map(|(i, v)| v * values[i % n]).collect();
        close::<T>("eigenvectors", &product([n, n, n], &a, &vectors), &scaled);
        let lengths: Vec<f64> = (0..n).map(|j| (0..n).map(|i| vectors[i * n + j].norm_sqr()).sum()).collect();
        close::<T>("lengths", &diagonal(&lengths), &diagonal(&vec![1.0; n]));
        let mut alone = vec![none; n];
        assert_eq!(T::eig(n, &mut of::<T>(&transposed(n, n, &a)), &mut alone, None), 0);
        let sum = |x: &[Complex64]| x.iter().sum::<Complex64>();
        close::<T>("a trace", &[sum(&wide(&alone))], &[sum(&values)]);
        close::<T>("a trace", &[sum(&values)], &[(0..n).map(|i| a[i * n + i]).sum()]);
    }
}

/// A test of each, in every dtype.
macro_rules! in_every_dtype {
    ($($name:ident)*) => {
        mod every_dtype {
            $(#[test]
            fn $name() {
                super::$name::<f32>();
                super::$name::<f64>();
                super::$name::<super::Complex32>();
                super::$name::<super::Complex64>();
            })*
        }
    };
}
in_every_dtype!(eigenvalues_of_hermitian_matrices triangular_systems cholesky_factors systems_and_inverses symmetric_systems
    orthogonal_factors singular_values eigenvalues_of_any_matrix);
