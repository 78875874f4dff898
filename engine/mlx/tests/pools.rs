//! Pools and their gradients against plain loops, in both orders of axes.

use super::*;
use crate::lower::set_lowering;
use lucid_ir::ops::conv::{ConvArgs, ConvOp};
use lucid_ir::ops::pool::{PoolArgs, PoolOp};
use lucid_ir::ops::unary::UnaryOp;

pub(super) fn pool_args(
    x: &[usize; 4],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil: bool,
) -> PoolArgs {
    let count = |i: usize| {
        let room = x[i + 2] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
        let n = if ceil { room.div_ceil(stride[i]) } else { room / stride[i] } + 1;
        if ceil && (n - 1) * stride[i] >= x[i + 2] + padding[i] {
            n - 1
        } else {
            n
        }
    };
    PoolArgs {
        kernel: kernel.into_iter().collect(),
        stride: stride.into_iter().collect(),
        padding: padding.into_iter().collect(),
        dilation: dilation.into_iter().collect(),
        output: [count(0), count(1)].into_iter().collect(),
        count_include_pad: true,
        divisor: None,
    }
}

fn cases() -> Vec<([usize; 4], PoolArgs)> {
    let one = |x: [usize; 4], k, s, p, d, c| (x, pool_args(&x, k, s, p, d, c));
    vec![
        one([2, 3, 6, 6], [2, 2], [2, 2], [0, 0], [1, 1], false),
        one([2, 3, 7, 6], [2, 2], [2, 2], [0, 0], [1, 1], false),
        one([2, 3, 9, 6], [3, 2], [3, 2], [0, 0], [1, 1], false),
        one([2, 3, 7, 6], [3, 3], [2, 2], [1, 1], [1, 1], false),
        one([1, 2, 7, 7], [2, 3], [2, 1], [0, 0], [1, 2], false),
        one([1, 2, 7, 7], [2, 2], [2, 2], [0, 0], [1, 1], true),
        one([1, 2, 6, 7], [3, 3], [2, 2], [1, 1], [1, 1], true),
        one([1, 1, 5, 5], [3, 3], [1, 1], [0, 0], [1, 1], false),
        one([1, 1, 4, 4], [1, 1], [2, 2], [0, 0], [1, 1], false),
        one([8, 4, 64, 32], [2, 2], [2, 2], [0, 0], [1, 1], false),
    ]
}

/// For every window: its plane, and the places in the plane that it covers.
fn windows(x: &[usize; 4], a: &PoolArgs) -> Vec<(usize, Vec<usize>)> {
    let mut all = Vec::new();
    for plane in 0..x[0] * x[1] {
        for (oy, ox) in (0..a.output[0]).flat_map(|y| (0..a.output[1]).map(move |x| (y, x))) {
            let mut places = Vec::new();
            for (ky, kx) in (0..a.kernel[0]).flat_map(|y| (0..a.kernel[1]).map(move |x| (y, x))) {
                let at = |o: usize, k: usize, i: usize| {
                    (o * a.stride[i] + k * a.dilation[i]).checked_sub(a.padding[i]).filter(|&p| p < x[i + 2])
                };
                if let (Some(py), Some(px)) = (at(oy, ky, 0), at(ox, kx, 1)) {
                    places.push(py * x[3] + px);
                }
            }
            all.push((plane, places));
        }
    }
    all
}

/// The array as a convolution gives it: channels last physically.
fn channels_last(x: &GpuArray) -> GpuArray {
    let s = x.layout().shape.clone();
    let v = permute(x, &[0, 2, 3, 1]);
    let v = put(&get::<f32>(&v), &[s[0], s[2], s[3], s[1]]);
    permute(&v, &[0, 3, 1, 2])
}

#[test]
fn max_pools_are_those_of_loops() {
    for (i, (shape, args)) in cases().into_iter().enumerate() {
        let mut x = noise(shape.iter().product(), 7);
        if i % 2 == 1 {
            x[3] = f32::NAN;
            x[5] = f32::NEG_INFINITY;
        }
        let plane = shape[2] * shape[3];
        let windows = windows(&shape, &args);
        let g = noise(windows.len(), 8);
        let best: Vec<usize> = windows
            .iter()
            .map(|(p, places)| {
                let at = |&i: &usize| x[p * plane + i];
                let nan = places.iter().find(|i| at(i).is_nan());
                let most = places.iter().map(at).fold(f32::NEG_INFINITY, f32::max);
                *nan.or_else(|| places.iter().find(|i| at(i) == most)).unwrap()
            })
            .collect();
        let y: Vec<f32> = windows.iter().zip(&best).map(|((p, _), b)| x[p * plane + b]).collect();
        let mut dx = vec![0f32; x.len()];
        windows.iter().zip(&best).zip(&g).for_each(|(((p, _), b), g)| dx[p * plane + b] += g);
        let out = [shape[0], shape[1], args.output[0], args.output[1]];
        let args = Box::new(args);
        for last in [false, true] {
            let (mut px, mut pg) = (put(&x, &shape), put(&g, &out));
            if last {
                (px, pg) = (channels_last(&px), channels_last(&pg));
            }
            close(&get(&B::pool(&PoolOp::Max { args: args.clone() }, &[&px], &meta(&out)).unwrap()), &y);
            let op = PoolOp::MaxIndices { args: args.clone() };
            let at = get::<i64>(&B::pool(&op, &[&px], &Meta::new(&out, DType::I64)).unwrap());
            assert_eq!(at, best.iter().map(|&b| b as i64).collect::<Vec<_>>(), "case {i}");
            close(&get(&B::pool(&PoolOp::MaxScatter { args: args.clone() }, &[&px, &pg], &meta(&shape)).unwrap()), &dx);
            let at: Vec<i32> = at.iter().map(|&p| p as i32).collect();
            let at = put(&at, &out);
            close(&get(&B::pool(&PoolOp::Take, &[&px, &at], &meta(&out)).unwrap()), &y);
            let op = PoolOp::Put { shape: (&shape[..]).into() };
            close(&get(&B::pool(&op, &[&pg, &at], &meta(&shape)).unwrap()), &dx);
            let outside = put(&vec![plane as i32; at.numel()], &out);
            assert!(B::pool(&PoolOp::Take, &[&px, &outside], &meta(&out)).is_err());
            let source = put(&dx, &shape);
            let picked: Vec<f32> = windows.iter().zip(&best).map(|((p, _), b)| dx[p * plane + b]).collect();
            close(
                &get(&B::pool(&PoolOp::MaxPick { args: args.clone() }, &[&px, &source], &meta(&out)).unwrap()),
                &picked,
            );
        }
    }
}

