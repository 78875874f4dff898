//! Padding by a number, by mirror images, by edges and around: the body of `pad`.
//!
//! Made of views, `cat` and indexing, so that it runs on both backends and needs no gradient rule of its own.

use crate::autograd::OpScope;
use crate::shape::Shape;
use crate::{Error, MemoryFormat, Result, Scalar, Tensor};

pub(super) fn pad_body(x: &Tensor, pad: &[isize], mode: &str, value: Option<Scalar>) -> Result<Tensor> {
    if !pad.len().is_multiple_of(2) {
        return Err(Error::runtime("pad", format!("Padding length must be divisible by 2, got {}", pad.len())));
    }
    if pad.len() > 2 * x.ndim() {
        let why = format!(
            "Padding length should be less than or equal to two times the input dimension but got padding length {} and input of dimension {}",
            pad.len(),
            x.ndim()
        );
        return Err(Error::shape("pad", why, &[x.shape()]));
    }
    // PyTorch has these as ops of their own, whose gradients' gradients are zeros; "circular" is made of others there, too.
    if matches!(mode, "reflect" | "replicate") {
        OpScope::mark_piecewise_linear("pad");
    }
    match (mode, pad.len() / 2) {
        ("constant", _) => OpScope::rename("pad", "constant_pad_nd"),
        ("reflect", 1) => OpScope::rename("pad", "reflection_pad1d"),
        ("reflect", 2) => OpScope::rename("pad", "reflection_pad2d"),
        ("reflect", 3) => OpScope::rename("pad", "reflection_pad3d"),
        ("replicate", 1) => OpScope::rename("pad", "replication_pad1d"),
        ("replicate", 2) => OpScope::rename("pad", "replication_pad2d"),
        ("replicate", 3) => OpScope::rename("pad", "replication_pad3d"),
        _ => {}
    }
    if mode == "constant" {
        return super::index::constant_pad_nd(x, pad, value.unwrap_or(Scalar::ZERO));
    }
    if !["reflect", "replicate", "circular"].contains(&mode) {
        return Err(Error::not_implemented("pad", format!("Unrecognised padding mode {mode}")));
    }
    if value.is_some_and(|v| v.to_f64() != 0.0) {
        return Err(Error::runtime("pad", format!("Padding mode \"{mode}\" doesn't take in value argument")));
    }
    let padded = pad.len() / 2;
    if !(1..=3).contains(&padded) || !(padded + 1..=padded + 2).contains(&x.ndim()) {
        let why = format!(
            "mode \"{mode}\" pads the last one, two or three dimensions, beside one or two others; got {padded} of {}",
            x.ndim()
        );
        return Err(Error::not_implemented("pad", why));
    }
    // Its own kernels are for elements; only the batch may be empty.
    let batch = usize::from(x.ndim() == padded + 2);
    if mode != "circular" && x.shape()[batch..].contains(&0) {
        let why = "expected a tensor with possibly 0 batch size and other non-zero dimensions for input";
        return Err(Error::shape("pad", why, &[x.shape()]));
    }
    let mut y = x.clone();
    for (i, ends) in pad.chunks(2).enumerate() {
        y = pad_dim(&y, x.ndim() - 1 - i, ends[0], ends[1], mode)?;
    }
    let y = if y.is_same(x) { x.copy()? } else { y };
    y.result_of(x, if mode == "circular" { MemoryFormat::Contiguous } else { x.suggested_format() })
}

fn pad_dim(x: &Tensor, axis: usize, low: isize, high: isize, mode: &str) -> Result<Tensor> {
    let (dim, n) = (axis as isize, x.shape()[axis] as isize);
    if (low, high) == (0, 0) {
        return Ok(x.clone());
    }
    let (before, after) = (low.max(0), high.max(0));
    let rest = n.saturating_add(low.min(0)).saturating_add(high.min(0));
    let size = rest.saturating_add(before).saturating_add(after);
    if mode == "replicate" && rest < 1 && n > 0 && size > 0 {
        // More is cut off at one end than there is: what is left is made of copies of the other.
        let size = super::create::sizes("pad", &[size])?[0];
        let mut places = super::create::room("pad", size)?;
        places.extend((0..size as isize).map(|i| (i - low).clamp(0, n - 1) as i64));
        return x.index_select(dim, &Tensor::of_elements(&places, &[size], x.device())?);
    }
    let room = match mode {
        "reflect" => rest - 1,
        "circular" => rest,
        _ => isize::MAX >> 1,
    };
    if rest < 1 || before > room || after > room {
        let why = format!(
            "Padding size should be less than the corresponding input dimension, but got: padding ({low}, {high}) at dimension {axis} of size {n}, mode \"{mode}\""
        );
        return Err(Error::shape("pad", why, &[x.shape()]));
    }
    let x = if rest < n { x.narrow(dim, (-low.min(0)) as i64, rest as i64)? } else { x.clone() };
    let part = |len: isize, start: isize| -> Result<Option<Tensor>> {
        Ok(match (len, mode) {
            (0, _) => None,
            (_, "replicate") => {
                let mut shape = Shape::from_slice(x.shape());
                shape[axis] = super::create::sizes("pad", &[len])?[0];
                let edge = if start == 0 { 0 } else { rest - 1 };
                Some(super::view::expand_to(&x.narrow(dim, edge as i64, 1)?, &shape)?)
            }
            (_, "reflect") => {
                let mirrored = x.narrow(dim, if start == 0 { 1 } else { (rest - 1 - len) as i64 }, len as i64)?;
                // One place is its own mirror image.
                Some(if len == 1 { mirrored } else { mirrored.flip(&[dim])? })
            }
            _ if start == 0 => Some(x.narrow(dim, (rest - len) as i64, len as i64)?),
            _ => Some(x.narrow(dim, 0, len as i64)?),
        })
    };
    let parts: Vec<Tensor> = [part(before, 0)?, Some(x.clone()), part(after, 1)?].into_iter().flatten().collect();
    match parts.as_slice() {
        [only] => Ok(only.clone()),
        parts => super::index::cat(parts, dim),
    }
}
