//! Convolutions and their gradients against plain loops.

use super::*;
use lucid_ir::ops::conv::{ConvArgs, ConvOp};

struct Case {
    x: [usize; 4],
    w: [usize; 4],
    args: ConvArgs,
}

fn case(
    x: [usize; 4],
    w: [usize; 4],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
) -> Case {
    let (stride, padding, dilation) =
        (stride.into_iter().collect(), padding.into_iter().collect(), dilation.into_iter().collect());
    Case { x, w, args: ConvArgs { stride, padding, dilation, groups } }
}

fn cases() -> Vec<Case> {
    vec![
        case([2, 1, 8, 8], [3, 1, 5, 5], [1, 1], [0, 0], [1, 1], 1),
        case([2, 3, 7, 6], [4, 3, 3, 3], [1, 1], [1, 1], [1, 1], 1),
        case([2, 3, 7, 6], [4, 3, 3, 3], [2, 1], [1, 0], [1, 1], 1),
        case([1, 2, 8, 9], [3, 2, 3, 2], [2, 3], [2, 1], [1, 1], 1),
        case([2, 2, 9, 9], [2, 2, 3, 3], [1, 2], [2, 2], [2, 2], 1),
        case([2, 4, 7, 6], [6, 2, 3, 3], [1, 1], [1, 1], [1, 1], 2),
        case([1, 4, 9, 9], [4, 1, 3, 3], [2, 2], [1, 1], [1, 1], 4),
        case([1, 4, 9, 8], [2, 2, 2, 3], [2, 3], [0, 1], [2, 1], 2),
        case([2, 3, 4, 4], [5, 3, 1, 1], [1, 1], [0, 0], [1, 1], 1),
        case([2, 2, 5, 5], [2, 2, 2, 2], [3, 3], [0, 0], [1, 1], 1),
        case([1, 2, 3, 3], [2, 2, 3, 3], [1, 1], [3, 4], [1, 1], 1),
    ]
}

impl Case {
    fn out(&self) -> [usize; 4] {
        let size = |i: usize| {
            let a = &self.args;
            (self.x[i + 2] + 2 * a.padding[i] - a.dilation[i] * (self.w[i + 2] - 1) - 1) / a.stride[i] + 1
        };
        [self.x[0], self.w[0], size(0), size(1)]
    }

    /// Calls `f` with the flat places of every product's factors: input, weight, output.
    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        let (o, a) = (self.out(), &self.args);
        let (per_out, per_in) = (self.w[0] / a.groups, self.w[1]);
        let at = |s: &[usize; 4], i: [usize; 4]| ((i[0] * s[1] + i[1]) * s[2] + i[2]) * s[3] + i[3];
        for n in 0..o[0] {
            for c in 0..o[1] {
                for (y, x) in (0..o[2]).flat_map(|y| (0..o[3]).map(move |x| (y, x))) {
                    for i in 0..per_in {
                        for (ky, kx) in (0..self.w[2]).flat_map(|y| (0..self.w[3]).map(move |x| (y, x))) {
                            let (sy, sx) = (y * a.stride[0] + ky * a.dilation[0], x * a.stride[1] + kx * a.dilation[1]);
                            let inside =
                                |s: usize, axis: usize| s >= a.padding[axis] && s - a.padding[axis] < self.x[axis + 2];
                            if inside(sy, 0) && inside(sx, 1) {
                                let channel = c / per_out * per_in + i;
                                let place = at(&self.x, [n, channel, sy - a.padding[0], sx - a.padding[1]]);
                                f(place, at(&self.w, [c, i, ky, kx]), at(&o, [n, c, y, x]));
                            }
                        }
                    }
                }
            }
        }
    }
}

fn len(shape: &[usize]) -> usize {
    shape.iter().product()
}

