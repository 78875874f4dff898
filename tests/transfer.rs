//! Moving between devices that share the host's memory: nothing is copied until one side is written to.

// A test may panic, and its lengths are its own.
#![allow(clippy::disallowed_methods)]

mod common;
use common::{counting, values};
use lucid::{memory_stats, no_grad, DType, Device, Result, Tensor};
use std::sync::{Mutex, MutexGuard};

/// 128 KiB of float32: enough to be lent.
const SHAPE: [usize; 2] = [128, 256];

/// The tests count allocations, so they run one by one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// What `f` makes, and how many buffers the CPU allocated for it.
fn counted<T>(f: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let before = memory_stats(Device::Cpu).allocations;
    let made = f()?;
    Ok((made, memory_stats(Device::Cpu).allocations - before))
}

fn on_gpu() -> Result<Tensor> {
    let x = (counting(&SHAPE, Device::Gpu)? * 2.0)?;
    x.eval()?;
    Ok(x)
}

fn first(x: &Tensor) -> Result<Vec<f32>> {
    x.reshape(&[-1])?.narrow(0, 0, 3)?.to_vec()
}

#[test]
fn a_result_comes_to_the_host_without_a_copy() -> Result<()> {
    let _alone = alone();
    let x = on_gpu()?;
    // CUDA's memory is not the host's.
    let copies = u64::from(x.device().to_string() == "cuda");
    let (y, made) = counted(|| x.to_device(Device::Cpu))?;
    assert_eq!(made, copies);
    let expected: Vec<f32> = (0..128 * 256).map(|i| i as f32 * 2.0).collect();
    assert_eq!(values(&y)?, expected);
    // Back again, and as another shape of it.
    let back = y.to_device(Device::Gpu)?;
    assert_eq!(values(&(&back + 1.0)?)?[..2], [1.0, 3.0]);
    assert_eq!(values(&y.reshape(&[256, 128])?.to_device(Device::Gpu)?)?, expected);
    // A part of a larger one, one in another order, one of few elements and Booleans are copied.
    for part in [x.narrow(0, 0, 4)?, x.t()?, counting(&[4], Device::Gpu)?, x.gt(3.0)?] {
        let (there, made) = counted(|| part.to_device(Device::Cpu))?;
        assert_eq!(made, 1, "{part:?}");
        assert_eq!(values(&there.cast(DType::F32)?)?, values(&part.cast(DType::F32)?)?);
    }
    Ok(())
}

#[test]
fn a_write_on_either_side_is_not_seen_on_the_other() -> Result<()> {
    let _alone = alone();
    let x = on_gpu()?;
    let y = x.to_device(Device::Cpu)?;
    let z = x.to_device(Device::Cpu)?;
    let view = y.t()?;
    no_grad(|| y.narrow(0, 0, 1)?.fill_(7.0.into()))?;
    assert_eq!((first(&y)?, first(&x)?, first(&z)?), (vec![7.0; 3], vec![0.0, 2.0, 4.0], vec![0.0, 2.0, 4.0]));
    // Views go with their storage, and its version is one for all.
    assert_eq!((view.select(1, 0)?.to_vec::<f32>()?, view.version()), (vec![7.0; 256], y.version()));
    no_grad(|| x.fill_(9.0.into()))?;
    assert_eq!((first(&x)?, first(&z)?), (vec![9.0; 3], vec![0.0, 2.0, 4.0]));

    // From the host to the device: what is recorded there and not yet computed sees the old elements too.
    let host = counting(&SHAPE, Device::Cpu)?;
    let there = host.to_device(Device::Gpu)?;
    let later = (&there + 1.0)?;
    no_grad(|| host.fill_(5.0.into()))?;
    assert_eq!(
        (first(&there)?, first(&later)?, first(&host)?),
        (vec![0.0, 1.0, 2.0], vec![1.0, 2.0, 3.0], vec![5.0; 3])
    );
    Ok(())
}

#[test]
fn the_device_does_not_reuse_what_the_host_looks_at() -> Result<()> {
    let _alone = alone();
    let x = on_gpu()?;
    let y = x.to_device(Device::Cpu)?;
    // MLX writes a sum over an operand that nobody holds any more.
    let sum = (&x + 1.0)?;
    drop(x);
    sum.eval()?;
    assert_eq!((first(&y)?, first(&sum)?), (vec![0.0, 2.0, 4.0], vec![1.0, 3.0, 5.0]));
    Ok(())
}

#[test]
fn a_write_copies_only_what_somebody_else_has() -> Result<()> {
    let _alone = alone();
    let x = on_gpu()?;
    let write = |t: &Tensor| counted(|| no_grad(|| t.fill_(1.0.into()))).map(|(_, made)| made);
    let plain = write(&counting(&SHAPE, Device::Cpu)?)?;
    let y = x.to_device(Device::Cpu)?;
    if x.device().to_string() != "cuda" {
        assert_eq!(write(&y)?, plain + 1);
    }
    assert_eq!(write(&y)?, plain);
    // With the device's tensor gone, the memory is the host's.
    let z = x.to_device(Device::Cpu)?;
    drop(x);
    assert_eq!((write(&z)?, first(&z)?), (plain, vec![1.0; 3]));
    let back = z.to_device(Device::Gpu)?;
    assert_eq!(first(&back)?, [1.0; 3]);
    Ok(())
}

#[test]
fn an_address_stays_the_elements_own() -> Result<()> {
    let _alone = alone();
    let x = on_gpu()?;
    let y = x.to_device(Device::Cpu)?;
    let address = y.data_ptr()?;
    assert_ne!(address, x.data_ptr()?);
    let there = y.to_device(Device::Gpu)?;
    no_grad(|| y.fill_(3.0.into()))?;
    assert_eq!((y.data_ptr()?, first(&there)?, first(&y)?), (address, vec![0.0, 2.0, 4.0], vec![3.0; 3]));
    Ok(())
}
