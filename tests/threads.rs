//! Many threads on one unevaluated graph, on many graphs, and tensors handed across.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod common;
use common::{counting, values, DEVICES};
use lucid::{Device, Result, Tensor};
use std::thread;

const THREADS: usize = 8;

/// Runs `f` in eight threads at once and gives what each returned.
fn all<T: Send>(f: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let handles: Vec<_> = (0..THREADS)
            .map(|i| {
                let f = &f;
                scope.spawn(move || f(i))
            })
            .collect();
        handles.into_iter().map(|h| h.join().expect("a thread panicked")).collect()
    })
}

fn chain(x: &Tensor, steps: usize) -> Result<Tensor> {
    (0..steps).try_fold(x.clone(), |t, _| (t * 0.5)? + 1.0)
}

#[test]
fn one_unevaluated_graph_is_read_by_all() -> Result<()> {
    for device in DEVICES {
        for _ in 0..10 {
            let y = chain(&counting(&[16, 16], device)?, 50)?;
            let results = all(|_| values(&y))?;
            assert!(results.windows(2).all(|w| w[0] == w[1]));
            assert!((results[0][0] - 2.0).abs() < 1e-5);
        }
    }
    Ok(())
}

#[test]
fn each_thread_builds_and_evaluates_its_own() -> Result<()> {
    for device in DEVICES {
        let results = all(|i| {
            (0..20).try_fold(0.0, |_, _| {
                let x = (counting(&[32, 32], device)? + i as f64)?;
                x.matmul(&x.t()?)?.sum(None, false, None)?.item_f64()
            })
        })?;
        let alone = (0..THREADS).map(|i| {
            let x = (counting(&[32, 32], device)? + i as f64)?;
            x.matmul(&x.t()?)?.sum(None, false, None)?.item_f64()
        });
        assert_eq!(results, alone.collect::<Result<Vec<_>>>()?);
    }
    Ok(())
}

#[test]
fn forward_here_backward_there() -> Result<()> {
    for device in DEVICES {
        let leaves = (0..THREADS).map(|_| counting(&[8], device)?.requires_grad_(true)).collect::<Result<Vec<_>>>()?;
        let losses = leaves.iter().map(|x| x.square()?.sum(None, false, None)).collect::<Result<Vec<_>>>()?;
        all(|i| losses[i].backward())?;
        for x in &leaves {
            assert_eq!(values(&x.grad().unwrap())?, (0..8).map(|i| 2.0 * i as f32).collect::<Vec<_>>());
        }
    }
    Ok(())
}

#[test]
fn gradients_of_one_leaf_from_many_threads_are_all_counted() -> Result<()> {
    for device in DEVICES {
        let x = counting(&[4], device)?.requires_grad_(true)?;
        all(|i| {
            for _ in 0..50 {
                (&x * (i + 1) as f32)?.sum(None, false, None)?.backward()?;
            }
            Ok(())
        })?;
        let total = 50 * THREADS * (THREADS + 1) / 2;
        assert_eq!(values(&x.grad().unwrap())?, [total as f32; 4], "on {device}");
    }
    Ok(())
}

#[test]
fn writers_and_readers_of_one_storage_never_see_half_a_tensor() -> Result<()> {
    for device in DEVICES {
        let x = Tensor::full_of(&[64, 64], 0.0.into(), lucid::DType::F32, device)?;
        all(|i| {
            for round in 0..50 {
                match i % 2 {
                    0 => x.fill_(f64::from(round).into())?,
                    _ => {
                        let seen = values(&x)?;
                        assert!(seen.iter().all(|&v| v == seen[0]), "a torn read on {device}");
                    }
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn half_a_mebibyte_of_stack_is_enough() -> Result<()> {
    // As much as macOS gives a thread that asks for nothing.
    let work = || -> Result<()> {
        for device in DEVICES {
            let x = counting(&[64, 64], device)?.requires_grad_(true)?;
            let deep = chain(&x, 20_000)?;
            let y = deep.matmul(&x.softmax(-1, None)?)?.sum(None, false, None)?;
            y.backward()?;
            assert!(values(&x.grad().unwrap())?.iter().all(|v| v.is_finite()));
            let image = counting(&[2, 3, 16, 16], device)?.requires_grad_(true)?;
            let conv = lucid::nn::Conv2d::new(3, 4, 3, device)?;
            lucid::nn::Forward::forward(&conv, &image)?.relu()?.sum(None, false, None)?.backward()?;
            assert_eq!(image.grad().unwrap().shape(), image.shape());
        }
        let square = (counting(&[32, 32], Device::Cpu)?.sin()? + 3.0)?;
        square.svd(true, true)?;
        // A graph that nobody walked is dropped without recursion.
        chain(&square.requires_grad_(true)?, 100_000)?;
        Ok(())
    };
    let thread = thread::Builder::new().stack_size(512 << 10).spawn(work).unwrap();
    thread.join().expect("a thread panicked")
}

#[test]
fn each_thread_records_by_its_own_mode() -> Result<()> {
    let x = counting(&[2], Device::Cpu)?.requires_grad_(true)?;
    let recorded = all(|i| {
        if i % 2 == 0 {
            lucid::set_grad_enabled(false);
        }
        Ok((&x * 2.0)?.requires_grad())
    })?;
    assert!(recorded.iter().enumerate().all(|(i, &r)| r == (i % 2 == 1)));
    Ok(())
}

#[test]
fn threads_share_one_stream_of_random_numbers() -> Result<()> {
    lucid::manual_seed(7);
    let drawn = all(|_| lucid::ops::random::rand(&[4], None, None, None)?.to_vec::<f32>())?;
    for (i, a) in drawn.iter().enumerate() {
        assert!(drawn[i + 1..].iter().all(|b| a != b), "two threads drew the same numbers");
    }
    Ok(())
}
