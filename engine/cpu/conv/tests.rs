//! Convolutions against sums over every product, in all layouts, and each kernel against the others.

use super::*;
use crate::simd::threads;
use crate::tests::{array, layouts, show};
use half::bf16;
use lucid_ir::backend::Array;
use lucid_ir::ops::conv::Spatial;

fn args(stride: &[usize], padding: &[usize], dilation: &[usize], groups: usize) -> Box<ConvArgs> {
    let [stride, padding, dilation] = [stride, padding, dilation].map(Spatial::from_slice);
    Box::new(ConvArgs { stride, padding, dilation, groups })
}

fn go(op: ConvOp, inputs: &[&CpuArray], shape: &[usize]) -> Vec<f64> {
    show(&conv(&op, inputs, &Meta::new(shape, DType::F64)).unwrap())
}

fn numbers(shape: &[usize], seed: usize) -> Vec<f64> {
    (0..shape.iter().product()).map(|i: usize| ((i * 31 + seed * 7) % 19) as f64 - 9.0).collect()
}

/// Every product that a convolution sums: (input element, weight element, output element).
fn terms(a: &ConvArgs, x: &[usize], w: &[usize], y: &[usize]) -> Vec<[usize; 3]> {
    let wide = |s: &[usize]| -> Vec<usize> {
        let fill = std::iter::repeat_n(1, 5 - s.len());
        s[..2].iter().copied().chain(fill).chain(s[2..].iter().copied()).collect()
    };
    let spread = |s: &[usize], none: usize| -> Vec<usize> {
        std::iter::repeat_n(none, 3 - s.len()).chain(s.iter().copied()).collect()
    };
    let (xs, ws, ys) = (wide(x), wide(w), wide(y));
    let (stride, padding, dilation) = (spread(&a.stride, 1), spread(&a.padding, 0), spread(&a.dilation, 1));
    let index = |mut i: usize, s: &[usize]| -> Vec<usize> {
        let mut at = vec![0; 5];
        for d in (0..5).rev() {
            at[d] = i % s[d];
            i /= s[d];
        }
        at
    };
    let mut out = Vec::new();
    for o in 0..ys.iter().product() {
        for k in 0..ws[1..].iter().product::<usize>() {
            let at = index(o, &ys);
            let wi = at[1] * ws[1..].iter().product::<usize>() + k;
            let tap = index(wi, &ws);
            let group = at[1] / (ws[0] / a.groups);
            let mut xi = at[0] * xs[1] + group * ws[1] + tap[1];
            let inside = (0..3).all(|d| {
                let p = (at[d + 2] * stride[d] + tap[d + 2] * dilation[d]).wrapping_sub(padding[d]);
                xi = xi.wrapping_mul(xs[d + 2]).wrapping_add(p);
                p < xs[d + 2]
            });
            if inside {
                out.push([xi, wi, o]);
            }
        }
    }
    out
}

fn check(a: Box<ConvArgs>, x: &[usize], w: &[usize], y: &[usize]) {
    let (xs, ws, g, bias) = (numbers(x, 1), numbers(w, 2), numbers(y, 3), numbers(&y[1..2], 4));
    let area: usize = y[2..].iter().product();
    let plane = |i: usize| bias[i / area % y[1]];
    let mut out: Vec<f64> = (0..g.len()).map(plane).collect();
    let (mut dx, mut dw) = (vec![0.0; xs.len()], vec![0.0; ws.len()]);
    for [xi, wi, oi] in terms(&a, x, w, y) {
        out[oi] += xs[xi] * ws[wi];
        dx[xi] += g[oi] * ws[wi];
        dw[wi] += g[oi] * xs[xi];
    }
    let plain: Vec<f64> = out.iter().enumerate().map(|(i, y)| y - plane(i)).collect();
    let bias = array(&y[1..2], &bias);
    for (xa, wa, ga) in
        layouts(x, &xs).into_iter().zip(layouts(w, &ws)).zip(layouts(y, &g)).map(|((xa, wa), ga)| (xa, wa, ga))
    {
        let forward = ConvOp::Forward { args: a.clone() };
        assert_eq!(go(forward.clone(), &[&xa, &wa, &bias], y), out, "{a:?}");
        assert_eq!(go(forward, &[&xa, &wa], y), plain, "{a:?}");
        let back = ConvOp::InputGradient { args: a.clone(), shape: x.into() };
        assert_eq!(go(back, &[&ga, &wa], x), dx, "input {a:?}");
        let back = ConvOp::WeightGradient { args: a.clone(), shape: w.into() };
        assert_eq!(go(back, &[&xa, &ga], w), dw, "weight {a:?}");
    }
}

