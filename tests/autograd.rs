//! The tape: gradients, second gradients, what it refuses, and graphs too deep for a stack.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod common;
use common::{counting, is_emulated, tensor, values, DEVICES};
use lucid::autograd::{backward, grad, BackwardOptions};
use lucid::{no_grad, Device, Error, Result, Tensor};
use std::sync::{Arc, Mutex};

fn leaf(data: &[f32], shape: &[usize], device: Device) -> Result<Tensor> {
    tensor(data, shape, device)?.requires_grad_(true)
}

fn total(t: &Tensor) -> Result<Tensor> {
    t.sum(None, false, None)
}

#[test]
fn gradients_of_a_product_are_summed_over_what_was_broadcast() -> Result<()> {
    for device in DEVICES {
        let a = leaf(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], device)?;
        let b = leaf(&[10.0, 20.0, 30.0], &[3], device)?;
        total(&(&a * &b)?)?.backward()?;
        assert_eq!(values(&a.grad().unwrap())?, [10.0, 20.0, 30.0, 10.0, 20.0, 30.0]);
        assert_eq!(values(&b.grad().unwrap())?, [5.0, 7.0, 9.0]);
    }
    Ok(())
}

#[test]
fn gradients_accumulate_until_they_are_cleared() -> Result<()> {
    for device in DEVICES {
        let a = leaf(&[3.0], &[1], device)?;
        for round in 1..=3 {
            total(&a.square()?)?.backward()?;
            assert_eq!(values(&a.grad().unwrap())?, [6.0 * round as f32]);
        }
        a.set_grad(None)?;
        assert!(a.grad().is_none());
    }
    Ok(())
}

#[test]
fn leaves_that_get_the_same_gradient_do_not_share_it() -> Result<()> {
    for device in DEVICES {
        let (a, b) = (leaf(&[1.0, 2.0], &[2], device)?, leaf(&[3.0, 4.0], &[1, 2], device)?);
        total(&(&a + &b.reshape(&[2])?)?)?.backward()?;
        no_grad(|| a.grad().unwrap().fill_(7.0.into()))?;
        assert_eq!(values(&b.grad().unwrap())?, [1.0, 1.0]);
    }
    Ok(())
}

#[test]
fn third_derivative_of_a_power() -> Result<()> {
    for device in DEVICES {
        let x = leaf(&[2.0], &[], device)?;
        let keep = BackwardOptions { graph: true, create_graph: true };
        let mut y = x.pow(4)?;
        for expected in [32.0, 48.0, 48.0] {
            y = grad(&[y], std::slice::from_ref(&x), &[None], keep)?.remove(0).unwrap();
            assert_eq!(y.item_f64()?, expected);
        }
    }
    Ok(())
}

#[test]
fn a_second_walk_needs_the_graph_kept() -> Result<()> {
    for device in DEVICES {
        let x = leaf(&[2.0], &[], device)?;
        let y = x.square()?;
        backward(std::slice::from_ref(&y), &[None], BackwardOptions { graph: true, create_graph: false }, None)?;
        y.backward()?;
        let error = y.backward().unwrap_err();
        assert!(error.to_string().contains("a second time"), "{error}");
        assert_eq!(x.grad().unwrap().item_f64()?, 8.0);
    }
    Ok(())
}

#[test]
fn changing_what_was_saved_is_refused_by_name() -> Result<()> {
    for device in DEVICES {
        let x = leaf(&[1.0, 2.0], &[2], device)?;
        let y = (&x * 1.0)?;
        let z = total(&y.exp()?.mul(&y)?)?;
        y.add_(1.0, 1)?;
        match *z.backward().unwrap_err() {
            Error::VersionMismatch { op, ref shape, saved: 0, found: 1, .. } => {
                assert_eq!((op, shape.as_slice()), ("mul", &[2][..]))
            }
            ref other => panic!("{other}"),
        }
    }
    Ok(())
}

#[test]
fn a_leaf_is_not_written_while_recording() -> Result<()> {
    for device in DEVICES {
        let x = leaf(&[1.0, 2.0], &[2], device)?;
        assert!(matches!(*x.add_(1.0, 1).unwrap_err(), Error::Runtime { op: "add_", .. }));
        assert!(matches!(*x.narrow(0, 0, 1)?.add_(1.0, 1).unwrap_err(), Error::Runtime { .. }));
        no_grad(|| x.add_(1.0, 1))?;
        assert_eq!(values(&x)?, [2.0, 3.0]);
    }
    Ok(())
}

