//! Data: sets of samples, loaders that make batches of them (in threads, shuffled by a seed), and files.
//!
//! ```
//! use lucid::prelude::*;
//! use lucid::data::TensorDataset;
//! # fn main() -> Result<()> {
//! let x = Tensor::arange(0, 10)?.reshape(dims![10, 1])?;
//! let y = Tensor::arange(0, 10)?;
//! let loader = DataLoader::new(TensorDataset::new([x, y])?, 4).shuffle(7).workers(2);
//! assert_eq!(loader.len(), 3);
//! for batch in loader.iter()? {
//!     let [x, y] = batch?;
//!     assert_close(x.flatten(0, -1)?, y);
//! }
//! # Ok(())
//! # }
//! ```

mod files;
#[cfg(feature = "image")]
mod images;
mod loader;

pub use files::{read_csv, read_idx, Table};
#[cfg(feature = "image")]
pub use images::{read_image, ImageFolder};
pub use loader::{Batches, DataLoader};

use crate::ops::index::stack;
use crate::{Device, Error, Result, Tensor};

/// Samples by number.
pub trait Dataset: Send + Sync + 'static {
    /// One sample.
    type Item: Collate;

    /// How many there are.
    fn len(&self) -> usize;

    /// The sample of that number.
    ///
    /// # Errors
    /// Where it cannot be had; the loader passes it on.
    fn get(&self, index: usize) -> Result<Self::Item>;

    /// Is there none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A sample that batches are made of.
#[diagnostic::on_unimplemented(
    message = "batches of `{Self}` are not known",
    label = "not a sample that batches are made of",
    note = "samples are tensors, numbers (f32, f64, i32, i64, u8, bool), strings and tuples of them; implement `lucid::data::Collate` \
            for others"
)]
pub trait Collate: Sized + Send + 'static {
    /// What samples become together.
    type Batch: Send + 'static;

    /// The samples as one batch.
    ///
    /// # Errors
    /// For samples of different shapes.
    fn collate(items: Vec<Self>) -> Result<Self::Batch>;
}

impl Collate for Tensor {
    type Batch = Tensor;
    fn collate(items: Vec<Tensor>) -> Result<Tensor> {
        stack(&items, 0)
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Collate for $number {
            type Batch = Tensor;
            fn collate(items: Vec<$number>) -> Result<Tensor> {
                Tensor::of_elements(&items, &[items.len()], Device::Cpu)
            }
        }
    )*};
}
numbers!(f32 f64 i64 i32 u8 bool);

impl Collate for String {
    type Batch = Vec<String>;
    fn collate(items: Vec<String>) -> Result<Vec<String>> {
        Ok(items)
    }
}

impl<const N: usize> Collate for [Tensor; N] {
    type Batch = [Tensor; N];
    fn collate(items: Vec<[Tensor; N]>) -> Result<[Tensor; N]> {
        let column = |i: usize| stack(&items.iter().map(|row| row[i].clone()).collect::<Vec<_>>(), 0);
        let columns = (0..N).map(column).collect::<Result<Vec<_>>>()?;
        columns.try_into().map_err(|_| Error::runtime("collate", "a column is missing"))
    }
}

macro_rules! tuples {
    ($($($T:ident $list:ident)+;)*) => {$(
        impl<$($T: Collate),+> Collate for ($($T,)+) {
            type Batch = ($($T::Batch,)+);
            #[allow(non_snake_case)]
            fn collate(items: Vec<Self>) -> Result<Self::Batch> {
                $(let mut $list = Vec::new();)+
                for ($($T,)+) in items {
                    $($list.push($T);)+
                }
                Ok(($($T::collate($list)?,)+))
            }
        }
    )*};
}
tuples! { A a; A a B b; A a B b C c; A a B b C c D d; }

/// Tensors whose first dimension counts the samples.
#[derive(Clone, Debug)]
pub struct TensorDataset<const N: usize>([Tensor; N]);

impl<const N: usize> TensorDataset<N> {
    /// Of tensors with as many samples each.
    ///
    /// # Errors
    /// Where they differ in that.
    pub fn new(tensors: [Tensor; N]) -> Result<TensorDataset<N>> {
        let counts: Vec<Option<&usize>> = tensors.iter().map(|t| t.shape().first()).collect();
        if counts.iter().any(|c| c.is_none() || *c != counts[0]) {
            let shapes: Vec<&[usize]> = tensors.iter().map(Tensor::shape).collect();
            return Err(Error::shape("tensor_dataset", "size mismatch between tensors", &shapes));
        }
        Ok(TensorDataset(tensors))
    }
}

impl<const N: usize> Dataset for TensorDataset<N> {
    type Item = [Tensor; N];
    fn len(&self) -> usize {
        self.0.first().and_then(|t| t.shape().first()).copied().unwrap_or(0)
    }
    fn get(&self, index: usize) -> Result<[Tensor; N]> {
        let rows = self.0.iter().map(|t| t.select(0, index as i64)).collect::<Result<Vec<_>>>()?;
        rows.try_into().map_err(|_| Error::runtime("tensor_dataset", "a column is missing"))
    }
}

/// Samples that a function makes by number.
pub struct FnDataset<F> {
    len: usize,
    make: F,
}

impl<T: Collate, F: Fn(usize) -> Result<T> + Send + Sync + 'static> FnDataset<F> {
    /// As many samples, each made by the function.
    pub fn new(len: usize, make: F) -> FnDataset<F> {
        FnDataset { len, make }
    }
}

impl<T: Collate, F: Fn(usize) -> Result<T> + Send + Sync + 'static> Dataset for FnDataset<F> {
    type Item = T;
    fn len(&self) -> usize {
        self.len
    }
    fn get(&self, index: usize) -> Result<T> {
        (self.make)(index)
    }
}

/// Some samples of a set.
pub struct Subset<D> {
    dataset: std::sync::Arc<D>,
    indices: Vec<usize>,
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;
    fn len(&self) -> usize {
        self.indices.len()
    }
    fn get(&self, index: usize) -> Result<D::Item> {
        let at = self.indices.get(index).copied();
        let at = at.ok_or_else(|| Error::index("subset", format!("no sample {index} of {}", self.indices.len())))?;
        self.dataset.get(at)
    }
}

/// Divides a set at random into parts of these lengths.
///
/// # Errors
/// Where the lengths are not as many samples in all as there are.
pub fn random_split<D: Dataset>(dataset: D, lengths: &[usize], seed: u64) -> Result<Vec<Subset<D>>> {
    let total = lengths.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
    if total != Some(dataset.len()) {
        let why = format!("lengths {lengths:?} for {} samples", dataset.len());
        return Err(Error::value("random_split", why));
    }
    let order = loader::permutation(dataset.len(), seed)?;
    let dataset = std::sync::Arc::new(dataset);
    let mut rest = &order[..];
    let part = |&n: &usize| {
        let (own, left) = rest.split_at(n);
        rest = left;
        Subset { dataset: dataset.clone(), indices: own.to_vec() }
    };
    Ok(lengths.iter().map(part).collect())
}
