//! Kernels that the engine writes, compiled for this machine's processor, against the primitives they stand for.

use super::*;
use crate::custom_kernel::{host, Text};
use crate::fused_linear;
use crate::max_pool::{largest, route_back, Tiles};
use crate::optim::Formula;
use crate::row_kernels::{log_softmax_text, nll_back_text, nll_rows_text, nll_text, relu_back_text, softmax_back_text};
use lucid_ir::ops::binary::BinaryOp;
use lucid_ir::ops::loss::{LossOp, Reduction};
use lucid_ir::ops::nn::NnOp;
use lucid_ir::ops::pool::PoolOp;
use lucid_ir::ops::unary::UnaryOp;
use lucid_ir::optim::Step;
use std::collections::HashMap;

/// A step by its name with these options, and others that are harmless.
fn step(name: &str, options: &[(&str, f64)]) -> Step {
    let usual = |key: &str| match key {
        "lr" | "eta" => 0.1,
        "beta1" | "rho" | "alpha" => 0.9,
        "beta2" => 0.99,
        "eps" => 1e-3,
        "eta_minus" | "mu" => 0.5,
        "eta_plus" | "mu_next" => 1.25,
        "mu_product" => 0.25,
        "step_min" => 1e-3,
        "step_max" => 1.5,
        "t" => 3.0,
        _ => 0.0,
    };
    let option = |key: &'static str| {
        let given = options.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        Ok::<f64, Box<crate::Error>>(given.unwrap_or_else(|| usual(key)))
    };
    Step::parse(name, option).unwrap()
}

/// Steps whose formulas differ.
pub(super) fn steps() -> Vec<Step> {
    let decay = ("weight_decay", 0.1);
    vec![
        step("sgd", &[]),
        step("sgd", &[("momentum", 0.9), ("nesterov", 1.0), ("maximize", 1.0), decay]),
        step("sgd", &[("momentum", 0.9), ("first", 1.0)]),
        step("adam", &[decay]),
        step("adam", &[("amsgrad", 1.0), ("decoupled_weight_decay", 1.0), decay]),
        step("sparse_adam", &[]),
        step("adagrad", &[decay]),
        step("adadelta", &[]),
        step("adamax", &[]),
        step("nadam", &[]),
        step("radam", &[]),
        step("radam", &[("t", 400.0)]),
        step("rmsprop", &[("centered", 1.0), ("momentum", 0.9)]),
        step("rprop", &[]),
        step("asgd", &[]),
        step("lion", &[decay]),
    ]
}

#[test]
fn kernels_of_one_key_have_one_text() {
    let mut texts: HashMap<String, String> = HashMap::new();
    for (step, count) in steps().into_iter().flat_map(|s| [(s, 1), (s, 4)]) {
        let formula = Formula::of(&step, false).unwrap();
        let text = format!("{:?}", formula.text(count));
        let first = texts.entry(formula.key(count)).or_insert_with(|| text.clone());
        assert_eq!(*first, text, "{step:?}");
    }
    let sgd = |options: &[_]| Formula::of(&step("sgd", options), false).unwrap().key(1);
    assert_ne!(sgd(&[]), sgd(&[("momentum", 0.9), ("first", 1.0)]));
}

#[test]
fn steps_are_those_of_the_primitives() {
    // One of more than a group's threads, a single number, and a matrix.
    let shapes: [&[usize]; 3] = [&[300], &[], &[3, 5]];
    for step in steps() {
        let sizes: Vec<usize> = shapes.iter().map(|s| s.iter().product()).collect();
        let values = |j: usize, k: usize| -> Vec<f32> {
            // State is never negative, where it is a square.
            let v = noise(sizes[j], (10 * j + k) as u32);
            if k < 2 {
                v
            } else {
                v.iter().map(|x| x * x * 0.05 + 0.25).collect()
            }
        };
        let lists: Vec<Vec<GpuArray>> =
            (0..3).map(|j| (0..step.arity()).map(|k| put(&values(j, k), shapes[j])).collect()).collect();
        B::steps(&[(step, lists.iter().map(|l| l.iter().collect()).collect())]).unwrap();

        let ends: Vec<f32> = sizes
            .iter()
            .scan(0, |end, n| {
                Some({
                    *end += n;
                    *end as f32
                })
            })
            .collect();
        let places = (0..3).flat_map(|j| (0..step.arity()).map(move |k| (j, k)));
        let slots: Vec<Vec<f32>> = places.map(|(j, k)| values(j, k)).collect();
        let outputs: Vec<usize> = sizes.iter().flat_map(|&n| vec![n; step.arity() - 1]).collect();
        // The gradient, second in the list, is no output.
        let kept = || lists.iter().flat_map(|l| l.iter().enumerate().filter(|(k, _)| *k != 1).map(|(_, a)| a));
        for apart in [false, true] {
            let formula = Formula::of(&step, apart).unwrap();
            let constants = formula.constants.chunks(if apart { 1 } else { usize::MAX });
            let none: &[f32] = &[];
            let constants = constants.chain((!apart && formula.constants.is_empty()).then_some(none));
            let inputs: Vec<&[f32]> =
                std::iter::once(&ends[..]).chain(constants).chain(slots.iter().map(Vec::as_slice)).collect();
            let made = host::run(&formula.text(3), &[0], &inputs, &outputs, sizes.iter().sum());
            for (ours, plain) in made.iter().zip(kept()) {
                for (a, b) in ours.iter().zip(get::<f32>(plain)) {
                    assert!((a - b).abs() <= 2e-6 * b.abs().max(1.0), "{step:?}: {a} {b}");
                }
            }
        }
    }
}