#[test]
fn averages_are_those_of_loops() {
    for (shape, base) in cases() {
        if base.dilation.iter().any(|&d| d > 1) {
            continue;
        }
        for (include, divisor) in [(true, None), (false, None), (true, Some(3))] {
            let args = PoolArgs { count_include_pad: include, divisor, ..base.clone() };
            let x = noise(shape.iter().product(), 5);
            let plane = shape[2] * shape[3];
            let windows = windows(&shape, &args);
            let g = noise(windows.len(), 6);
            let count = |o: usize, i: usize| {
                let start = (o * args.stride[i]) as i64 - args.padding[i] as i64;
                (start + args.kernel[i] as i64).min((shape[i + 2] + args.padding[i]) as i64) - start
            };
            let share = |w: usize, inside: usize| {
                let (oy, ox) = (w / args.output[1] % args.output[0], w % args.output[1]);
                1.0 / divisor
                    .map_or(if include { (count(oy, 0) * count(ox, 1)) as f32 } else { inside as f32 }, |d| d as f32)
            };
            let mut dx = vec![0f32; x.len()];
            let mut y = Vec::new();
            for (w, (p, places)) in windows.iter().enumerate() {
                let share = share(w, places.len());
                y.push(places.iter().map(|i| x[p * plane + i]).sum::<f32>() * share);
                places.iter().for_each(|i| dx[p * plane + i] += g[w] * share);
            }
            let out = [shape[0], shape[1], args.output[0], args.output[1]];
            let args = Box::new(args);
            for last in [false, true] {
                let (mut px, mut pg) = (put(&x, &shape), put(&g, &out));
                if last {
                    (px, pg) = (channels_last(&px), channels_last(&pg));
                }
                close(&get(&B::pool(&PoolOp::Average { args: args.clone() }, &[&px], &meta(&out)).unwrap()), &y);
                let op = PoolOp::AverageSpread { args: args.clone(), shape: (&shape[..]).into() };
                close(&get(&B::pool(&op, &[&pg], &meta(&shape)).unwrap()), &dx);
            }
        }
    }
}

#[test]
fn pooling_first_changes_nothing() {
    let _alone = ALONE.lock();
    let shape = [3, 2, 10, 8];
    let conv = ConvArgs {
        stride: [1, 1].into_iter().collect(),
        padding: [1, 1].into_iter().collect(),
        dilation: [1, 1].into_iter().collect(),
        groups: 1,
    };
    let args = Box::new(pool_args(&[3, 4, 10, 8], [2, 2], [2, 2], [0, 0], [1, 1], false));
    let run = |relu: bool, bias: bool, nan: bool| {
        let mut data = noise(3 * 2 * 80, 1);
        if nan {
            data[17] = f32::NAN;
        }
        let (x, w, b) = (put(&data, &shape), put(&noise(4 * 2 * 9, 2), &[4, 2, 3, 3]), put(&noise(4, 3), &[4]));
        let inputs = [&x, &w, &b];
        let out = meta(&[3, 4, 10, 8]);
        let mut y =
            B::conv(&ConvOp::Forward { args: Box::new(conv.clone()) }, &inputs[..if bias { 3 } else { 2 }], &out)
                .unwrap();
        if relu {
            y = B::unary(&UnaryOp::Relu, &y, &out).unwrap();
        }
        let p = B::pool(&PoolOp::Max { args: args.clone() }, &[&y], &meta(&[3, 4, 5, 4])).unwrap();
        let made = y.value().unwrap().ready().is_some();
        let g = put(&noise(3 * 4 * 20, 9), &[3, 4, 5, 4]);
        let back = B::pool(&PoolOp::MaxScatter { args: args.clone() }, &[&y, &g], &out).unwrap();
        (get::<f32>(&p), get::<f32>(&back), get::<f32>(&y), made)
    };
    for (relu, bias, nan) in [(true, true, false), (true, true, true), (false, true, false), (true, false, false)] {
        set_lowering(true);
        let lowered = run(relu, bias, nan);
        set_lowering(false);
        let plain = run(relu, bias, nan);
        set_lowering(true);
        let same = |a: &[f32], b: &[f32]| assert!(a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan()));
        same(&lowered.0, &plain.0);
        same(&lowered.1, &plain.1);
        same(&lowered.2, &plain.2);
        // What a convolution adds to, and what comes after it, is not made where the pool looks through it.
        assert_eq!((lowered.3, plain.3), (!bias, true));
    }
}