#[test]
fn one_two_and_three_dimensions() {
    check(args(&[1], &[0], &[1], 1), &[2, 3, 8], &[4, 3, 3], &[2, 4, 6]);
    check(args(&[2], &[1], &[2], 2), &[2, 4, 9], &[6, 2, 3], &[2, 6, 4]);
    check(args(&[1, 1], &[0, 0], &[1, 1], 1), &[2, 3, 6, 7], &[4, 3, 3, 2], &[2, 4, 4, 6]);
    check(args(&[2, 1], &[1, 1], &[1, 1], 2), &[2, 4, 7, 6], &[6, 2, 3, 3], &[2, 6, 4, 6]);
    check(args(&[1, 1], &[2, 2], &[2, 2], 2), &[1, 2, 7, 7], &[2, 1, 3, 3], &[1, 2, 7, 7]);
    check(args(&[1, 2], &[3, 0], &[1, 1], 1), &[1, 2, 3, 5], &[3, 2, 2, 2], &[1, 3, 8, 2]);
    check(args(&[1, 1], &[4, 4], &[1, 1], 1), &[1, 2, 5, 5], &[3, 2, 3, 3], &[1, 3, 11, 11]);
    check(args(&[1, 1, 1], &[1, 0, 1], &[1, 1, 2], 1), &[2, 2, 4, 4, 5], &[3, 2, 2, 2, 2], &[2, 3, 5, 3, 5]);
}

#[test]
fn windows_of_one_element_and_single_channels() {
    check(args(&[1, 1], &[0, 0], &[1, 1], 1), &[3, 5, 4, 4], &[6, 5, 1, 1], &[3, 6, 4, 4]);
    check(args(&[1, 1], &[0, 0], &[1, 1], 2), &[3, 4, 4, 4], &[6, 2, 1, 1], &[3, 6, 4, 4]);
    check(args(&[2, 2], &[0, 0], &[1, 1], 1), &[3, 5, 4, 4], &[6, 5, 1, 1], &[3, 6, 2, 2]);
    check(args(&[1, 1], &[1, 1], &[1, 1], 5), &[2, 5, 6, 7], &[5, 1, 3, 3], &[2, 5, 6, 7]);
    check(args(&[2, 2], &[1, 1], &[1, 1], 3), &[2, 3, 6, 7], &[3, 1, 3, 3], &[2, 3, 3, 4]);
    check(args(&[1, 1], &[1, 1], &[1, 1], 3), &[2, 3, 6, 7], &[6, 1, 3, 3], &[2, 6, 6, 7]);
}

#[test]
fn few_places_and_large_weights() {
    for (a, x, w, y) in [
        (args(&[1, 1], &[1, 1], &[1, 1], 1), [5, 16, 2, 2], [32, 16, 3, 3], [5, 32, 2, 2]),
        (args(&[1, 1], &[1, 1], &[1, 1], 1), [3, 24, 1, 1], [20, 24, 3, 3], [3, 20, 1, 1]),
        (args(&[2, 2], &[1, 1], &[1, 1], 2), [3, 64, 5, 4], [64, 32, 3, 3], [3, 64, 3, 2]),
        (args(&[2, 2], &[0, 0], &[1, 1], 1), [4, 64, 3, 3], [64, 64, 1, 1], [4, 64, 2, 2]),
        (args(&[1, 1], &[0, 0], &[1, 1], 1), [4, 64, 1, 1], [64, 64, 1, 1], [4, 64, 1, 1]),
        (args(&[1, 1], &[1, 1], &[1, 1], 1), [1, 128, 2, 3], [256, 128, 3, 3], [1, 256, 2, 3]),
    ] {
        assert!(few_places::suits(&Sizes::new(&a, &x, &w, &y).unwrap()));
        check(a, &x, &w, &y);
    }
}

