//! Reading and writing named tensors as safetensors files.
//!
//! The format and its checks are the `safetensors` crate's. A write goes to a temporary file beside the target, is synced
//! and renamed, so the target is always the old file or the new one, whole.

use crate::{DType, Device, Error, Result, Tensor};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

const DTYPES: [(DType, Dtype); 11] = [
    (DType::Bool, Dtype::BOOL),
    (DType::U8, Dtype::U8),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
    (DType::C64, Dtype::C64),
];

/// Writes tensors under their names; evaluates them.
///
/// # Errors
/// [`Error::Io`] with the path where the file cannot be written, and what the evaluation reports.
pub fn save(path: impl AsRef<Path>, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
    let path = path.as_ref();
    let bytes: Vec<(&String, Vec<u8>, &Tensor)> =
        tensors.iter().map(|(name, t)| Ok((name, t.to_bytes()?, t))).collect::<Result<_>>()?;
    let views = bytes.iter().map(|(name, bytes, t)| {
        let dtype = DTYPES.iter().find(|(d, _)| *d == t.dtype()).map_or(Dtype::U8, |(_, d)| *d);
        let view = TensorView::new(dtype, t.shape().to_vec(), bytes);
        view.map(|v| (name.as_str(), v)).map_err(|e| Error::file(path, e.to_string()))
    });
    let views: Vec<(&str, TensorView<'_>)> = views.collect::<Result<_>>()?;
    let data = safetensors::serialize(views, None).map_err(|e| Error::file(path, e.to_string()))?;
    write_whole(path, &data).map_err(|e| Error::io(path, e))
}

fn write_whole(path: &Path, data: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(data)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Reads all tensors of a file to a device.
///
/// # Errors
/// [`Error::Io`] with the path where the file cannot be read or is no safetensors file, and [`Error::DtypeMismatch`] where
/// the device has not a tensor's dtype.
pub fn load(path: impl AsRef<Path>, device: Device) -> Result<BTreeMap<String, Tensor>> {
    let path = path.as_ref();
    let data = std::fs::read(path).map_err(|e| Error::io(path, e))?;
    let file =
        SafeTensors::deserialize(&data).map_err(|e| Error::file(path, format!("not a safetensors file: {e}")))?;
    file.iter()
        .map(|(name, view)| {
            let dtype = DTYPES.iter().find(|(_, d)| *d == view.dtype()).map(|(d, _)| *d);
            let dtype = dtype.ok_or_else(|| {
                Error::file(path, format!("tensor {name} has dtype {:?}, unknown here", view.dtype()))
            })?;
            Ok((name.to_string(), Tensor::from_bytes(view.data(), view.shape(), dtype, device)?))
        })
        .collect()
}
