//! Reading and writing named tensors as safetensors files, and replacing files in one step.
//!
//! A write goes to a temporary file beside the target, is synced and renamed, so the target is always the old file or the new
//! one, whole.

#[cfg(feature = "safetensors")]
mod safetensors_file;
#[cfg(feature = "safetensors")]
pub use safetensors_file::*;

use crate::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Gives a file new contents in one step: a crash at any moment leaves the old file or the new one, whole.
///
/// A symbolic link stays one, and an existing file keeps its permissions.
///
/// # Errors
/// [`Error::Io`] with the path, and what `write` reports; the old file is untouched then.
pub fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> Result<()>) -> Result<()> {
    let io = |e| Error::io(path, e);
    let target = followed(path).map_err(io)?;
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".lucid").suffix(".part");
    #[cfg(unix)]
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    // Less the umask, as any new file; the crate's own default is for the owner alone.
    #[cfg(unix)]
    builder.permissions(everyone);
    let part = builder.tempfile_in(folder).map_err(io)?;
    if let Ok(old) = std::fs::metadata(&target) {
        part.as_file().set_permissions(old.permissions()).map_err(io)?;
    }
    let mut file = BufWriter::new(part.as_file());
    write(&mut file)?;
    file.flush().map_err(io)?;
    drop(file);
    part.as_file().sync_all().map_err(io)?;
    part.persist(&target).map_err(|e| io(e.error))?;
    // The rename itself is lasting once the folder is; some file systems do not let folders be synced.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// The file that a path stands for, behind all symbolic links, whether there is one or not.
fn followed(path: &Path) -> std::io::Result<PathBuf> {
    // As many as Linux follows.
    let mut target = path.to_path_buf();
    for _ in 0..40 {
        match std::fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(std::io::Error::other("too many levels of symbolic links"))
}