#[test]
fn blocks_and_threads() {
    threads::set_num_threads(3);
    // One large image, and many.
    check(args(&[1, 1], &[1, 1], &[1, 1], 1), &[1, 40, 32, 33], &[16, 40, 3, 3], &[1, 16, 32, 33]);
    check(args(&[1, 1], &[0, 0], &[1, 1], 1), &[20, 6, 12, 12], &[16, 6, 5, 5], &[20, 16, 8, 8]);
    check(args(&[3], &[7], &[5], 1), &[1, 3, 9000], &[5, 3, 40], &[1, 5, 2940]);
}

#[test]
fn halves_and_nothing() {
    let one = array(&[1, 1, 2, 2], &[bf16::ONE; 4]);
    let a = args(&[1, 1], &[0, 0], &[1, 1], 1);
    let op = ConvOp::Forward { args: a.clone() };
    let y = conv(&op, &[&one, &one], &Meta::new(&[1, 1, 1, 1], DType::BF16)).unwrap();
    assert_eq!((show::<bf16>(&y), y.dtype()), (vec![bf16::from_f32(4.0)], DType::BF16));
    let none = array::<f64>(&[0, 2, 4, 4], &[]);
    let w = array(&[3, 2, 2, 2], &[1f64; 24]);
    assert!(go(op.clone(), &[&none, &w], &[0, 3, 3, 3]).is_empty());
    let g = array::<f64>(&[0, 3, 3, 3], &[]);
    let back = ConvOp::WeightGradient { args: a.clone(), shape: [3, 2, 2, 2][..].into() };
    assert_eq!(go(back, &[&none, &g], &[3, 2, 2, 2]), [0.0; 24]);
    // No channels: the bias alone, and zero gradients.
    let (x, w) = (array::<f64>(&[1, 0, 2, 2], &[]), array::<f64>(&[1, 0, 2, 2], &[]));
    assert_eq!(go(op, &[&x, &w, &array(&[1], &[5f64])], &[1, 1, 1, 1]), [5.0]);
    let (g, w) = (array::<f64>(&[1, 0, 1, 1], &[]), array::<f64>(&[0, 1, 2, 2], &[]));
    let back = ConvOp::InputGradient { args: a, shape: [1, 1, 2, 2][..].into() };
    assert_eq!(go(back, &[&g, &w], &[1, 1, 2, 2]), [0.0; 4]);
}

/// The direct kernels and the columns, where both can do it, give the same whole numbers in either precision, whose tiles
/// differ.
fn both(a: Box<ConvArgs>, x: &[usize], w: &[usize], y: &[usize]) {
    agree::<f32>(&a, x, w, y);
    agree::<f64>(&a, x, w, y);
}

fn agree<T: Float + Compute + Tiles + PartialEq>(a: &ConvArgs, x: &[usize], w: &[usize], y: &[usize]) {
    let numbers = |shape: &[usize], seed| -> Vec<T> { numbers(shape, seed).into_iter().map(T::of).collect() };
    let s = Sizes::new(a, x, w, y).unwrap();
    let (xs, ws, g, bias) = (numbers(x, 1), numbers(w, 2), numbers(y, 3), numbers(&y[1..2], 4));
    let (mut one, mut other) = (vec![T::of(7.0); g.len()], vec![T::of(7.0); g.len()]);
    assert!(direct::forward(&s, &xs, &ws, Some(&bias), &mut one), "{a:?}");
    s.each_unit(&mut other, s.outputs * s.area, |unit, out, scratch, wide| {
        let bias = &bias[unit % s.groups * s.outputs..][..s.outputs];
        columns::forward(&s, s.input(&xs, unit), s.weight(&ws, unit), Some(bias), out, scratch, wide);
    });
    assert!(one == other, "forward {a:?}");
    let (mut one, mut other) = (vec![T::of(7.0); xs.len()], vec![T::of(7.0); xs.len()]);
    assert!(direct::input_gradient(&s, &g, &ws, &mut one), "{a:?}");
    s.each_unit(&mut other, s.inputs * s.space, |unit, out, scratch, wide| {
        columns::input_gradient(&s, s.output(&g, unit), s.weight(&ws, unit), out, scratch, wide);
    });
    assert!(one == other, "input {a:?}");
    let (mut one, mut other) = (vec![T::of(7.0); ws.len()], vec![T::of(7.0); ws.len()]);
    assert!(direct::weight_gradient(&s, &xs, &g, &mut one), "{a:?}");
    columns::weight_gradient(&s, &xs, &g, &mut other);
    assert!(one == other, "weight {a:?}");
}

