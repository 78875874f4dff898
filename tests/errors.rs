//! Bad input: each case is a typed error that names the op and what was given, on both devices.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod common;
use common::{again, counting, DEVICES};
use lucid::ops::{conv, create, index, nn};
use lucid::{DType, Device, Error, Result, Tensor};

fn says(result: Result<Tensor>, parts: &[&str]) -> Box<Error> {
    let error = result.map(|t| format!("{t:?}")).expect_err("should be refused");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
    error
}

#[test]
fn shapes_that_do_not_fit() -> Result<()> {
    for device in DEVICES {
        let (a, b) = (counting(&[2, 3], device)?, counting(&[2, 4], device)?);
        assert!(matches!(*says(&a + &b, &["add", "[2, 3]", "[2, 4]"]), Error::ShapeMismatch { .. }));
        says(a.matmul(&b), &["matmul", "2x3 and 2x4"]);
        says(a.reshape(&[4]), &["reshape", "invalid for input of size 6"]);
        says(conv::conv2d(&a, &b, None, &[1], &[0], &[1], 1), &["conv2d", "[2, 3]"]);
        says(nn::linear(&a, &b, None), &["linear", "[2, 3]", "[2, 4]"]);
        says(index::cat(&[a.clone(), b.unsqueeze(0)?], 0), &["cat", "[1, 2, 4]"]);
    }
    Ok(())
}

#[test]
fn mixed_devices() -> Result<()> {
    let (a, b) = (counting(&[2], Device::Cpu)?, counting(&[2], Device::Gpu)?);
    let gpu = Device::Gpu.name();
    assert!(matches!(*says(&a + &b, &["add", "cpu", gpu]), Error::DeviceMismatch { .. }));
    says(index::cat(&[a.clone(), b.clone()], 0), &["cat", "same device"]);
    assert_eq!((a + &b.to_device(Device::Cpu)?)?.to_vec::<f32>()?, [0.0, 2.0]);
    Ok(())
}

#[test]
fn float64_on_the_gpu_names_the_cpu() -> Result<()> {
    let x = counting(&[2], Device::Gpu)?;
    assert!(matches!(*says(x.cast(DType::F64), &["float64", "cpu"]), Error::DtypeMismatch { .. }));
    says(create::zeros(&[2], Some(DType::F64), Some(Device::Gpu)), &["float64"]);
    says(counting(&[2], Device::Cpu)?.cast(DType::F64)?.to_device(Device::Gpu), &["float64"]);
    Ok(())
}

#[test]
fn sizes_whose_product_is_no_number() -> Result<()> {
    for device in DEVICES {
        let x = create::zeros(&[1, 1, 0], None, Some(device))?.expand(&[1_i64 << 40, 1 << 40, 0])?;
        assert!(matches!(*says(x.flatten(0, 1), &["flatten", "too many elements"]), Error::Runtime { .. }));
        assert_eq!(x.flatten(0, 2)?.shape(), [0]);
        assert_eq!(x.unsqueeze(0)?.diagonal(1, 1, 2)?.shape(), [1, 0, (1 << 40) - 1]);
    }
    Ok(())
}

#[test]
fn pivots_of_another_width() -> Result<()> {
    for device in DEVICES {
        let pivots = Tensor::from_slice(&[2i32, 2], &[2], device)?;
        says(lucid::ops::linalg::row_permutation(&pivots, 2), &["row_permutation", "int32"]);
        assert_eq!(lucid::ops::linalg::row_permutation(&pivots.cast(DType::I64)?, 2)?.to_vec::<i64>()?, [1, 0]);
    }
    Ok(())
}

#[test]
fn indices_out_of_range() -> Result<()> {
    for device in DEVICES {
        let x = counting(&[3, 4], device)?;
        let bad = Tensor::from_slice(&[0i64, 3], &[2], device)?;
        assert!(matches!(*says(x.index_select(0, &bad), &["index 3", "size 3"]), Error::IndexOutOfRange { .. }));
        says(x.select(0, 3), &["select", "index 3"]);
        says(x.gather(1, &Tensor::from_slice(&[-5i64], &[1, 1], device)?), &["index -5"]);
        says(nn::embedding(&bad, &x, None, false), &["index 3"]);
        assert!(x.sum(Some(&[2]), false, None).is_err());
        // The last valid ones do work.
        let ends = Tensor::from_slice(&[2i64, 0], &[2], device)?;
        assert_eq!(x.index_select(0, &ends)?.to_vec::<f32>()?, [8.0, 9.0, 10.0, 11.0, 0.0, 1.0, 2.0, 3.0]);
    }
    Ok(())
}

