//! Files: tensors and texts go through, damaged files are errors with the path, and a target is replaced in one step.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use lucid::{io, Device, Result, Tensor};
use std::collections::BTreeMap;
use std::path::Path;

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

#[test]
fn tensors_and_texts_go_through() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let a = Tensor::from_slice(&[1u8, 2, 3], &[3], Device::Cpu)?;
    let b = Tensor::from_slice(&[1.5f64, -2.0], &[2, 1], Device::Cpu)?;
    let tensors: BTreeMap<String, Tensor> = [("a".to_string(), a), ("b".to_string(), b)].into();
    io::save_with(&path, &tensors, &texts(&[("k", "v")]))?;
    let bytes = std::fs::read(&path).unwrap();
    let header = io::header(&path, &bytes, bytes.len() as u64)?;
    assert_eq!(header.metadata, texts(&[("k", "v")]));
    // Wide elements come first, at a multiple of their size.
    assert_eq!(header.entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(header.entries[0].start % 8, 0);
    let back = io::load(&path, Device::Cpu)?;
    assert_eq!(back["a"].to_vec::<u8>()?, [1, 2, 3]);
    assert_eq!((back["b"].shape(), back["b"].to_vec::<f64>()?), (&[2, 1][..], vec![1.5, -2.0]));
    Ok(())
}

#[test]
fn every_cut_and_flipped_bit_is_an_error_or_a_file() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let t = Tensor::from_slice(&[1.0f32; 5], &[5], Device::Cpu)?;
    io::save(&path, &[("name".to_string(), t)].into())?;
    let whole = std::fs::read(&path).unwrap();
    for n in 0..whole.len() {
        assert!(io::header(&path, &whole[..n], n as u64).is_err(), "{n} bytes");
        std::fs::write(&path, &whole[..n]).unwrap();
        assert!(io::load(&path, Device::Cpu).is_err(), "{n} bytes");
    }
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        if let Err(e) = io::load(&path, Device::Cpu) {
            assert!(e.to_string().contains("x.safetensors"), "{e}");
        }
    }
    Ok(())
}

#[test]
fn a_failed_write_leaves_the_old_file_and_nothing_else() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    std::fs::write(&path, "old").unwrap();
    let failed = io::replace(&path, |_| Tensor::from_slice(&[0u8], &[2], Device::Cpu).map(drop));
    assert!(failed.is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(io::replace(Path::new("/no such folder/x"), |_| Ok(())).is_err());
    Ok(())
}