#[test]
fn pools_are_those_of_the_primitives() {
    let (n, c, size, window) = (2, 3, [6, 4], [3, 2]);
    let mut x = noise(n * c * 24, 5);
    // Windows of NaNs only, with NaNs first and last, and of infinities.
    for (i, v) in x.iter_mut().enumerate() {
        match i % 41 {
            7 | 11 => *v = f32::NAN,
            13 => *v = f32::NEG_INFINITY,
            _ => {}
        }
    }
    let g: Vec<f32> = (1..=n * c * 4).map(|v| v as f32).collect();
    let tiles = Tiles { size, window, channels: c };
    let last = |x: &GpuArray| get::<f32>(&B::copy(&permute(x, &[0, 2, 3, 1])).unwrap());
    let image = put(&x, &[n, c, size[0], size[1]]);
    let out = put(&g, &[n, c, 2, 2]);
    let args = Box::new(super::pools::pool_args(&[n, c, 6, 4], window, window, [0, 0], [1, 1], false));
    let best = B::pool(&PoolOp::Max { args: args.clone() }, &[&image], &meta(&[n, c, 2, 2])).unwrap();
    let back = B::pool(&PoolOp::MaxScatter { args }, &[&image, &out], &meta(&[n, c, 6, 4])).unwrap();
    let same = |a: &[f32], b: &[f32]| {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan()), "{a:?} {b:?}");
    };
    let total = n * tiles.per_image();
    let numbers = tiles.numbers(n).map(|v| v as f32);
    let run = |text: &Text, x: &[f32], more: &[&[f32]], size| {
        let inputs = [&[x, &numbers[..]], more].concat();
        host::run(text, &[1], &inputs, &[size], total).remove(0)
    };
    let planar = |x: &GpuArray| get::<f32>(&B::copy(x).unwrap());
    let raw = last(&image);
    same(&run(&largest(false, false, false), &raw, &[], total), &last(&best));
    same(&run(&largest(false, false, true), &raw, &[], total), &planar(&best));
    let bias = [0.5, -1.0, 0.25];
    let relu = |v: f32| if v < 0.0 { 0.0 } else { v };
    let biased =
        |values: Vec<f32>| -> Vec<f32> { values.iter().zip(bias.iter().cycle()).map(|(v, b)| relu(v + b)).collect() };
    same(&run(&largest(true, true, false), &raw, &[&bias], total), &biased(last(&best)));
    same(&run(&route_back(false, false, false, false), &raw, &[&last(&out)], x.len()), &last(&back));
    same(&run(&route_back(false, false, true, false), &raw, &[&g], x.len()), &last(&back));
    // Through bias and relu: the pool of what they make, and then the relu's own gradient.
    let made = biased(raw.clone());
    let seen = permute(&put(&made, &[n, size[0], size[1], c]), &[0, 3, 1, 2]);
    let args = Box::new(super::pools::pool_args(&[n, c, 6, 4], window, window, [0, 0], [1, 1], false));
    let back = B::pool(&PoolOp::MaxScatter { args }, &[&seen, &out], &meta(&[n, c, 6, 4])).unwrap();
    let through = B::binary(&BinaryOp::ReluGradient, &back, &seen, &meta(&[n, c, 6, 4])).unwrap();
    for (how, want) in [(false, &back), (true, &through)] {
        same(&run(&route_back(false, false, false, how), &made, &[&last(&out)], x.len()), &last(want));
        same(&run(&route_back(true, true, false, how), &raw, &[&last(&out), &bias], x.len()), &last(want));
        same(&run(&route_back(true, true, true, how), &raw, &[&g, &bias], x.len()), &last(want));
    }
}

