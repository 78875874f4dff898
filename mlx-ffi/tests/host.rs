//! Functions of the host's as nodes. MLX hands a stream's error to whoever waits next, so that all is one test of a process.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use mlx_ffi::device::{self, Kind};
use mlx_ffi::host::{self, Function, Input, Inputs, Put};
use mlx_ffi::{graph, ops, Array, Dtype, Error, Result};

/// An element of a float32 input, by its place in row-major order.
fn element(x: &Input, at: usize) -> f32 {
    let (mut left, mut offset) = (at, 0);
    for (&n, &s) in x.shape().iter().zip(x.strides()).rev() {
        offset += (left % n as usize) as i64 * s;
        left /= n as usize;
    }
    let steps = x.shape().iter().zip(x.strides()).map(|(&n, &s)| i64::from(n - 1) * s);
    let (low, bytes) = x.memory();
    let place = (offset - steps.filter(|&s| s < 0).sum::<i64>()) as usize;
    assert!(place < bytes / 4);
    // SAFETY: one of the input's elements.
    unsafe { *low.cast::<f32>().add(place) }
}

/// Sums and differences of two arrays, element by element, whatever their strides.
fn both(a: &Array, b: &Array) -> Result<Vec<Array>> {
    let of = |x: &Inputs, f: fn(f32, f32) -> f32| -> Vec<u8> {
        let n = x[0].shape().iter().product::<i32>() as usize;
        (0..n).flat_map(|i| f(element(&x[0], i), element(&x[1], i)).to_ne_bytes()).collect()
    };
    let function = move |x: Inputs, put: Put<'_>| {
        put(1, &of(&x, |a, b| a - b)).and_then(|()| put(0, &of(&x, |a, b| a + b))).map_err(|e| e.to_string())
    };
    let like = (a.shape(), Dtype::Float32);
    host::node(c"Both", Box::new(function), &[a, b], &[like, like])
}

#[test]
fn functions_are_nodes() {
    let x = Array::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    if device::kind().unwrap() != Kind::Cpu {
        let refused = both(&x, &x).unwrap_err().to_string();
        assert!(refused.contains("does not compute on the CPU"), "{refused}");
        return;
    }
    let turned = ops::transpose_axes(&ops::reshape(&x, &[3, 2]).unwrap(), &[1, 0]).unwrap();
    let back = ops::slice(&ops::add(&x, &x).unwrap(), &[1, 2], &[-3, -4], &[-1, -1]).unwrap();
    let first = both(&x, &turned).unwrap();
    let second = both(&first[0], &back).unwrap();
    let listed = graph::primitives(&[&second[0], &second[1]]).unwrap();
    assert_eq!(listed.iter().find(|(name, _)| name == "Both").unwrap().1, 2);
    assert_eq!(first[1].to_vec::<f32>().unwrap(), [0.0, -1.0, -2.0, 2.0, 1.0, 0.0]);
    assert_eq!(second[0].to_vec::<f32>().unwrap(), [14.0, 15.0, 16.0, 12.0, 13.0, 14.0]);
    assert_eq!(second[1].to_vec::<f32>().unwrap(), [-10.0, -5.0, 0.0, 0.0, 5.0, 10.0]);
    // MLX reuses no memory that a function still reads.
    let sum = both(&x, &x).unwrap().swap_remove(0);
    assert_eq!(ops::square(&sum).unwrap().to_vec::<f32>().unwrap(), [4.0, 16.0, 36.0, 64.0, 100.0, 144.0]);

    let of = |function: Function| host::node(c"Fails", function, &[&x], &[(&[], Dtype::Float32)]).unwrap().remove(0);
    let refused = of(Box::new(|_, _| Err("not today".into())));
    assert_eq!(refused.eval().unwrap_err(), Error::Mlx("not today".into()));
    let panicked = of(Box::new(|_, _| panic!("ouch")));
    assert_eq!(panicked.eval().unwrap_err(), Error::Panic("ouch".into()));
    let silent = of(Box::new(|_, _| Ok(())));
    assert_eq!(silent.eval().unwrap_err(), Error::Mlx("the function left out an output".into()));
    let short = of(Box::new(|_, put| put(0, &[0]).map_err(|e| e.to_string())));
    assert!(short.eval().unwrap_err().to_string().contains("1 bytes for output 0 of [4]"));
    let beyond = of(Box::new(|_, put| put(1, &[0; 4]).map_err(|e| e.to_string())));
    assert!(beyond.eval().unwrap_err().to_string().contains("for output 1"));
    // The stream goes on.
    assert_eq!(both(&x, &x).unwrap()[1].to_vec::<f32>().unwrap(), [0.0; 6]);
}
