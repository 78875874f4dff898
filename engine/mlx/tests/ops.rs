//! Where MLX and PyTorch answer differently, and where MLX would answer garbage.

use super::*;
use crate::{Error, Scalar};
use lucid_ir::ops::binary::BinaryOp;
use lucid_ir::ops::contract::ContractOp;
use lucid_ir::ops::create::CreateOp;
use lucid_ir::ops::index::{IndexOp, ScatterMode};
use lucid_ir::ops::nn::NnOp;
use lucid_ir::ops::order::OrderOp;
use lucid_ir::ops::random::RandomOp;
use lucid_ir::ops::reduce::{ReduceOp, Reduction};
use lucid_ir::ops::sort::SortOp;
use lucid_ir::ops::unary::UnaryOp;
use lucid_ir::optim::step::{Adam, Sgd};
use lucid_ir::random::{threefry2x32, Key};
use smallvec::smallvec;

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn like(x: &GpuArray) -> Meta {
    Meta::new(&x.layout().shape, x.dtype())
}

fn unary(op: UnaryOp, x: &[f32]) -> Vec<f32> {
    let x = put(x, &[x.len()]);
    get(&B::unary(&op, &x, &like(&x)).unwrap())
}

fn binary<T: Element + Bytes>(op: BinaryOp, a: &[T], b: &[T]) -> Vec<T> {
    let (a, b) = (put(a, &[a.len()]), put(b, &[b.len()]));
    get(&B::binary(&op, &a, &b, &like(&a)).unwrap())
}

fn reduce(op: ReduceOp, x: &GpuArray, axis: usize, dtype: DType) -> GpuArray {
    let mut shape = x.layout().shape.clone();
    shape.remove(axis);
    B::reduce(&op, &Reduction { axes: smallvec![axis], keepdim: false }, x, &Meta { shape, dtype }).unwrap()
}

#[test]
fn extrema_see_nan_and_the_first_of_equals() {
    let x = put(&[1.0, 3.0, 3.0, NAN, 5.0, NAN, -INF, -INF, -INF, 2.0, INF, INF], &[4, 3]);
    assert_eq!(get::<i64>(&reduce(ReduceOp::ArgMax, &x, 1, DType::I64)), [1, 0, 0, 1]);
    assert_eq!(get::<i64>(&reduce(ReduceOp::ArgMin, &x, 1, DType::I64)), [0, 0, 0, 0]);
    close(&get(&reduce(ReduceOp::Max, &x, 1, DType::F32)), &[3.0, NAN, -INF, INF]);
    close(&get(&reduce(ReduceOp::Min, &x, 1, DType::F32)), &[1.0, NAN, -INF, 2.0]);
    let t = permute(&x, &[1, 0]);
    close(&get(&reduce(ReduceOp::Max, &t, 0, DType::F32)), &[3.0, NAN, -INF, INF]);
    let i = put(&[3i64, 7, 7, -1], &[4]);
    assert_eq!(get::<i64>(&reduce(ReduceOp::ArgMax, &i, 0, DType::I64)), [1]);
    close(&binary(BinaryOp::Maximum, &[NAN, 1.0, 2.0], &[0.0, NAN, 3.0]), &[NAN, NAN, 3.0]);
    close(&unary(UnaryOp::Relu, &[NAN, -1.0, 2.0]), &[NAN, 0.0, 2.0]);
    close(&unary(UnaryOp::Round, &[0.5, 1.5, 2.5, -0.5]), &[0.0, 2.0, 2.0, 0.0]);
    close(&unary(UnaryOp::Trunc, &[1.7, -1.7, NAN]), &[1.0, -1.0, NAN]);
    close(&unary(UnaryOp::Sign, &[-2.0, 0.0, 3.0]), &[-1.0, 0.0, 1.0]);
}

