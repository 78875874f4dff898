//! Layers over several processes, which are this test again: each rank learns from the environment that it is one.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use lucid::distributed::{is_available, Config, Job, Reduce, Store};
use lucid::nn::{BatchNorm2d, SyncBatchNorm};
use lucid::prelude::*;
use std::time::Duration;

const RANK: &str = "LUCID_TEST_RANK";
const PORT: &str = "LUCID_TEST_PORT";
/// Samples of each of two members.
const SAMPLES: [usize; 2] = [3, 5];

/// A member's part: as the batch norm of the whole batch gives it, with its gradients and running means.
fn member(rank: usize, port: u16) -> Result<()> {
    let config = Config {
        host: "127.0.0.1".into(),
        port,
        token: "of this test".into(),
        rank,
        world_size: 2,
        generation: 0,
        timeout: Duration::from_secs(120),
        listen: None,
        backend: "ring".into(),
    };
    let job = Job::connect(config)?;
    let group = job.group("all", &[0, 1])?;
    lucid::manual_seed(3);
    let whole = Tensor::randn((SAMPLES[0] + SAMPLES[1], 4, 3, 2))?;
    let weights = Tensor::randn((SAMPLES[0] + SAMPLES[1], 4, 3, 2))?;
    let start = if rank == 0 { 0 } else { SAMPLES[0] };
    let part = |t: &Tensor| t.narrow(0, start, SAMPLES[rank]);

    let plain = BatchNorm2d::new(4, Device::Cpu)?;
    let all = whole.copy()?.requires_grad_(true)?;
    (plain.forward(&all)? * &weights)?.sum_all()?.backward()?;

    let sync = SyncBatchNorm::options(4).group(group.clone()).build(Device::Cpu)?;
    let x = part(&whole)?.copy()?.requires_grad_(true)?;
    let y = sync.forward(&x)?;
    (&y * &part(&weights)?)?.sum_all()?.backward()?;

    let close = |what: &str, a: &Tensor, b: &Tensor| {
        assert_eq!(a.shape(), b.shape(), "{what}");
        let (a, b) = (a.detach().unwrap().to_vec::<f32>().unwrap(), b.detach().unwrap().to_vec::<f32>().unwrap());
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4), "rank {rank}, {what}: {a:?} and {b:?}");
    };
    close("the input's gradient", &x.grad().unwrap(), &part(&all.grad().unwrap())?);
    // A parameter's gradient is of the own samples; data parallelism sums it.
    let own = sync.weight.as_ref().and_then(Tensor::grad).unwrap();
    let summed = group.all_reduce(&own, Reduce::Sum, None, None)?.wait(None)?;
    close("the weight's gradient", &summed, &plain.weight.as_ref().and_then(Tensor::grad).unwrap());
    let (mine, theirs) = (sync.state_dict()?, plain.state_dict()?);
    assert!(mine.keys().eq(theirs.keys()));
    close("the running mean", &mine["running_mean"], &theirs["running_mean"]);
    close("the running variance", &mine["running_var"], &theirs["running_var"]);
    assert_eq!(mine["num_batches_tracked"].item_i64()?, 1);
    let refused = sync.forward(&Tensor::randn((2, 3, 4))?).unwrap_err();
    assert!(refused.to_string().starts_with("SyncBatchNorm: "), "{refused}");
    job.leave();
    Ok(())
}

#[test]
fn a_batch_norm_of_two_processes_is_that_of_their_batches() -> Result<()> {
    if let Ok(rank) = std::env::var(RANK) {
        return member(rank.parse().unwrap(), std::env::var(PORT).unwrap().parse().unwrap());
    }
    assert!(is_available("ring"), "MLX's ring is there wherever the GPU device is");
    let store = Store::listen("127.0.0.1:0".parse().unwrap(), "of this test").unwrap();
    let members: Vec<_> = (0..2)
        .map(|rank| {
            common::again()
                .args(["--exact", "a_batch_norm_of_two_processes_is_that_of_their_batches", "--nocapture"])
                .env(RANK, rank.to_string())
                .env(PORT, store.address().port().to_string())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut member in members {
        assert!(member.wait().unwrap().success());
    }
    Ok(())
}
