//! Kernels that the engine writes, compiled for this machine's processor, against the primitives they stand for.

use super::*;
use crate::gpu::optim::Formula;
use crate::gpu::written::{host, largest, route_back, Text, Tiles};
use crate::ops::pool::PoolOp;
use crate::optim::Step;
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
fn steps() -> Vec<Step> {
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
        let formula = Formula::of(&step).unwrap();
        let text = format!("{:?}", formula.text(count));
        let first = texts.entry(formula.key(count)).or_insert_with(|| text.clone());
        assert_eq!(*first, text, "{step:?}");
    }
    let sgd = |options: &[_]| Formula::of(&step("sgd", options)).unwrap().key(1);
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

        let formula = Formula::of(&step).unwrap();
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
        let inputs: Vec<&[f32]> = [&ends, &formula.constants].into_iter().chain(&slots).map(Vec::as_slice).collect();
        let outputs: Vec<usize> = sizes.iter().flat_map(|&n| vec![n; step.arity() - 1]).collect();
        let made = host::run(&formula.text(3), 1, 0, &inputs, &outputs, sizes.iter().sum());
        // The gradient, second in the list, is no output.
        let kept = lists.iter().flat_map(|l| l.iter().enumerate().filter(|(k, _)| *k != 1).map(|(_, a)| a));
        for (ours, plain) in made.iter().zip(kept) {
            for (a, b) in ours.iter().zip(get::<f32>(plain)) {
                assert!((a - b).abs() <= 2e-6 * b.abs().max(1.0), "{step:?}: {a} {b}");
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
    let numbers = tiles.numbers().map(|v| v as f32);
    let run = |text: &Text, more: &[&[f32]], size| {
        let x = last(&image);
        let inputs = [&[&x, &numbers[..]], more].concat();
        host::run(text, n, 1, &inputs, &[size], total).remove(0)
    };
    same(&run(&largest(false, false), &[], total), &last(&best));
    let bias = [0.5, -1.0, 0.25];
    let by_hand: Vec<f32> =
        last(&best).iter().zip(bias.iter().cycle()).map(|(v, b)| if v + b < 0.0 { 0.0 } else { v + b }).collect();
    same(&run(&largest(true, true), &[&bias], total), &by_hand);
    same(&run(&route_back(), &[&last(&out)], x.len()), &last(&back));
}
