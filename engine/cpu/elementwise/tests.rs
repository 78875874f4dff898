//! Element-wise loops against plain ones, over every layout and dtype.

use super::*;
use crate::dtype::Element;
use crate::shape::Layout;
use crate::tests::{array, layouts, show};

fn meta(shape: &[usize], dtype: DType) -> Meta {
    Meta { shape: shape.into(), dtype }
}

fn two<T: Element>(op: BinaryOp, a: &CpuArray, b: &CpuArray) -> Vec<T> {
    show::<T>(&binary(&op, a, b, &meta(a.shape(), T::DTYPE), false).unwrap())
}

fn one<T: Element>(op: UnaryOp, x: &CpuArray) -> Vec<T> {
    show::<T>(&unary(&op, x, false).unwrap())
}

/// Results as float64, for any dtype.
fn floats(y: CpuArray) -> Vec<f64> {
    show::<f64>(&cast(&y, DType::F64).unwrap())
}

#[test]
fn arithmetic_on_every_dtype_and_layout() {
    for &dtype in DType::ALL.iter().filter(|&&d| d != DType::Bool && !d.is_stored_only()) {
        let make = |v: &[u8]| layouts(&[2, 3], v).into_iter().map(|x| cast(&x, dtype).unwrap()).collect::<Vec<_>>();
        for (a, b) in make(&[9, 8, 7, 6, 5, 4]).iter().zip(make(&[1, 2, 3, 1, 2, 3]).iter().rev()) {
            let run = |op| floats(binary(&op, a, b, &meta(&[2, 3], dtype), false).unwrap());
            assert_eq!(run(BinaryOp::Add), [10.0, 10.0, 10.0, 7.0, 7.0, 7.0], "{dtype}");
            assert_eq!(run(BinaryOp::Sub), [8.0, 6.0, 4.0, 5.0, 3.0, 1.0], "{dtype}");
            assert_eq!(run(BinaryOp::Mul), [9.0, 16.0, 21.0, 6.0, 10.0, 12.0], "{dtype}");
            assert_eq!(floats(unary(&UnaryOp::Square, b, false).unwrap()), [1.0, 4.0, 9.0, 1.0, 4.0, 9.0]);
            if dtype.is_complex() {
                continue;
            }
            assert_eq!(run(BinaryOp::FloorDivide), [9.0, 4.0, 2.0, 6.0, 2.0, 1.0], "{dtype}");
            assert_eq!(run(BinaryOp::Remainder), [0.0, 0.0, 1.0, 0.0, 1.0, 1.0], "{dtype}");
            assert_eq!(run(BinaryOp::Fmod), [0.0, 0.0, 1.0, 0.0, 1.0, 1.0], "{dtype}");
            assert_eq!(run(BinaryOp::Maximum), [9.0, 8.0, 7.0, 6.0, 5.0, 4.0], "{dtype}");
            assert_eq!(run(BinaryOp::Minimum), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0], "{dtype}");
            let power = floats(binary(&BinaryOp::Pow, b, b, &meta(&[2, 3], dtype), false).unwrap());
            assert_eq!(power, [1.0, 4.0, 27.0, 1.0, 4.0, 27.0], "{dtype}");
        }
    }
}

#[test]
fn arithmetic_is_written_where_it_belongs_or_not_at_all() {
    let n = 3 * GRAIN + 5;
    let count = |from: usize| (0..n).map(|i| (from + i) as f32).collect::<Vec<_>>();
    let (a, b, out) = (array(&[n], &count(1)), array(&[n], &count(2)), array(&[n], &vec![0f32; n]));
    for op in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div] {
        let version = out.version();
        assert!(arithmetic_into(&op, &a, &b, &out).unwrap());
        assert_eq!(show::<f32>(&out), two::<f32>(op, &a, &b));
        assert_eq!(out.version(), version + 1);
    }
    // An operand twice is none that the result overlaps.
    assert!(arithmetic_into(&BinaryOp::Add, &a, &a, &out).unwrap());
    let before = show::<f32>(&out);
    let (short, wide) = (array(&[1], &[1f32]), array(&[n], &vec![0f64; n]));
    for (op, a, b, out) in [
        (BinaryOp::Add, &a, &b, &a),
        (BinaryOp::Add, &a, &b, &b),
        (BinaryOp::Add, &a, &short, &out),
        (BinaryOp::Add, &wide, &wide, &out),
        (BinaryOp::Pow, &a, &b, &out),
    ] {
        assert!(!arithmetic_into(&op, a, b, out).unwrap());
    }
    assert_eq!((show::<f32>(&a), show::<f32>(&b), show::<f32>(&out)), (count(1), count(2), before));
}

#[test]
fn integers_wrap_and_division_by_zero_is_an_error() {
    let x = array(&[3], &[i8::MIN, -7, 100]);
    assert_eq!(one::<i8>(UnaryOp::Neg, &x), [i8::MIN, 7, -100]);
    assert_eq!(one::<i8>(UnaryOp::Abs, &x), [i8::MIN, 7, 100]);
    assert_eq!(two::<i8>(BinaryOp::Add, &x, &x), [0, -14, -56]);
    let y = array(&[3], &[-1i8, 2, -3]);
    assert_eq!(two::<i8>(BinaryOp::FloorDivide, &x, &y), [i8::MIN, -4, -34]);
    assert_eq!(two::<i8>(BinaryOp::LeftShift, &x, &array(&[3], &[1i8, 1, 9])), [0, -14, 0]);
    assert_eq!(two::<i8>(BinaryOp::RightShift, &x, &array(&[3], &[7i8, 1, 9])), [-1, -4, 0]);
    assert_eq!(two::<i8>(BinaryOp::BitwiseAnd, &x, &y), [i8::MIN, 0, 100 & -3]);
    assert_eq!(one::<i8>(UnaryOp::BitwiseNot, &x), [127, 6, -101]);
    for op in [BinaryOp::FloorDivide, BinaryOp::Remainder, BinaryOp::Fmod] {
        let error = binary(&op, &x, &array(&[3], &[1i8, 0, 1]), &meta(&[3], DType::I8), false).unwrap_err();
        assert!(error.to_string().contains("ZeroDivisionError"));
    }
    let none = array::<i64>(&[0], &[]);
    assert_eq!(
        binary(&BinaryOp::Remainder, &none, &array(&[1], &[0i64]), &meta(&[0], DType::I64), false).unwrap().numel(),
        0
    );
}