#[test]
fn reductions_of_nothing() -> Result<()> {
    for device in DEVICES {
        let x = create::zeros(&[0, 3], None, Some(device))?;
        says(x.amax(None, false), &["amax"]);
        says(x.argmax(Some(0), false), &["argmax"]);
        assert_eq!(x.sum(Some(&[0]), false, None)?.to_vec::<f32>()?, [0.0; 3]);
        assert_eq!(x.prod(None, false, None)?.item_f64()?, 1.0);
        assert!(x.mean(None, false, None)?.item_f64()?.is_nan());
    }
    Ok(())
}

#[test]
fn one_element_is_asked_of_many() -> Result<()> {
    for device in DEVICES {
        let error = counting(&[2, 2], device)?.item().unwrap_err().to_string();
        assert!(error.contains("4 elements") && error.contains("[2, 2]"), "{error}");
    }
    Ok(())
}

#[test]
fn devices_by_name() -> Result<()> {
    assert_eq!(Device::parse("cpu")?.device, Device::Cpu);
    assert_eq!(Device::parse("gpu:0")?.device, Device::Gpu);
    let other = if Device::Gpu.name() == "metal" { "cuda" } else { "metal" };
    let parsed = Device::parse(other)?;
    assert_eq!(parsed.device, Device::Gpu);
    assert!(parsed.warning.is_some_and(|w| w.contains(other) && w.contains(Device::Gpu.name())));
    for bad in ["tpu", "cpu:1", "", "gpu:x"] {
        assert!(Device::parse(bad).is_err(), "{bad:?}");
    }
    Ok(())
}

#[test]
fn files_that_are_missing_or_no_tensors() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing = folder.path().join("100%s of %n.safetensors");
    let error = lucid::io::load(&missing, Device::Cpu).unwrap_err();
    assert!(matches!(*error, Error::Io { missing: true, .. }) && error.to_string().contains("100%s of %n"), "{error}");
    let junk = folder.path().join("junk");
    std::fs::write(&junk, b"not tensors at all, but long enough for a header").expect("a file");
    assert!(lucid::io::load(&junk, Device::Cpu).unwrap_err().to_string().contains("not a safetensors file"));
    Ok(())
}

#[test]
fn files_give_back_what_was_written() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("all.safetensors");
    let x = counting(&[2, 3], Device::Cpu)?;
    let mut tensors = std::collections::BTreeMap::new();
    // The format has no complex128, and a tensor of it is refused.
    for &dtype in DType::ALL.iter().filter(|&&d| d != DType::C128) {
        tensors.insert(dtype.name().to_string(), x.cast(dtype)?);
    }
    let wide = [("wide".to_string(), x.cast(DType::C128)?)].into_iter().collect();
    assert!(matches!(*lucid::io::save(&path, &wide).unwrap_err(), lucid::Error::DtypeMismatch { .. }));
    tensors.insert("view".into(), x.t()?);
    tensors.insert("gpu".into(), x.to_device(Device::Gpu)?.exp()?);
    lucid::io::save(&path, &tensors)?;
    let read = lucid::io::load(&path, Device::Cpu)?;
    assert_eq!(read.len(), tensors.len());
    for (name, t) in &tensors {
        assert_eq!((read[name].shape(), read[name].dtype()), (t.shape(), t.dtype()), "{name}");
        assert_eq!(read[name].to_bytes()?, t.to_bytes()?, "{name}");
    }
    Ok(())
}

/// `RUST_BACKTRACE` is looked at once in a process, so each answer is a process of its own.
#[test]
fn backtraces_where_they_are_asked_for() -> Result<()> {
    const ASKED: &str = "LUCID_TEST_BACKTRACE";
    if let Ok(asked) = std::env::var(ASKED) {
        let (a, b) = (counting(&[2, 3], Device::Cpu)?, counting(&[2, 4], Device::Cpu)?);
        let stale = {
            let x = counting(&[2], Device::Cpu)?.requires_grad_(true)?;
            let y = x.exp()?;
            y.mul_(2.0)?;
            y.sum(None, false, None)?.backward().unwrap_err()
        };
        let model = lucid::nn::Linear::new(2, 2, Device::Cpu)?;
        let refused = lucid::nn::Forward::forward(&model, &a).unwrap_err();
        for error in
            [says(&a + &b, &["add"]), stale, refused, lucid::checkpoint::load("/none", Device::Cpu).unwrap_err()]
        {
            let shown = format!("{error:?}");
            assert!(shown.contains(&error.to_string()) && !error.to_string().contains("backtrace"), "{shown}");
            assert_eq!(error.backtrace().is_some(), asked == "1", "{shown}");
            assert_eq!(shown.contains("stack backtrace:") && shown.contains("lucid"), asked == "1", "{shown}");
            assert!(error.clone().backtrace().is_some() == (asked == "1"));
        }
        return Ok(());
    }
    for asked in ["1", "0"] {
        let run = again()
            .args(["--exact", "backtraces_where_they_are_asked_for"])
            .env("RUST_BACKTRACE", asked)
            .env_remove("RUST_LIB_BACKTRACE")
            .env(ASKED, asked)
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    }
    Ok(())
}