#[test]
fn rows_are_those_of_the_primitives() {
    let (n, c) = (6, 5);
    let mut x = noise(n * c, 7);
    (x[3], x[7], x[11]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    x[15..20].fill(f32::NEG_INFINITY);
    let g = noise(n * c, 8);
    let close = |text: &Text, inputs: &[&[f32]], whole: &[usize], want: &GpuArray, threads: usize| {
        let want = get::<f32>(want);
        let made = host::run(text, whole, inputs, &[want.len()], threads).remove(0);
        for (a, b) in made.iter().zip(&want) {
            assert!(a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 2e-6, "{text:?}: {made:?} {want:?}");
        }
    };
    let (all, shape) = (meta(&[n, c]), [n, c]);
    let d = [n as f32, c as f32];
    let logs = B::nn(&NnOp::LogSoftmax { axis: 1 }, &[&put(&x, &shape)], &all).unwrap();
    close(&log_softmax_text(), &[&x, &d], &[1], &logs, n);
    let y = noise(n * c, 9);
    for log in [false, true] {
        let op = NnOp::SoftmaxGradient { axis: 1, log };
        let back = B::nn(&op, &[&put(&g, &shape), &put(&y, &shape)], &all).unwrap();
        close(&softmax_back_text(log), &[&g, &y, &d], &[2], &back, n);
    }
    let back = B::binary(&BinaryOp::ReluGradient, &put(&g, &shape), &put(&x, &shape), &all).unwrap();
    close(&relu_back_text(), &[&g, &x, &[(n * c) as f32]], &[2], &back, n * c);

    let targets = [4i64, 0, 2, 1, 2, 3];
    let t: Vec<f32> = targets.iter().map(|&t| t as f32).collect();
    let target = put(&targets, &[n]);
    for ignore in [-100i64, 2] {
        let d = [n as f32, c as f32, ignore as f32, 1.0];
        for (reduction, shape) in [(Reduction::None, &[n][..]), (Reduction::Sum, &[]), (Reduction::Mean, &[])] {
            let op = LossOp::Nll { ignore, reduction };
            let want = B::loss(&op, &[&put(&y, &[n, c]), &target], &meta(shape)).unwrap();
            let text = match reduction {
                Reduction::None => nll_rows_text(),
                Reduction::Sum => nll_text(false),
                Reduction::Mean => nll_text(true),
            };
            let threads = if reduction == Reduction::None { n } else { 1 };
            // Beyond its threads the harness runs seven more.
            let alone = host::run(&text, &[1, 2], &[&y, &t, &d], &[want.layout().numel()], threads).remove(0);
            let want = get::<f32>(&want);
            assert!(alone.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 2e-6), "{text:?}: {alone:?} {want:?}");
            let g = &g[..want.len()];
            let op = LossOp::NllGradient { classes: c, ignore, reduction };
            let back = B::loss(&op, &[&put(g, shape), &target], &all).unwrap();
            close(&nll_back_text(reduction), &[g, &t, &d], &[1, 2], &back, n * c);
        }
    }
}

#[test]
fn chains_are_those_of_the_primitives() {
    let (rows, sizes) = (3, [7, 12, 5, 4]);
    let x = noise(rows * sizes[0], 11);
    let weights: Vec<Vec<f32>> = (0..3).map(|l| noise(sizes[l] * sizes[l + 1], 12 + l as u32)).collect();
    let biases: Vec<Vec<f32>> = (0..3).map(|l| noise(sizes[l + 1], 15 + l as u32)).collect();
    let kinds = [(true, true), (false, true), (true, false)].map(|(bias, relu)| fused_linear::Kind { bias, relu });
    let (mut y, mut inputs) = (put(&x, &[rows, sizes[0]]), vec![&x[..]]);
    let d: Vec<f32> = std::iter::once(rows).chain(sizes).map(|n| n as f32).collect();
    inputs.push(&d);
    for (l, kind) in kinds.iter().enumerate() {
        let (w, b) = (put(&weights[l], &[sizes[l + 1], sizes[l]]), put(&biases[l], &[sizes[l + 1]]));
        let out = meta(&[rows, sizes[l + 1]]);
        inputs.push(&weights[l]);
        y = match kind.bias {
            true => {
                inputs.push(&biases[l]);
                B::nn(&NnOp::Linear, &[&y, &w, &b], &out).unwrap()
            }
            false => B::nn(&NnOp::Linear, &[&y, &w], &out).unwrap(),
        };
        if kind.relu {
            y = B::unary(&UnaryOp::Relu, &y, &out).unwrap();
        }
    }
    let want = get::<f32>(&y);
    let made = host::run(&fused_linear::text(&kinds), &[1], &inputs, &[want.len()], rows).remove(0);
    assert!(made.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 2e-6), "{made:?} {want:?}");
}
