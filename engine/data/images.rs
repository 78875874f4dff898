//! Pictures from files: one, or a folder of folders, one for each class.

use super::Dataset;
use crate::{Device, Error, Result, Tensor};
use image::imageops::FilterType;
use std::path::{Path, PathBuf};

const ENDINGS: [&str; 3] = ["jpeg", "jpg", "png"];

/// Reads a PNG or JPEG file: (3, height, width) of float32 from 0 to 1, red, green and blue, on the CPU.
///
/// # Errors
/// [`Error::Io`] with the path where the file cannot be read or is no picture.
pub fn read_image(path: impl AsRef<Path>) -> Result<Tensor> {
    read(path.as_ref(), None)
}

fn read(path: &Path, size: Option<(u32, u32)>) -> Result<Tensor> {
    let bytes = std::fs::read(path).map_err(|e| Error::io(path, e))?;
    let picture = image::load_from_memory(&bytes).map_err(|e| Error::file(path, format!("not a picture: {e}")))?;
    let picture = match size {
        Some((height, width)) => picture.resize_exact(width, height, FilterType::Triangle),
        None => picture,
    };
    let picture = picture.to_rgb8();
    let shape = [picture.height() as usize, picture.width() as usize, 3];
    let channels = Tensor::of_elements(picture.as_raw(), &shape, Device::Cpu)?.permute(&[2, 0, 1])?;
    (channels.cast(crate::DType::F32)? / 255.0)?.contiguous()
}

/// Pictures in folders named by their class, as PyTorch's `ImageFolder` has them: `root/cat/1.png`. Classes are numbered in the
/// order of their names. A sample is the picture, (3, height, width) of float32 from 0 to 1, and the class's number.
///
/// ```
/// use lucid::data::ImageFolder;
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let root = tempfile::tempdir().unwrap();
/// for (class, red) in [("dusk", 255), ("night", 0)] {
///     std::fs::create_dir(root.path().join(class)).unwrap();
///     let picture = image::RgbImage::from_pixel(6, 4, image::Rgb([red, 0, 51]));
///     picture.save(root.path().join(class).join("1.png")).unwrap();
/// }
/// let folder = ImageFolder::new(root.path())?.resize(2, 3)?;
/// assert_eq!(folder.classes(), ["dusk", "night"]);
/// let (pictures, classes) = DataLoader::new(folder, 2).iter()?.next().unwrap()?;
/// assert_eq!(pictures.shape(), [2, 3, 2, 3]);
/// assert_close(pictures.i((.., .., 1, 2))?, [[1.0, 0.0, 0.2], [0.0, 0.0, 0.2]]);
/// assert_eq!(classes.to_vec::<i64>()?, [0, 1]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ImageFolder {
    classes: Vec<String>,
    samples: Vec<(PathBuf, i64)>,
    size: Option<(u32, u32)>,
}

impl ImageFolder {
    /// The pictures below the folders in `root`, in the order of their names.
    ///
    /// # Errors
    /// [`Error::Io`] with the path where a folder cannot be read, there is none in `root`, or one has no pictures.
    pub fn new(root: impl AsRef<Path>) -> Result<ImageFolder> {
        let root = root.as_ref();
        let folders: Vec<PathBuf> = listed(root)?.into_iter().filter(|p| p.is_dir()).collect();
        if folders.is_empty() {
            return Err(Error::file(root, "there are no folders in it, one for each class"));
        }
        let (mut classes, mut samples) = (Vec::new(), Vec::new());
        for (class, folder) in folders.iter().enumerate() {
            let before = samples.len();
            let mut open = vec![folder.clone()];
            while let Some(path) = open.pop() {
                // From the last, since the stack gives the last first.
                open.extend(listed(&path)?.into_iter().rev().filter(|p| p.is_dir()));
                let pictures = listed(&path)?.into_iter().filter(|p| p.is_file() && is_picture(p));
                samples.extend(pictures.map(|p| (p, class as i64)));
            }
            if samples.len() == before {
                return Err(Error::file(folder, format!("there are no pictures in it (.{})", ENDINGS.join(", ."))));
            }
            classes.push(folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default());
        }
        Ok(ImageFolder { classes, samples, size: None })
    }

    /// Pictures are resized to these sizes, which batches need where the files differ.
    ///
    /// # Errors
    /// For a size of 0, or above 2¹⁶.
    pub fn resize(mut self, height: usize, width: usize) -> Result<ImageFolder> {
        if [height, width].iter().any(|&n| n == 0 || n > 1 << 16) {
            return Err(Error::value("image_folder", format!("sizes are from 1 to 2¹⁶, got {height} and {width}")));
        }
        self.size = Some((height as u32, width as u32));
        Ok(self)
    }

    /// The names of the classes, by number.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The files and their classes.
    pub fn samples(&self) -> &[(PathBuf, i64)] {
        &self.samples
    }
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::io(folder, e))?;
    let mut paths =
        entries.map(|e| Ok(e?.path())).collect::<std::io::Result<Vec<_>>>().map_err(|e| Error::io(folder, e))?;
    paths.sort();
    Ok(paths)
}

fn is_picture(path: &Path) -> bool {
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    ENDINGS.contains(&ending.as_str())
}

impl Dataset for ImageFolder {
    type Item = (Tensor, i64);
    fn len(&self) -> usize {
        self.samples.len()
    }
    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        let sample = self.samples.get(index);
        let (path, class) = sample
            .ok_or_else(|| Error::index("image_folder", format!("no sample {index} of {}", self.samples.len())))?;
        Ok((read(path, self.size)?, *class))
    }
}