#[test]
fn broadcasts_and_scalars() {
    let (column, row) = (array(&[3, 1], &[10f32, 20.0, 30.0]), array(&[2], &[1f32, 2.0]));
    let y = binary(&BinaryOp::Sub, &column, &row, &meta(&[3, 2], DType::F32), false).unwrap();
    assert_eq!(show::<f32>(&y), [9.0, 8.0, 19.0, 18.0, 29.0, 28.0]);
    let y = binary(&BinaryOp::Div, &array(&[], &[1f64]), &array(&[], &[4f64]), &meta(&[], DType::F64), false).unwrap();
    assert_eq!(show::<f64>(&y), [0.25]);
}

#[test]
fn special_elements() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = array(&[6], &[nan, inf, -inf, -0.0, 2.5, -1.5]);
    assert_eq!(one::<bool>(UnaryOp::IsNan, &x), [true, false, false, false, false, false]);
    assert_eq!(one::<bool>(UnaryOp::IsInf, &x), [false, true, true, false, false, false]);
    assert_eq!(one::<bool>(UnaryOp::IsFinite, &x), [false, false, false, true, true, true]);
    assert_eq!(one::<bool>(UnaryOp::LogicalNot, &x), [false, false, false, true, false, false]);
    assert_eq!(one::<f32>(UnaryOp::Round, &x)[3..], [-0.0, 2.0, -2.0]);
    assert_eq!(one::<f32>(UnaryOp::Sign, &x), [0.0, 1.0, -1.0, 0.0, 1.0, -1.0]);
    let relu = one::<f32>(UnaryOp::Relu, &x);
    assert!(relu[0].is_nan() && relu[1..] == [inf, 0.0, 0.0, 2.5, 0.0]);
    let zero = array(&[6], &[0f32; 6]);
    assert!(
        two::<f32>(BinaryOp::Maximum, &x, &zero)[0].is_nan() && two::<f32>(BinaryOp::Minimum, &zero, &x)[0].is_nan()
    );
    let same = two::<f32>(BinaryOp::LogAddExp, &x, &x);
    assert!(same[0].is_nan() && same[1] == inf && same[2] == -inf && (same[4] - 3.193_147).abs() < 1e-6);
}

#[test]
fn halves_and_complex() {
    let x = array(&[2], &[f16::from_f32(1.0), f16::from_f32(-2.0)]);
    assert_eq!(one::<f16>(UnaryOp::Exp, &x)[0], f16::from_f32(1f32.exp()));
    assert_eq!(two::<f16>(BinaryOp::Add, &x, &x)[1], f16::from_f32(-4.0));
    let z = array(&[1], &[Complex32::new(3.0, 4.0)]);
    assert_eq!(one::<f32>(UnaryOp::Abs, &z), [5.0]);
    assert_eq!(one::<Complex32>(UnaryOp::Conj, &z), [Complex32::new(3.0, -4.0)]);
    assert_eq!(two::<Complex32>(BinaryOp::Mul, &z, &z), [Complex32::new(-7.0, 24.0)]);
    assert_eq!(one::<Complex32>(UnaryOp::Sqrt, &z), [Complex32::new(2.0, 1.0)]);
    assert!(unary(&UnaryOp::Erf, &z, false).is_err());
}

#[test]
fn results_go_over_the_first_operand() {
    let n = 3000;
    let count = |from: usize| (from..from + n).map(|i| i as f32 * 0.25 - 100.0).collect::<Vec<_>>();
    let whole = array(&[2, n], &[count(0), count(n)].concat());
    let last = whole.with_layout(Layout { shape: [n].as_slice().into(), strides: [1].as_slice().into(), offset: n });
    let row = array(&[n], &count(7));
    let expected = two::<f32>(BinaryOp::Sub, &last, &row);
    let made = binary(&BinaryOp::Sub, &last, &row, &meta(&[n], DType::F32), true).unwrap();
    assert!(made.shares_storage(&whole));
    assert_eq!((show::<f32>(&last), &show::<f32>(&whole)[..n]), (expected, &count(0)[..]));
    let expected = one::<f32>(UnaryOp::Exp, &last);
    unary(&UnaryOp::Exp, &last, true).unwrap();
    assert_eq!(show::<f32>(&last), expected);
    // A number, and fewer bits than a kernel has.
    let halves = cast(&row, DType::F16).unwrap();
    let two = array(&[], &[f16::from_f32(2.0)]);
    binary(&BinaryOp::Mul, &halves, &two, &meta(&[n], DType::F16), true).unwrap();
    assert_eq!(show::<f16>(&halves)[..3], [-196.5, -196.0, -195.5].map(f16::from_f32));
    // Where there is an error nothing is written.
    let (seven, zeros) = (array(&[2], &[7i32, 8]), array(&[2], &[1i32, 0]));
    assert!(binary(&BinaryOp::FloorDivide, &seven, &zeros, &meta(&[2], DType::I32), true).is_err());
    assert_eq!(show::<i32>(&seven), [7, 8]);
}
