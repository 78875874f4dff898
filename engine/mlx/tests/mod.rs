//! Tests of the backend by itself, against plain loops. Depends on the trait's methods and on nothing above them.

mod convs;
mod custom_kernel;
mod host_kernel;
mod lazies;
mod ops;
mod pools;
mod views;

use super::{GpuArray, GpuBackend};
use crate::DType;
use lucid_ir::backend::{Array, Backend};
use lucid_ir::ops::view::ViewOp;
use lucid_ir::Element;
use lucid_ir::Meta;

pub(super) type B = GpuBackend;

/// Tests that count evaluations or set limits exclude each other.
pub(super) static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

pub(super) fn bytes_of<T: Element + Bytes>(data: &[T]) -> Vec<u8> {
    data.iter().flat_map(|x| x.bytes()).collect()
}

pub(super) trait Bytes: Sized {
    fn bytes(&self) -> Vec<u8>;
    fn read(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! bytes {
    ($($t:ty),*) => {$(
        impl Bytes for $t {
            fn bytes(&self) -> Vec<u8> {
                self.to_ne_bytes().to_vec()
            }
            fn read(bytes: &[u8]) -> Vec<$t> {
                bytes.chunks_exact(size_of::<$t>()).map(|b| <$t>::from_ne_bytes(b.try_into().unwrap())).collect()
            }
        }
    )*};
}
bytes!(f32, i64, i32, u8, i8);

impl Bytes for bool {
    fn bytes(&self) -> Vec<u8> {
        vec![u8::from(*self)]
    }
    fn read(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().map(|&b| b != 0).collect()
    }
}

/// An array. What the test's thread records from now on is MLX's own, but for what asks for more.
pub(super) fn put<T: Element + Bytes>(data: &[T], shape: &[usize]) -> GpuArray {
    super::set_hosting(false);
    B::from_bytes(&bytes_of(data), &Meta::new(shape, T::DTYPE)).unwrap()
}

pub(super) fn get<T: Element + Bytes>(x: &GpuArray) -> Vec<T> {
    assert_eq!(x.dtype(), T::DTYPE);
    let mut values = None;
    B::with_bytes(x, &mut |bytes| values = Some(T::read(bytes))).unwrap();
    values.unwrap()
}

pub(super) fn meta(shape: &[usize]) -> Meta {
    Meta::new(shape, DType::F32)
}

pub(super) fn view(op: ViewOp, x: &GpuArray) -> GpuArray {
    let layout = op.layout(x.layout()).unwrap();
    B::view(&op, x, layout).unwrap()
}

pub(super) fn permute(x: &GpuArray, axes: &[usize]) -> GpuArray {
    view(ViewOp::Permute { axes: axes.into() }, x)
}

pub(super) fn reshape(x: &GpuArray, shape: &[usize]) -> GpuArray {
    view(ViewOp::Reshape { shape: shape.into() }, x)
}

/// Numbers that look random, with ties among them.
pub(super) fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2654435761).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state % 17) as f32 / 4.0 - 2.0
    };
    (0..n).map(|_| next()).collect()
}

pub(super) fn close(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        let near = (x - y).abs() <= 1e-4 * (1.0 + y.abs()) || (x.is_nan() && y.is_nan()) || x == y;
        assert!(near, "element {i}: {x} where {y} was expected\n{a:?}\n{b:?}");
    }
}