#[test]
fn direct_kernels_agree_with_columns() {
    for n in [3, 1] {
        threads::set_num_threads(n);
        both(args(&[1, 1], &[2, 2], &[1, 1], 1), &[9, 1, 28, 28], &[6, 1, 5, 5], &[9, 6, 28, 28]);
        both(args(&[1, 1], &[0, 0], &[1, 1], 1), &[20, 6, 14, 14], &[16, 6, 5, 5], &[20, 16, 10, 10]);
        both(args(&[2, 3], &[1, 2], &[1, 2], 2), &[3, 8, 17, 19], &[10, 4, 3, 3], &[3, 10, 9, 7]);
        both(args(&[2, 2], &[3, 3], &[1, 1], 1), &[2, 3, 30, 30], &[20, 3, 7, 7], &[2, 20, 15, 15]);
        both(args(&[1, 1], &[1, 1], &[1, 1], 5), &[2, 5, 20, 21], &[5, 1, 3, 3], &[2, 5, 20, 21]);
        both(args(&[1, 1], &[4, 4], &[1, 1], 1), &[11, 2, 5, 5], &[3, 2, 3, 3], &[11, 3, 11, 11]);
        both(args(&[1, 2, 1], &[1, 0, 1], &[1, 1, 2], 1), &[2, 3, 6, 7, 8], &[5, 3, 2, 3, 2], &[2, 5, 7, 3, 8]);
        // One image, whose rows of results and gradients are shared out.
        both(args(&[1, 1], &[1, 1], &[1, 1], 1), &[1, 20, 24, 24], &[70, 20, 3, 3], &[1, 70, 24, 24]);
        // Windows that never overlap, and elements that no window meets.
        both(args(&[3, 3], &[1, 1], &[1, 1], 1), &[9, 4, 10, 10], &[10, 4, 2, 2], &[9, 10, 4, 4]);
        both(args(&[4, 4], &[0, 0], &[1, 1], 1), &[2, 3, 19, 18], &[24, 3, 4, 4], &[2, 24, 4, 4]);
    }
}

#[test]
fn reach_far_beyond_the_input_takes_columns() {
    let a = args(&[1, 1], &[40_000, 40_000], &[40_000, 40_000], 1);
    let (x, w) = (array(&[1, 1, 2, 2], &[1f64, 2.0, 3.0, 4.0]), array(&[1, 1, 3, 3], &[1f64; 9]));
    let s = Sizes::new(&a, &[1, 1, 2, 2], &[1, 1, 3, 3], &[1, 1, 2, 2]).unwrap();
    assert!(!direct::forward(&s, &[0.0; 4], &[0.0; 9], None, &mut [0.0; 4]));
    assert_eq!(go(ConvOp::Forward { args: a.clone() }, &[&x, &w], &[1, 1, 2, 2]), [1.0, 2.0, 3.0, 4.0]);
    let back = ConvOp::InputGradient { args: a, shape: [1, 1, 2, 2][..].into() };
    assert_eq!(go(back, &[&x, &w], &[1, 1, 2, 2]), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn infinities_reach_only_the_taps_that_meet_them() {
    // The left column meets the left taps alone; every other gradient stays a number.
    for channels in [1, 8] {
        let x: Vec<f64> = (0..5 * 9).map(|i| if i % 9 == 0 { f64::INFINITY } else { 1.0 }).collect();
        let (x, g) = (array(&[1, 1, 5, 9], &x), array(&[1, channels, 3, 7], &vec![1f64; channels * 21]));
        let a = args(&[1, 1], &[0, 0], &[1, 1], 1);
        let back = ConvOp::WeightGradient { args: a, shape: [channels, 1, 3, 3][..].into() };
        let want: Vec<f64> = (0..channels * 9).map(|i| if i % 3 == 0 { f64::INFINITY } else { 21.0 }).collect();
        assert_eq!(go(back, &[&x, &g], &[channels, 1, 3, 3]), want);
    }
}