#[test]
fn special_functions() {
    close(
        &unary(UnaryOp::Erfc, &[0.0, 1.0, -1.0, 3.0, INF, -INF, NAN]),
        &[1.0, 0.1572992, 1.8427008, 2.2090497e-5, 0.0, 2.0, NAN],
    );
    let far = unary(UnaryOp::Erfc, &[5.0])[0];
    assert!((far / 1.5374598e-12 - 1.0).abs() < 1e-4, "{far}");
    close(&unary(UnaryOp::Erfinv, &[0.0, 0.5, -0.9, 1.0, -1.0, 1.5]), &[0.0, 0.47693628, -1.1630871, INF, -INF, NAN]);
    close(&unary(UnaryOp::Expm1, &[1e-6]), &[1e-6]);
    close(&unary(UnaryOp::Exp2, &[3.0, -1.0]), &[8.0, 0.5]);
    close(&unary(UnaryOp::Sigmoid, &[-100.0, 0.0, 100.0]), &[0.0, 0.5, 1.0]);
}

#[test]
fn sorting_is_stable_with_nan_last() {
    let sort = |x: &GpuArray, descending| {
        get::<i64>(
            &B::sort(&SortOp::ArgSort { axis: 0, descending }, &[x], &Meta::new(&x.layout().shape, DType::I64))
                .unwrap(),
        )
    };
    let x = put(&[2.0, NAN, 1.0, 2.0, 1.0, INF], &[6]);
    assert_eq!(sort(&x, false), [2, 4, 0, 3, 5, 1]);
    assert_eq!(sort(&x, true), [1, 5, 0, 3, 2, 4]);
    let b = put(&[true, false, true, false], &[4]);
    assert_eq!(sort(&b, true), [0, 2, 1, 3]);
    let many: Vec<f32> = (0..5000).map(|i| (i * 7919 % 13) as f32).collect();
    let order = sort(&put(&many, &[5000]), false);
    let mut expected: Vec<i64> = (0..5000).collect();
    expected.sort_by(|&a, &b| many[a as usize].total_cmp(&many[b as usize]));
    assert_eq!(order, expected);
}

#[test]
fn running_extrema_take_the_last_of_equals() {
    let scan = |x: &[f32]| {
        let x = put(x, &[x.len()]);
        let op = OrderOp::CumMax { axis: 0 };
        let made = B::order(&op, &x, &op.results(&[x.layout().shape[0]], DType::F32).unwrap()).unwrap();
        get::<i64>(&made[1])
    };
    assert_eq!(scan(&[1.0, 3.0, 2.0, 3.0, 0.0]), [0, 1, 1, 3, 3]);
    assert_eq!(scan(&[1.0, NAN, 2.0, NAN, 0.0]), [0, 1, 1, 3, 3]);
    assert_eq!(scan(&[-INF, -INF, 1.0]), [0, 1, 2]);
}

