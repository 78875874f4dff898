//! What one call costs from Rust, before there is any work: `bench/dispatch.py` reads what this prints, as JSON.
//!
//! `cargo run --release --example dispatch -- [SECONDS]`
//!
//! On the GPU device the peer is the same call through `mlx-ffi`, MLX's C functions, and nothing is evaluated.

// A benchmark's lengths are its own.
#![allow(clippy::disallowed_methods)]

use lucid::ops::{conv::conv2d, nn::linear};
use lucid::{Device, Result, Tensor};
use mlx_ffi::{ops, share_primitives, Array};
use std::time::{Duration, Instant};

/// Calls per timing.
const CALLS: u32 = 100;

/// An op by its name in the Python benchmark, over a 16×16 matrix, another, and a row of 16; with it MLX's, if any.
pub struct Op {
    /// As the Python benchmark has it.
    pub name: &'static str,
    /// One call.
    pub ours: fn(&Inputs) -> Result<Tensor>,
    raw: fn(&Raw) -> mlx_ffi::Result<Array>,
}

/// Our side.
pub struct Inputs {
    x: Tensor,
    y: Tensor,
    bias: Tensor,
    image: Tensor,
    kernel: Tensor,
    channels: Tensor,
}

/// The peer.
pub struct Raw {
    x: Array,
    y: Array,
    bias: Array,
    zero: Array,
    image: Array,
    kernel: Array,
    channels: Array,
}

/// What is timed.
pub const OPS: &[Op] = &[
    Op { name: "add", ours: |i| &i.x + &i.y, raw: |r| ops::add(&r.x, &r.y) },
    Op { name: "mul", ours: |i| &i.x * &i.y, raw: |r| ops::multiply(&r.x, &r.y) },
    Op { name: "matmul", ours: |i| i.x.matmul(&i.y), raw: |r| ops::matmul(&r.x, &r.y) },
    Op { name: "relu", ours: |i| i.x.relu(), raw: |r| ops::maximum(&r.x, &r.zero) },
    Op { name: "reshape", ours: |i| i.x.reshape(&[4, 64]), raw: |r| ops::reshape(&r.x, &[4, 64]) },
    Op { name: "transpose", ours: |i| i.x.transpose(0, 1), raw: |r| ops::transpose_axes(&r.x, &[1, 0]) },
    Op {
        name: "getitem",
        ours: |i| i.x.select(0, 3),
        raw: |r| ops::squeeze_axis(&ops::slice(&r.x, &[3, 0], &[4, 16], &[1, 1])?, 0),
    },
    Op { name: "sum", ours: |i| i.x.sum(None, false, None), raw: |r| ops::sum(&r.x, false) },
    Op { name: "sum dim", ours: |i| i.x.sum(Some(&[1]), false, None), raw: |r| ops::sum_axis(&r.x, 1, false) },
    Op {
        name: "linear",
        ours: |i| linear(&i.x, &i.y, Some(&i.bias)),
        raw: |r| ops::addmm(&r.bias, &r.x, &ops::transpose_axes(&r.y, &[1, 0])?),
    },
    Op {
        name: "conv2d",
        ours: |i| conv2d(&i.image, &i.kernel, Some(&i.channels), &[1], &[1], &[1], 1),
        raw: |r| ops::add(&ops::conv2d(&r.image, &r.kernel, 1, 1, 1, 1, 1, 1, 1)?, &r.channels),
    },
];

/// The inputs of all ops, which want gradients or not.
pub fn inputs(device: Device, grad: bool) -> Result<Inputs> {
    let ones = |shape: &[isize]| -> Result<Tensor> {
        let made = lucid::ops::create::ones(shape, None, Some(device))?;
        made.eval()?;
        made.requires_grad_(grad)
    };
    Ok(Inputs {
        x: ones(&[16, 16])?,
        y: ones(&[16, 16])?,
        bias: ones(&[16])?,
        image: ones(&[1, 3, 8, 8])?,
        kernel: ones(&[4, 3, 3, 3])?,
        channels: ones(&[4])?,
    })
}

fn raw() -> mlx_ffi::Result<Raw> {
    let ones = |shape: &[i32]| -> mlx_ffi::Result<Array> {
        let n: i32 = shape.iter().product();
        Array::from_slice(&vec![1.0f32; n as usize], shape)
    };
    Ok(Raw {
        x: ones(&[16, 16])?,
        y: ones(&[16, 16])?,
        bias: ones(&[16])?,
        zero: Array::from_slice(&[0.0f32], &[])?,
        image: ones(&[1, 8, 8, 3])?,
        kernel: ones(&[4, 3, 3, 3])?,
        channels: ones(&[4])?,
    })
}

/// Microseconds of one call.
fn time<T, E>(call: &mut dyn FnMut() -> std::result::Result<T, E>) -> std::result::Result<f64, E> {
    call()?;
    let start = Instant::now();
    for _ in 0..CALLS {
        call()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS))
}

/// Median and quartiles.
fn spread(times: &mut [f64]) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [1, 2, 3].map(|q| times[(times.len() - 1) * q / 4])
}

fn measure(seconds: f64) -> std::result::Result<Vec<serde_json::Value>, Box<dyn std::error::Error>> {
    let raw = raw()?;
    let mut rows = Vec::new();
    let each = Duration::from_secs_f64(seconds / (4 * OPS.len()) as f64);
    for device in [Device::Gpu, Device::Cpu] {
        for grad in [false, true] {
            let inputs = inputs(device, grad)?;
            for op in OPS {
                let (mut ours, mut peer, mut control) = (Vec::new(), Vec::new(), Vec::new());
                let begun = Instant::now();
                while ours.len() < 15 || begun.elapsed() < each {
                    ours.push(time(&mut || (op.ours)(&inputs))?);
                    if device == Device::Gpu {
                        // The peer's calls are MLX's own.
                        share_primitives(false);
                        peer.push(time(&mut || (op.raw)(&raw))?);
                        control.push(time(&mut || (op.raw)(&raw))?);
                        share_primitives(true);
                    }
                }
                let [low, median, high] = spread(&mut ours);
                let of = |times: &mut Vec<f64>| (!times.is_empty()).then(|| spread(times)[1]);
                let place = if device == Device::Gpu { "gpu" } else { "cpu" };
                let grad = if grad { ", grad" } else { "" };
                rows.push(serde_json::json!({
                    "name": format!("{place} Rust {}{grad}", op.name), "op": format!("{}{grad}", op.name),
                    "ours_us": median, "ours_iqr_us": [low, high],
                    "peer_us": of(&mut peer), "control_us": of(&mut control),
                }));
            }
        }
    }
    Ok(rows)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(10.0), |s| s.parse())?;
    println!("{}", serde_json::Value::from(measure(seconds)?));
    Ok(())
}
