//! The CPU device's kernels on MLX's CPU stream against MLX's own primitives.

use super::custom_kernel::steps;
use super::*;
use crate::{primitives, set_hosting};
use lucid_ir::ops::conv::{ConvArgs, ConvOp};
use lucid_ir::ops::index::IndexOp;
use lucid_ir::ops::pool::{PoolArgs, PoolOp};
use mlx_ffi::device::{self, Kind};
use smallvec::smallvec;

/// What `make` makes of MLX's own primitives, and of the CPU device's kernels, which are one node of this name.
fn both(name: &str, make: impl Fn() -> GpuArray) -> [Vec<f32>; 2] {
    [false, true].map(|hosted| {
        set_hosting(hosted);
        let made = make();
        let listed = primitives(&[&made]).unwrap();
        let nodes = listed.iter().find(|(n, _)| n == name).map_or(0, |(_, n)| *n);
        assert_eq!(nodes, usize::from(hosted && device::kind().unwrap() == Kind::Cpu), "{listed:?}");
        set_hosting(false);
        get::<f32>(&B::cast(&made, DType::F32).unwrap())
    })
}

fn close([own, hosted]: [Vec<f32>; 2], tolerance: f32) {
    assert_eq!(own.len(), hosted.len());
    for (a, b) in own.iter().zip(&hosted) {
        assert!((a - b).abs() <= tolerance * (1.0 + a.abs()), "{a} {b}");
    }
}

/// Images whose elements are in order, turned around (with negative strides within MLX), exchanged, and repeated.
fn images() -> Vec<GpuArray> {
    let plain = put(&noise(2 * 3 * 8 * 6, 1), &[2, 3, 8, 6]);
    let out = Meta::new(&[2, 3, 8, 6], DType::F32);
    let turned = B::index(&IndexOp::Flip { axes: smallvec![1, 2] }, &[&plain], &out).unwrap();
    let view = |x: &GpuArray, op: ViewOp| B::view(&op, x, op.layout(x.layout()).unwrap()).unwrap();
    let exchanged =
        view(&put(&noise(2 * 3 * 8 * 6, 2), &[2, 3, 6, 8]), ViewOp::Permute { axes: smallvec![0, 1, 3, 2] });
    let one = put(&noise(3 * 8 * 6, 3), &[1, 3, 8, 6]);
    vec![plain, turned, exchanged, view(&one, ViewOp::Expand { shape: smallvec![2, 3, 8, 6] })]
}

#[test]
fn convolutions_are_those_of_the_primitives() {
    let args = ConvArgs { stride: smallvec![2, 1], padding: smallvec![1, 0], dilation: smallvec![1, 1], groups: 1 };
    let (w, bias) = (put(&noise(5 * 3 * 9, 4), &[5, 3, 3, 3]), put(&noise(5, 5), &[5]));
    let g = put(&noise(2 * 5 * 4 * 4, 6), &[2, 5, 4, 4]);
    let args = || Box::new(args.clone());
    for x in images() {
        for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::BF16, 0.02)] {
            let [x, w, bias, g] = [&x, &w, &bias, &g].map(|a| B::cast(a, dtype).unwrap());
            let run = |op: ConvOp, inputs: &[&GpuArray], shape: &[usize]| {
                close(both("LucidConvolution", || B::conv(&op, inputs, &Meta::new(shape, dtype)).unwrap()), tolerance);
            };
            run(ConvOp::Forward { args: args() }, &[&x, &w, &bias], &[2, 5, 4, 4]);
            let shape = smallvec![2, 3, 8, 6];
            run(ConvOp::InputGradient { args: args(), shape }, &[&g, &w], &[2, 3, 8, 6]);
            let shape = smallvec![5, 3, 3, 3];
            run(ConvOp::WeightGradient { args: args(), shape }, &[&x, &g], &[5, 3, 3, 3]);
        }
    }
}

#[test]
fn pools_are_those_of_the_primitives() {
    let two: lucid_ir::ops::conv::Spatial = smallvec![2, 2];
    let args = Box::new(PoolArgs {
        kernel: two.clone(),
        stride: two,
        padding: smallvec![0, 0],
        dilation: smallvec![1, 1],
        output: smallvec![4, 3],
        count_include_pad: true,
        divisor: None,
    });
    let g = put(&noise(2 * 3 * 12, 7), &[2, 3, 4, 3]);
    for x in images() {
        let run = |op: PoolOp, inputs: &[&GpuArray], shape: &[usize]| {
            close(both("LucidPool", || B::pool(&op, inputs, &Meta::new(shape, DType::F32)).unwrap()), 1e-6);
        };
        run(PoolOp::Max { args: args.clone() }, &[&x], &[2, 3, 4, 3]);
        run(PoolOp::Average { args: args.clone() }, &[&x], &[2, 3, 4, 3]);
        run(PoolOp::MaxScatter { args: args.clone() }, &[&x, &g], &[2, 3, 8, 6]);
    }
}

#[test]
fn steps_are_those_of_the_primitives() {
    let shapes: [&[usize]; 3] = [&[300], &[], &[3, 5]];
    for step in steps() {
        let stepped = [false, true].map(|hosted| {
            let list = |(j, shape): (usize, &&[usize])| -> Vec<GpuArray> {
                let n = shape.iter().product();
                let value = |k| noise(n, (10 * j + k) as u32);
                let state = |k| value(k).iter().map(|x| x * x * 0.05 + 0.25).collect();
                (0..step.arity()).map(|k| put(&if k < 2 { value(k) } else { state(k) }, shape)).collect()
            };
            let lists: Vec<Vec<GpuArray>> = shapes.iter().enumerate().map(list).collect();
            set_hosting(hosted);
            B::steps(&[(step, lists.iter().map(|l| l.iter().collect()).collect())]).unwrap();
            lists.iter().flatten().flat_map(get::<f32>).collect()
        });
        close(stepped, 2e-6);
    }
}