#[test]
fn forward_and_gradients_are_those_of_loops() {
    for (i, case) in cases().iter().enumerate() {
        let o = case.out();
        let (x, w, g, b) = (noise(len(&case.x), 1), noise(len(&case.w), 2), noise(len(&o), 3), noise(o[1], 4));
        let (mut y, mut dx, mut dw) = (vec![0.0; g.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
        case.each(|px, pw, py| {
            y[py] += x[px] * w[pw];
            dx[px] += g[py] * w[pw];
            dw[pw] += g[py] * x[px];
        });
        let plane = o[2] * o[3];
        let biased: Vec<f32> = y.iter().enumerate().map(|(i, v)| v + b[i / plane % o[1]]).collect();
        let (px, pw, pg, pb) = (put(&x, &case.x), put(&w, &case.w), put(&g, &o), put(&b, &[o[1]]));
        let args = Box::new(case.args.clone());
        let forward = ConvOp::Forward { args: args.clone() };
        // Twice: the second time the weight may be in another order.
        for _ in 0..2 {
            let made = B::conv(&forward, &[&px, &pw, &pb], &meta(&o)).unwrap();
            B::eval(&[&made, &pw], true).unwrap();
            close(&get(&made), &biased);
            close(&get(&B::conv(&forward, &[&px, &pw], &meta(&o)).unwrap()), &y);
            let op = ConvOp::InputGradient { args: args.clone(), shape: (&case.x[..]).into() };
            close(&get(&B::conv(&op, &[&pg, &pw], &meta(&case.x)).unwrap()), &dx);
            let op = ConvOp::WeightGradient { args: args.clone(), shape: (&case.w[..]).into() };
            close(&get(&B::conv(&op, &[&px, &pg], &meta(&case.w)).unwrap()), &dw);
            assert_eq!(get::<f32>(&pw), w, "case {i}");
        }
    }
}

#[test]
fn one_and_three_dimensions() {
    let args = |n: usize| {
        Box::new(ConvArgs {
            stride: (0..n).map(|_| 1).collect(),
            padding: (0..n).map(|_| 1).collect(),
            dilation: (0..n).map(|_| 1).collect(),
            groups: 1,
        })
    };
    let sum = |x: &GpuArray| get::<f32>(x).iter().sum::<f32>();
    let (x, w) = (put(&noise(2 * 3 * 5, 1), &[2, 3, 5]), put(&noise(4 * 3 * 3, 2), &[4, 3, 3]));
    let y = B::conv(&ConvOp::Forward { args: args(1) }, &[&x, &w], &meta(&[2, 4, 5])).unwrap();
    // <conv(x), 1> = <x, convᵀ(1)> = <w, weight gradient(1)>
    let ones = put(&[1f32; 40], &[2, 4, 5]);
    let dx = B::conv(
        &ConvOp::InputGradient { args: args(1), shape: (&[2, 3, 5][..]).into() },
        &[&ones, &w],
        &meta(&[2, 3, 5]),
    )
    .unwrap();
    let dot = |a: &GpuArray, b: &GpuArray| get::<f32>(a).iter().zip(get::<f32>(b)).map(|(a, b)| a * b).sum::<f32>();
    assert!((sum(&y) - dot(&x, &dx)).abs() < 1e-3);
    let shape3 = [1, 2, 3, 4, 3];
    let (x, w) = (put(&noise(72, 1), &shape3), put(&noise(3 * 2 * 27, 2), &[3, 2, 3, 3, 3]));
    let y = B::conv(&ConvOp::Forward { args: args(3) }, &[&x, &w], &meta(&[1, 3, 3, 4, 3])).unwrap();
    let ones = put(&[1f32; 108], &[1, 3, 3, 4, 3]);
    let op = ConvOp::WeightGradient { args: args(3), shape: (&[3, 2, 3, 3, 3][..]).into() };
    let dw = B::conv(&op, &[&x, &ones], &meta(&[3, 2, 3, 3, 3])).unwrap();
    assert!((sum(&y) - dot(&w, &dw)).abs() < 1e-2);
    let op = ConvOp::InputGradient { args: args(3), shape: (&shape3[..]).into() };
    let dx = B::conv(&op, &[&ones, &w], &meta(&shape3)).unwrap();
    assert!((sum(&y) - dot(&x, &dx)).abs() < 1e-2);
}

#[test]
fn empty_batches() {
    let args = Box::new(cases()[0].args.clone());
    let (x, w) = (put::<f32>(&[], &[0, 1, 8, 8]), put(&noise(75, 2), &[3, 1, 5, 5]));
    let y = B::conv(&ConvOp::Forward { args: args.clone() }, &[&x, &w], &meta(&[0, 3, 4, 4])).unwrap();
    assert!(get::<f32>(&y).is_empty());
    let op = ConvOp::WeightGradient { args, shape: (&[3, 1, 5, 5][..]).into() };
    assert_eq!(get::<f32>(&B::conv(&op, &[&x, &y], &meta(&[3, 1, 5, 5])).unwrap()), [0.0; 75]);
}
