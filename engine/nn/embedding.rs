//! Embedding tables.

use super::module::located;
use super::options::{dtype_or_default, filled, options};
use super::{Forward, Module, Place};
use crate::ops::{nn, scatter};
use crate::{no_grad, DType, Device, Error, Result, Tensor};

/// Rows of a table, by index: (…) of integers to (…, size).
#[derive(Clone, Debug, Module)]
pub struct Embedding {
    /// (count, size)
    pub weight: Tensor,
    padding_idx: Option<i64>,
    sparse: bool,
    place: Place,
}

options! {
    /// What an [`Embedding`] is made of.
    EmbeddingOptions for Embedding (
        /// How many rows.
        num_embeddings: usize, usize;
        /// How long each is.
        embedding_dim: usize, usize;
    )
    /// A row that is zeros and is not trained. Default: none.
    padding_idx: Option<i64>, i64 = None;
    /// Is the gradient a sparse tensor? Default: false.
    sparse: bool, bool = false;
}

/// A table of normal numbers, with the padding's row zeros.
fn table(
    rows: usize,
    size: usize,
    padding: Option<i64>,
    dtype: DType,
    device: Device,
) -> Result<(Tensor, Option<i64>)> {
    let too_many = |_| Error::value("embedding", format!("num_embeddings must be below 2⁶³, got {rows}"));
    let count = i64::try_from(rows).map_err(too_many)?;
    let padding = match padding {
        Some(i) if i < -count || i >= count => {
            let why = format!("padding_idx must be within num_embeddings {rows}, got {i}");
            return Err(Error::value("embedding", why));
        }
        other => other.map(|i| if i < 0 { i + count } else { i }),
    };
    let weight = filled(&[rows, size], 0.0, dtype, device)?;
    weight.normal_(0.0, 1.0, None)?;
    if let Some(i) = padding {
        let row = weight.select(0, i)?;
        no_grad(|| row.copy_(&row.zeros_like()?))?;
    }
    Ok((weight.requires_grad_(true)?, padding))
}

impl EmbeddingOptions {
    fn make(&self, device: Device) -> Result<Embedding> {
        let dtype = dtype_or_default(self.dtype);
        let (weight, padding_idx) = table(self.num_embeddings, self.embedding_dim, self.padding_idx, dtype, device)?;
        Ok(Embedding { weight, padding_idx, sparse: self.sparse, place: Place::default() })
    }
}

impl Forward for Embedding {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || nn::embedding(input, &self.weight, self.padding_idx, self.sparse))
    }
}

/// What becomes of the rows of a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// Their maxima.
    Max,
}

/// Sums, means or maxima of bags of rows: (bags, length) of integers to (bags, size).
#[derive(Clone, Debug, Module)]
pub struct EmbeddingBag {
    /// (count, size)
    pub weight: Tensor,
    #[module(skip)]
    mode: BagMode,
    padding_idx: Option<i64>,
    place: Place,
}

options! {
    /// What an [`EmbeddingBag`] is made of.
    EmbeddingBagOptions for EmbeddingBag (
        /// How many rows.
        num_embeddings: usize, usize;
        /// How long each is.
        embedding_dim: usize, usize;
    )
    /// What becomes of the rows of a bag. Default: their mean.
    mode: BagMode, BagMode = BagMode::Mean;
    /// An index that counts nothing. Default: none.
    padding_idx: Option<i64>, i64 = None;
}

impl EmbeddingBagOptions {
    fn make(&self, device: Device) -> Result<EmbeddingBag> {
        let dtype = dtype_or_default(self.dtype);
        let (weight, padding_idx) = table(self.num_embeddings, self.embedding_dim, self.padding_idx, dtype, device)?;
        Ok(EmbeddingBag { weight, mode: self.mode, padding_idx, place: Place::default() })
    }
}

impl Forward for EmbeddingBag {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || {
            if input.ndim() != 2 {
                let why = "expected bags of one length (bags, length); `bags` takes offsets";
                return Err(Error::shape("embedding_bag", why, &[input.shape()]));
            }
            let rows = nn::embedding(input, &self.weight, self.padding_idx, false)?;
            let counts = match self.padding_idx {
                Some(i) => input.ne(i as f64)?,
                None => input.eq(input)?,
            }
            .unsqueeze(-1)?;
            let counted = |rest: f64| where_counted(&rows, &counts, rest);
            match self.mode {
                BagMode::Sum => counted(0.0)?.sum(Some(&[1]), false, None),
                BagMode::Mean => {
                    let n = counts.cast(rows.dtype())?.sum(Some(&[1]), false, None)?;
                    counted(0.0)?.sum(Some(&[1]), false, None)? / n.clamp(Some(1.0.into()), None)?
                }
                BagMode::Max => {
                    let most = counted(f64::NEG_INFINITY)?.amax(Some(&[1]), false)?;
                    let any = counts.any(Some(&[1]), false)?;
                    where_counted(&most, &any, 0.0)
                }
            }
        })
    }
}

/// The elements where the mask is set, and a number elsewhere.
fn where_counted(x: &Tensor, mask: &Tensor, rest: f64) -> Result<Tensor> {
    x.masked_fill(&mask.logical_not()?, rest)
}

impl EmbeddingBag {
    /// Bags of a vector of indices, each from one of the offsets (bags) to before the next: (bags, size). Sums and means.
    ///
    /// # Errors
    /// For offsets that do not begin at 0, and for maxima, which take bags of one length.
    pub fn bags(&self, indices: &Tensor, offsets: &Tensor) -> Result<Tensor> {
        located(self, || {
            let bad = |why: &str| Err(Error::shape("embedding_bag", why, &[indices.shape(), offsets.shape()]));
            if indices.ndim() != 1 || offsets.ndim() != 1 {
                return bad("expected vectors of indices and of offsets");
            }
            let starts = offsets.cast(DType::I64)?.to_vec::<i64>()?;
            let total = indices.numel() as i64;
            let sorted = starts.windows(2).all(|w| w[0] <= w[1]) && starts.last().is_none_or(|&s| s <= total);
            if !sorted || starts.first().is_some_and(|&s| s != 0) {
                return bad("offsets begin at 0, do not fall, and are within the indices");
            }
            if self.mode == BagMode::Max {
                return Err(Error::not_implemented("embedding_bag", "maxima by offsets; give bags of one length"));
            }
            let mut bag_of = Vec::new();
            for (bag, &start) in starts.iter().enumerate() {
                let end = starts.get(bag + 1).copied().unwrap_or(total);
                bag_of.extend((start..end).map(|_| bag as i64));
            }
            let bag_of = Tensor::of_elements(&bag_of, &[bag_of.len()], indices.device())?;
            let rows = nn::embedding(indices, &self.weight, self.padding_idx, false)?;
            let counted = match self.padding_idx {
                Some(i) => indices.ne(i as f64)?,
                None => indices.eq(indices)?,
            }
            .unsqueeze(-1)?
            .cast(rows.dtype())?;
            let blank = |n: usize| filled(&[starts.len(), n], 0.0, rows.dtype(), rows.device());
            let size = self.weight.shape()[1];
            let sums = scatter::index_add(&blank(size)?, 0, &bag_of, &(&rows * &counted)?, 1)?;
            if self.mode == BagMode::Sum {
                return Ok(sums);
            }
            let counts = scatter::index_add(&blank(1)?, 0, &bag_of, &counted, 1)?;
            sums / counts.clamp(Some(1.0.into()), None)?
        })
    }
}