#[test]
fn integer_arithmetic() {
    assert_eq!(binary(BinaryOp::FloorDivide, &[7i64, -7, 7, -7, 6], &[2, 2, -2, -2, -3]), [3, -4, -4, 3, -2]);
    assert_eq!(binary(BinaryOp::Remainder, &[7i64, -7, 7, -7, 6], &[2, 2, -2, -2, -3]), [1, 1, -1, -1, 0]);
    assert_eq!(binary(BinaryOp::Fmod, &[7i64, -7, 7, -7, 6], &[2, 2, -2, -2, -3]), [1, -1, 1, -1, 0]);
    assert_eq!(binary(BinaryOp::FloorDivide, &[i32::MIN, 5], &[-1, -1]), [i32::MIN, -5]);
    assert_eq!(binary(BinaryOp::Remainder, &[i32::MIN, 5], &[-1, -1]), [0, 0]);
    assert_eq!(binary(BinaryOp::FloorDivide, &[i32::MIN, i32::MIN], &[3, 7]), [-715827883, -306783379]);
    assert_eq!(binary(BinaryOp::FloorDivide, &[200u8, 7], &[3, 2]), [66, 3]);
    assert_eq!(binary(BinaryOp::Pow, &[2i64, -1, 1, 3, 0], &[10, -3, -5, -1, 0]), [1024, -1, 1, 0, 1]);
    assert_eq!(binary(BinaryOp::LeftShift, &[1i32, 1, 1], &[3, 32, -1]), [8, 0, 0]);
    assert_eq!(binary(BinaryOp::RightShift, &[-8i32, -8, 8], &[1, 40, -1]), [-4, -1, 0]);
    assert_eq!(binary(BinaryOp::Add, &[true, true, false], &[true, false, false]), [true, true, false]);
    for op in [BinaryOp::FloorDivide, BinaryOp::Remainder, BinaryOp::Fmod] {
        let (a, b) = (put(&[1i64, 2], &[2]), put(&[1i64, 0], &[2]));
        assert!(B::binary(&op, &a, &b, &like(&a)).unwrap_err().to_string().contains("ZeroDivision"));
    }
    close(&binary(BinaryOp::Fmod, &[7.5, -7.5, 5.0, 1.0], &[2.0, 2.0, INF, 0.0]), &[1.5, -1.5, 5.0, NAN]);
    close(&binary(BinaryOp::Remainder, &[7.5, -7.5, 7.5, -7.5], &[2.0, 2.0, -2.0, -2.0]), &[1.5, 0.5, -0.5, -1.5]);
    close(&binary(BinaryOp::FloorDivide, &[1.0, -7.5, 1.0, -5.0], &[0.1, 2.0, 0.0, INF]), &[9.0, -4.0, INF, -1.0]);
}

#[test]
fn integer_products_wrap() {
    let (a, b) = (put(&[1i64, 2, 3, 4, 5, i64::MAX], &[2, 3]), put(&[1i64, 0, 0, 1, 2, 2], &[3, 2]));
    let y = B::contract(&ContractOp::MatMul { columns: [false; 2] }, &a, &b, &Meta::new(&[2, 2], DType::I64)).unwrap();
    assert_eq!(
        get::<i64>(&y),
        [7, 8, 4i64.wrapping_add(i64::MAX.wrapping_mul(2)), 5i64.wrapping_add(i64::MAX.wrapping_mul(2))]
    );
    let (a, b) = (put::<f32>(&[], &[2, 0]), put::<f32>(&[], &[0, 3]));
    assert_eq!(
        get::<f32>(&B::contract(&ContractOp::MatMul { columns: [false; 2] }, &a, &b, &meta(&[2, 3])).unwrap()),
        [0.0; 6]
    );
}

#[test]
fn indices_are_checked_before_use() {
    let x = put(&(0..12).map(|i| i as f32).collect::<Vec<_>>(), &[3, 4]);
    let index = |i: &[i64], shape: &[usize]| put(i, shape);
    let at = index(&[0, 3, 1, 1, 2, 0], &[3, 2]);
    let y = B::index(&IndexOp::Gather { axis: 1 }, &[&x, &at], &meta(&[3, 2])).unwrap();
    assert_eq!(get::<f32>(&y), [0.0, 3.0, 5.0, 5.0, 10.0, 8.0]);
    let y = B::index(&IndexOp::Gather { axis: 0 }, &[&x, &index(&[2, 1], &[1, 2])], &meta(&[1, 2])).unwrap();
    assert_eq!(get::<f32>(&y), [8.0, 5.0]);
    let bad = |op: IndexOp, i: &GpuArray, shape: &[usize]| {
        let e = B::index(&op, &[&x, i], &meta(shape)).unwrap_err();
        assert!(matches!(*e, Error::IndexOutOfRange { .. }), "{e}");
    };
    bad(IndexOp::Gather { axis: 1 }, &index(&[4], &[1, 1]), &[1, 1]);
    bad(IndexOp::Gather { axis: 1 }, &index(&[-1], &[1, 1]), &[1, 1]);
    bad(IndexOp::Index { axes: smallvec![0], strict: false }, &index(&[-4], &[1]), &[1, 4]);
    let sum = B::binary(&BinaryOp::Add, &index(&[1], &[1]), &index(&[2], &[1]), &Meta::new(&[1], DType::I64)).unwrap();
    bad(IndexOp::Index { axes: smallvec![0], strict: false }, &sum, &[1, 4]);
    let y = B::index(&IndexOp::Index { axes: smallvec![1], strict: false }, &[&x, &sum], &meta(&[3, 1])).unwrap();
    assert_eq!(get::<f32>(&y), [3.0, 7.0, 11.0]);
    let y =
        B::index(&IndexOp::Index { axes: smallvec![0], strict: false }, &[&x, &index(&[-1, 0], &[2])], &meta(&[2, 4]))
            .unwrap();
    assert_eq!(get::<f32>(&y), [8.0, 9.0, 10.0, 11.0, 0.0, 1.0, 2.0, 3.0]);
    // What argmax and argsort give is trusted: nothing is evaluated.
    let _alone = ALONE.lock();
    let at = B::sort(&SortOp::ArgSort { axis: 1, descending: false }, &[&x], &Meta::new(&[3, 4], DType::I64)).unwrap();
    let before = mlx_ffi::counters::thread();
    B::index(&IndexOp::Gather { axis: 1 }, &[&x, &at], &meta(&[3, 4])).unwrap();
    assert_eq!((mlx_ffi::counters::thread() - before).evaluations, 0);
}