#[test]
fn writes_through_a_view_are_recorded_on_its_base() -> Result<()> {
    for device in DEVICES {
        let x = leaf(&[1.0, 2.0, 3.0, 4.0], &[4], device)?;
        let w = leaf(&[10.0, 20.0], &[2], device)?;
        let y = (&x * 2.0)?;
        let (low, all) = (y.narrow(0, 0, 2)?, y.reshape(&[2, 2])?);
        low.mul_(&w)?;
        assert_eq!(values(&y)?, [20.0, 80.0, 6.0, 8.0]);
        total(&all.square()?)?.backward()?;
        // y0 = 2 x0 w0: d/dx0 y0² = 2 y0 · 2 w0
        assert_eq!(values(&x.grad().unwrap())?, [800.0, 6400.0, 24.0, 32.0]);
        assert_eq!(values(&w.grad().unwrap())?, [80.0, 640.0]);
    }
    Ok(())
}

#[test]
fn writing_into_fresh_zeros_carries_the_gradient() -> Result<()> {
    for device in DEVICES {
        let w = leaf(&[3.0, 5.0], &[2], device)?;
        let z = Tensor::full_of(&[2, 2], 0.0.into(), lucid::DType::F32, device)?;
        z.select(0, 1)?.copy_(&w.square()?)?;
        assert!(z.requires_grad());
        total(&z)?.backward()?;
        assert_eq!(values(&w.grad().unwrap())?, [6.0, 10.0]);
    }
    Ok(())
}

#[test]
fn hooks_see_and_replace_gradients_and_results_keep_theirs() -> Result<()> {
    for device in DEVICES {
        let x = leaf(&[2.0], &[], device)?;
        let y = x.square()?;
        y.retain_grad()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let handle = y.register_hook(Arc::new(move |g| {
            log.lock().unwrap().push(g.item_f64()?);
            (g * 10.0).map(Some)
        }))?;
        backward(&[(&y * 3.0)?], &[None], BackwardOptions { graph: true, create_graph: false }, None)?;
        assert_eq!((seen.lock().unwrap().as_slice(), x.grad().unwrap().item_f64()?), (&[3.0][..], 120.0));
        y.remove_hook(handle);
        // What is kept is what goes on, after the hooks, as in PyTorch.
        assert_eq!(y.grad().unwrap().item_f64()?, 30.0);
    }
    Ok(())
}

#[test]
fn only_what_leads_to_the_inputs_is_walked() -> Result<()> {
    for device in DEVICES {
        let (a, b) = (leaf(&[2.0], &[], device)?, leaf(&[3.0], &[], device)?);
        let unused = leaf(&[1.0], &[], device)?;
        let y = (&a.square()? * &b.exp()?)?;
        let grads = grad(&[y], &[a.clone(), unused], &[None], BackwardOptions::default())?;
        assert!((grads[0].as_ref().unwrap().item_f64()? - 4.0 * 3f64.exp()).abs() < 1e-3);
        assert!(grads[1].is_none() && b.grad().is_none() && a.grad().is_none());
    }
    Ok(())
}

#[test]
fn a_million_ops_deep_both_ways() -> Result<()> {
    // An emulator takes eleven minutes for a million. A tenth is too deep for a stack all the same: 20 bytes for each op.
    let n = if is_emulated() { 100_000 } else { 1_000_000 };
    for device in DEVICES {
        let x = leaf(&[1.0], &[], device)?;
        let mut y = (&x * 1.0)?;
        for _ in 1..n {
            y = (y + 1.0)?;
        }
        assert_eq!(y.item_f64()?, n as f64);
        y.backward()?;
        assert_eq!(x.grad().unwrap().item_f64()?, 1.0);
        // Dropping a graph that was never walked must not recurse either.
        let mut z = x.clone();
        for _ in 0..n {
            z = z.exp()?;
        }
        drop(z);
    }
    Ok(())
}

#[test]
fn a_graph_that_forks_at_every_step_is_walked_once_per_node() -> Result<()> {
    let x = leaf(&[1.0], &[], Device::Cpu)?;
    let mut y = x.clone();
    for _ in 0..60 {
        y = (&y + &y)?;
    }
    y.backward()?;
    assert_eq!(x.grad().unwrap().item_f64()?, 2f64.powi(60));
    Ok(())
}

#[test]
fn backward_needs_one_element_or_a_weight() -> Result<()> {
    for device in DEVICES {
        let x = leaf(&[1.0, 2.0], &[2], device)?;
        assert!(x.square()?.backward().unwrap_err().to_string().contains("scalar outputs"));
        backward(&[x.square()?], &[Some(counting(&[2], device)?)], BackwardOptions::default(), None)?;
        assert_eq!(values(&x.grad().unwrap())?, [0.0, 4.0]);
        assert!(tensor(&[1.0], &[], device)?.backward().is_err());
    }
    Ok(())
}
