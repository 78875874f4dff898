//! The budget: flat memory for loops that never evaluate, from one thread and from many.

use super::*;
use crate::lazy::{self, limits, set_limits, Limits};
use lucid_ir::ops::binary::BinaryOp;

fn add(a: &GpuArray, b: &GpuArray) -> GpuArray {
    B::binary(&BinaryOp::Add, a, b, &Meta::new(&a.layout().shape, a.dtype())).unwrap()
}

#[test]
fn long_chains_are_evaluated_on_the_way() {
    let _alone = ALONE.lock();
    let one = put(&[1f32; 4], &[4]);
    let mut x = put(&[0f32; 4], &[4]);
    for _ in 0..100_000 {
        x = add(&x, &one);
        assert!(lazy::waiting() < limits().ops);
    }
    assert_eq!(get::<f32>(&x), [100_000.0; 4]);
}

#[test]
fn bytes_count_too() {
    let _alone = ALONE.lock();
    let before = limits();
    set_limits(Limits { ops: 1 << 20, bytes: 1 << 20 });
    let x = put(&vec![1f32; 1 << 16], &[1 << 16]);
    B::eval(&[&x], true).unwrap();
    let evaluations = mlx_ffi::counters::thread().evaluations;
    let mut y = x.clone();
    for _ in 0..16 {
        y = add(&y, &x);
    }
    set_limits(before);
    // 16 times 256 KB pass the limit four times.
    assert!(mlx_ffi::counters::thread().evaluations - evaluations >= 3);
    assert_eq!(get::<f32>(&y)[0], 17.0);
}

#[test]
fn writes_count_too() {
    let _alone = ALONE.lock();
    let (x, one) = (put(&[0f32; 4], &[4]), put(&[1f32; 4], &[4]));
    for _ in 0..10_000 {
        B::assign(&x, &add(&x, &one), false).unwrap();
        assert!(lazy::waiting() < limits().ops);
    }
    assert_eq!(get::<f32>(&x), [10_000.0; 4]);
}

#[test]
fn evaluation_empties_the_count() {
    let _alone = ALONE.lock();
    let one = put(&[1f32; 4], &[4]);
    B::eval(&[&one], true).unwrap();
    for _ in 0..500 {
        let y = add(&add(&one, &one), &one);
        B::eval(&[&y], true).unwrap();
        assert!(lazy::waiting() < 200, "{}", lazy::waiting());
    }
}

/// Refuses to evaluate what reads an array that never arrives, as a group does whose member is gone.
fn refuse_broken(names: &dyn Fn() -> mlx_ffi::Result<String>) -> mlx_ffi::Result<()> {
    match names()?.contains("Broken") {
        true => Err(mlx_ffi::Error::Mlx("a member is gone".into())),
        false => Ok(()),
    }
}

#[test]
fn an_error_is_of_who_reads_it() {
    let _alone = ALONE.lock();
    let one = put(&[1f32; 4], &[4]);
    let meta = Meta::new(&[4], one.dtype());
    let never = || Err(crate::Error::runtime("arriving", "nothing has arrived"));
    let broken = add(&crate::communication::arriving("arriving", c"Broken", &meta, never).unwrap(), &one);
    mlx_ffi::distributed::set_arrivals(refuse_broken);
    mlx_ffi::distributed::expect_arrivals(true);
    // What is recorded later passes the budget with it, more than once, and does not fail.
    let mut x = one.clone();
    for _ in 0..2 * limits().ops + 10 {
        x = B::binary(&BinaryOp::Add, &x, &one, &meta).unwrap();
    }
    assert_eq!(get::<f32>(&x)[0], (2 * limits().ops + 11) as f32);
    for _ in 0..2 {
        let why = B::eval(&[&broken], true).unwrap_err().to_string();
        assert!(why.contains("a member is gone"), "{why}");
    }
    mlx_ffi::distributed::expect_arrivals(false);
    // A function that fails after its evaluation was started is told once, whoever evaluates next.
    let why = B::eval(&[&broken], true).unwrap_err().to_string();
    assert!(why.contains("nothing has arrived"), "{why}");
}

#[test]
fn threads_have_budgets_of_their_own() {
    let one = put(&[1f32; 4], &[4]);
    let results: Vec<Vec<f32>> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                s.spawn(|| {
                    let mut x = one.clone();
                    for _ in 0..5000 {
                        x = add(&x, &one);
                    }
                    get::<f32>(&x)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(results.iter().all(|r| *r == [5001.0; 4]));
}