#[test]
fn indexing_by_several_arrays() {
    let data: Vec<f32> = (0..120).map(|i| i as f32).collect();
    let x = put(&data, &[2, 3, 4, 5]);
    let (i, j) = (put(&[0i64, 2], &[2, 1]), put(&[1i64, 3, 0], &[3]));
    let at = |a: usize, b: usize, c: usize, d: usize| data[((a * 3 + b) * 4 + c) * 5 + d];
    // Neighbours: the result is (2, [2, 3], 5).
    let y = B::index(&IndexOp::Index { axes: smallvec![1, 2], strict: false }, &[&x, &i, &j], &meta(&[2, 2, 3, 5]))
        .unwrap();
    let mut want = Vec::new();
    for a in 0..2 {
        for b in [0, 2] {
            for c in [1, 3, 0] {
                want.extend((0..5).map(|d| at(a, b, c, d)));
            }
        }
    }
    assert_eq!(get::<f32>(&y), want);
    // Apart: in front, ([2, 3], 3, 5).
    let k = put(&[0i64, 1], &[2, 1]);
    let y = B::index(&IndexOp::Index { axes: smallvec![0, 2], strict: false }, &[&x, &k, &j], &meta(&[2, 3, 3, 5]))
        .unwrap();
    let mut want = Vec::new();
    for a in [0, 1] {
        for c in [1, 3, 0] {
            for b in 0..3 {
                want.extend((0..5).map(|d| at(a, b, c, d)));
            }
        }
    }
    assert_eq!(get::<f32>(&y), want);
    // Writing what was read changes nothing; adding it doubles.
    let read = B::index(&IndexOp::Index { axes: smallvec![1, 2], strict: false }, &[&x, &i, &j], &meta(&[2, 2, 3, 5]))
        .unwrap();
    let put_op = |accumulate| IndexOp::IndexPut { axes: smallvec![1, 2], accumulate, strict: false };
    let same = B::index(&put_op(false), &[&x, &read, &i, &j], &like(&x)).unwrap();
    assert_eq!(get::<f32>(&same), data);
    let twice = get::<f32>(&B::index(&put_op(true), &[&x, &read, &i, &j], &like(&x)).unwrap());
    assert_eq!((twice[5], twice[0], twice[40 + 15]), (10.0, 0.0, 110.0));
}

