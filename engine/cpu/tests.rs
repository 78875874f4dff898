//! Helpers of the CPU backend's unit tests.

use super::*;

/// How many of something a test looks at: fewer under Miri, which takes a thousand times as long.
pub const fn many(usual: usize, under_miri: usize) -> usize {
    if cfg!(miri) {
        under_miri
    } else {
        usual
    }
}

/// An array with these elements.
pub fn array<T: Element>(shape: &[usize], data: &[T]) -> CpuArray {
    let buffer = Buffer::from_slice(data).unwrap();
    CpuArray { buffer: Arc::new(buffer), layout: Layout::contiguous(shape), dtype: T::DTYPE, apart: None }
}

/// The elements in row-major order.
pub fn show<T: Element>(x: &CpuArray) -> Vec<T> {
    let x = copy::copy(x).unwrap();
    let guard = x.read::<T>();
    x.slice(&guard).to_vec()
}

/// The same elements in other layouts: as made, transposed in memory, and at an offset with gaps.
pub fn layouts<T: Element>(shape: &[usize], data: &[T]) -> Vec<CpuArray> {
    let plain = array(shape, data);
    let reversed: Vec<usize> = shape.iter().rev().copied().collect();
    let mut strides = Layout::contiguous(&reversed).strides;
    strides.reverse();
    let transposed = array(&reversed, &vec![T::default(); data.len()]).with_layout(Layout {
        shape: shape.into(),
        strides,
        offset: 0,
    });
    let wide = array(&[data.len() * 2 + 3], &vec![T::default(); data.len() * 2 + 3]);
    let strides = Layout::contiguous(shape).strides.iter().map(|s| s * 2).collect();
    let spread = wide.with_layout(Layout { shape: shape.into(), strides, offset: 3 });
    for x in [&transposed, &spread] {
        copy::assign(x, &plain, false).unwrap();
    }
    vec![plain, transposed, spread]
}

/// Numbers between -1.25 and 1.5.
pub fn numbers(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 37 + seed) % 23) as f64 / 8.0 - 1.25).collect()
}

/// Asserts that two lists differ by rounding only.
pub fn near(a: &[f64], b: &[f64]) {
    assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
}