#[test]
fn scatters() {
    let x = put(&[0f32; 12], &[3, 4]);
    let (at, src) = (put(&[1i64, 1, 3, 0], &[2, 2]), put(&[1f32, 2.0, 3.0, 4.0], &[2, 2]));
    let run = |mode| get::<f32>(&B::index(&IndexOp::Scatter { axis: 1, mode }, &[&x, &at, &src], &like(&x)).unwrap());
    assert_eq!(run(ScatterMode::Add), [0.0, 3.0, 0.0, 0.0, 4.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(run(ScatterMode::Set)[4..], [4.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0]);
    let layout = crate::shape::Layout { shape: smallvec![3, 2], strides: smallvec![1, 2], offset: 1 };
    let g = put(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]);
    let op = IndexOp::StridedAdd { layout: Box::new(layout), shape: smallvec![7] };
    assert_eq!(get::<f32>(&B::index(&op, &[&g], &meta(&[7])).unwrap()), [0.0, 1.0, 3.0, 7.0, 4.0, 6.0, 0.0]);
}

#[test]
fn joins_and_flips_of_permuted_values() {
    let x = put(&noise(12, 1), &[3, 4]);
    let t = permute(&put(&noise(12, 2), &[4, 3]), &[1, 0]);
    let y = B::index(&IndexOp::Concat { axis: 1 }, &[&x, &t, &put::<f32>(&[], &[3, 0])], &meta(&[3, 8])).unwrap();
    let (a, b, y) = (get::<f32>(&x), get::<f32>(&t), get::<f32>(&y));
    for i in 0..3 {
        assert_eq!(y[8 * i..8 * i + 4], a[4 * i..4 * i + 4]);
        assert_eq!(y[8 * i + 4..8 * i + 8], b[4 * i..4 * i + 4]);
    }
    let f = get::<f32>(&B::index(&IndexOp::Flip { axes: smallvec![1] }, &[&t], &meta(&[3, 4])).unwrap());
    assert_eq!(f[..4], [b[3], b[2], b[1], b[0]]);
}

#[test]
fn element_wise_ops_carry_the_order_of_axes() {
    let nchw = |seed| permute(&put(&noise(48, seed), &[2, 2, 4, 3]), &[0, 3, 1, 2]);
    let (x, y) = (nchw(1), nchw(2));
    let bias = put(&noise(3, 3), &[1, 3, 1, 1]);
    let before = mlx_ffi::counters::thread();
    let sum = B::binary(&BinaryOp::Add, &x, &y, &meta(&[2, 3, 2, 4])).unwrap();
    let all = B::binary(&BinaryOp::Mul, &sum, &bias, &meta(&[2, 3, 2, 4])).unwrap();
    let all = B::unary(&UnaryOp::Relu, &all, &meta(&[2, 3, 2, 4])).unwrap();
    // Two products and a relu with its zeros, and the bias brought to the last axis.
    assert_eq!((mlx_ffi::counters::thread() - before).ops, 5);
    let (x, y, b) = (get::<f32>(&x), get::<f32>(&y), get::<f32>(&bias));
    let want: Vec<f32> = (0..48).map(|i| ((x[i] + y[i]) * b[i / 8 % 3]).max(0.0)).collect();
    close(&get(&all), &want);
    let matrix = put(&noise(8, 4), &[2, 4]);
    let mixed = get::<f32>(&B::binary(&BinaryOp::Add, &all, &matrix, &meta(&[2, 3, 2, 4])).unwrap());
    let m = get::<f32>(&matrix);
    close(&mixed, &(0..48).map(|i| want[i] + m[i % 8]).collect::<Vec<_>>());
}

#[test]
fn random_numbers_follow_the_recipe() {
    let key = Key([0x1234, 0xabcd_ef01]);
    for n in [1usize, 2, 5, 8, 101] {
        let (h, mut words) = (n / 2, vec![0u32; n]);
        for i in 0..h {
            [words[i], words[n - h + i]] = threefry2x32(key.0, [i as u32, (n - h + i) as u32]);
        }
        if n % 2 == 1 {
            words[h] = threefry2x32(key.0, [h as u32, 0])[0];
        }
        let u = B::random(&RandomOp::Uniform { key }, &meta(&[n])).unwrap();
        let want: Vec<f32> = words.iter().map(|w| (w >> 8) as f32 / (1 << 24) as f32).collect();
        assert_eq!(get::<f32>(&u), want);
        let (low, high) = (-5i64, 1000i64);
        let i = B::random(&RandomOp::Integers { key, low, high }, &Meta::new(&[n], DType::I64)).unwrap();
        let want: Vec<i64> = (0..n)
            .map(|i| {
                let [a, b] = threefry2x32(key.0, [i as u32, (n + i) as u32]);
                low + ((u64::from(a) << 32 | u64::from(b)) % 1005) as i64
            })
            .collect();
        assert_eq!(get::<i64>(&i), want);
    }
    let z = get::<f32>(&B::random(&RandomOp::Normal { key }, &meta(&[100, 100])).unwrap());
    let mean = z.iter().sum::<f32>() / 1e4;
    let var = z.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 1e4;
    assert!(mean.abs() < 0.05 && (var - 1.0).abs() < 0.05, "{mean} {var}");
}

#[test]
fn nothing_in_nothing_out() {
    let x = put::<f32>(&[], &[0, 3]);
    let relu = B::unary(&UnaryOp::Relu, &x, &meta(&[0, 3])).unwrap();
    assert!(get::<f32>(&relu).is_empty());
    assert_eq!(get::<f32>(&reduce(ReduceOp::Sum, &x, 0, DType::F32)), [0.0; 3]);
    assert_eq!(get::<f32>(&reduce(ReduceOp::Prod, &x, 0, DType::F32)), [1.0; 3]);
    assert!(get::<f32>(&reduce(ReduceOp::Max, &x, 1, DType::F32)).is_empty());
    for op in [NnOp::Softmax { axis: 1 }, NnOp::LogSoftmax { axis: 0 }] {
        assert!(get::<f32>(&B::nn(&op, &[&x], &meta(&[0, 3])).unwrap()).is_empty());
    }
    let w = put(&noise(6, 1), &[2, 3]);
    assert!(get::<f32>(&B::nn(&NnOp::Linear, &[&x, &w], &meta(&[0, 2])).unwrap()).is_empty());
    let sorted =
        B::sort(&SortOp::ArgSort { axis: 0, descending: true }, &[&x], &Meta::new(&[0, 3], DType::I64)).unwrap();
    assert!(get::<i64>(&sorted).is_empty());
    assert_eq!(B::nonzero(&x).unwrap().layout().shape.as_slice(), [2, 0]);
    let n = B::nonzero(&put(&[0f32, 1.0, -0.0, NAN], &[2, 2])).unwrap();
    assert_eq!(get::<i64>(&n), [0, 1, 1, 1]);
    let nothing = Meta::new(&[0], DType::I64);
    let op = CreateOp::Arange { start: Scalar::ZERO, step: Scalar::ONE };
    assert!(get::<i64>(&B::create(&op, &nothing).unwrap()).is_empty());
    let op = CreateOp::Arange { start: Scalar::Int(5), step: Scalar::Int(-2) };
    assert_eq!(get::<i64>(&B::create(&op, &Meta::new(&[3], DType::I64)).unwrap()), [5, 3, 1]);
    let big = Scalar::Int((1 << 53) + 1);
    let op = CreateOp::Arange { start: big, step: Scalar::ONE };
    assert_eq!(get::<i64>(&B::create(&op, &Meta::new(&[2], DType::I64)).unwrap()), [(1 << 53) + 1, (1 << 53) + 2]);
}

#[test]
fn linear_and_softmax() {
    let (x, w, b) = (put(&noise(6, 1), &[2, 3]), put(&noise(12, 2), &[4, 3]), put(&noise(4, 3), &[4]));
    let y = get::<f32>(&B::nn(&NnOp::Linear, &[&x, &w, &b], &meta(&[2, 4])).unwrap());
    let (xs, ws, bs) = (get::<f32>(&x), get::<f32>(&w), get::<f32>(&b));
    let want: Vec<f32> =
        (0..8).map(|i| bs[i % 4] + (0..3).map(|k| xs[i / 4 * 3 + k] * ws[i % 4 * 3 + k]).sum::<f32>()).collect();
    close(&y, &want);
    let turned = permute(&put(&get::<f32>(&permute(&w, &[1, 0])), &[3, 4]), &[1, 0]);
    close(&get(&B::nn(&NnOp::Linear, &[&x, &turned, &b], &meta(&[2, 4])).unwrap()), &want);
    let s = put(&[0.0, -INF, 1.0, -INF, -INF, -INF, 1.0, INF, 2.0], &[3, 3]);
    let soft = |op| get::<f32>(&B::nn(&op, &[&s], &meta(&[3, 3])).unwrap());
    close(&soft(NnOp::Softmax { axis: 1 })[..3], &[0.26894143, 0.0, 0.7310586]);
    assert!(soft(NnOp::Softmax { axis: 1 })[3..].iter().all(|x| x.is_nan() || *x == 0.0));
    let logs = soft(NnOp::LogSoftmax { axis: 1 });
    close(&logs[..3], &[-1.3132616, -INF, -0.31326166]);
    assert!(logs[3..6].iter().all(|x| x.is_nan()), "{logs:?}");
}

#[test]
#[allow(clippy::needless_range_loop)]
fn optimizer_steps_are_the_formulas() {
    let n = 6;
    let start: Vec<Vec<f32>> =
        (0..5).map(|i| noise(n, i + 1).iter().map(|x| if i >= 3 { x.abs() } else { *x }).collect()).collect();
    let arrays = || -> Vec<GpuArray> { start.iter().map(|v| put(v, &[2, 3])).collect() };
    for (decoupled, amsgrad, maximize, weight_decay) in
        [(false, false, false, 0.0), (true, true, false, 0.1), (false, false, true, 0.1)]
    {
        let (lr, beta1, beta2, eps, t) = (0.01, 0.9, 0.99, 1e-8, 3.0);
        let decoupled_weight_decay = decoupled;
        let step = Adam { lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, amsgrad, maximize, t }.into();
        let a = arrays();
        B::steps(&[(step, vec![a[..if amsgrad { 5 } else { 4 }].iter().collect()])]).unwrap();
        for i in 0..n {
            let [mut p, mut g, m, v, top] = [0, 1, 2, 3, 4].map(|k| f64::from(start[k][i]));
            g = if maximize { -g } else { g };
            if decoupled {
                p *= 1.0 - lr * weight_decay
            } else {
                g += weight_decay * p
            }
            let (m, v) = (0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g);
            let top = if amsgrad { top.max(v) } else { v };
            let bias = |b: f64| 1.0 - b.powi(3);
            p -= lr / bias(0.9) * m / (top.sqrt() / bias(0.99).sqrt() + eps);
            let got: Vec<f32> = a.iter().map(|x| get::<f32>(x)[i]).collect();
            close(&[got[0], got[2], got[3]], &[p as f32, m as f32, v as f32]);
            assert_eq!(got[1], start[1][i]);
        }
        assert_eq!((a[0].version(), a[1].version(), a[2].version()), (1, 0, 1));
    }
    for (nesterov, first, momentum) in [(false, true, 0.9), (true, false, 0.9), (false, false, 0.0)] {
        let step =
            Sgd { lr: 0.1, momentum, dampening: 0.0, weight_decay: 0.01, nesterov, maximize: false, first }.into();
        let a = arrays();
        B::steps(&[(step, vec![a[..if momentum == 0.0 { 2 } else { 3 }].iter().collect()])]).unwrap();
        for i in 0..n {
            let (p, b) = (start[0][i], start[2][i]);
            let g = start[1][i] + 0.01 * p;
            let b = if first || momentum == 0.0 { g } else { 0.9 * b + g };
            let g = if nesterov { g + 0.9 * b } else { b };
            close(&[get::<f32>(&a[0])[i]], &[p - 0.1 * g]);
        }
    }
}
