//! Keys and values of what a decoder has read, and which of them later tokens may look at.
//!
//! Depends on the engine's ops. Invariant: all layers have the same tokens, but that those with a window may have forgotten
//! the first ones.

use crate::ops::index::cat;
use crate::{Device, Result, Scalar, Tensor};

/// Tokens by which a cache grows at least.
const STEP: usize = 256;

/// The keys and values of one layer, (texts, heads, tokens, head_dim) each.
struct LayerCache {
    buffers: [Tensor; 2],
    /// The number of the first token in them.
    first: usize,
}

/// Keys and values of what a model has read.
#[derive(Default)]
pub struct Cache {
    layers: Vec<LayerCache>,
    length: usize,
    /// Of several texts, how many tokens before each are none of it.
    padding: Vec<usize>,
}

impl Cache {
    /// How many tokens were read.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Was nothing read yet?
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Forgets all but the first `length` tokens, so that another text that begins like this one goes on from there; says
    /// whether that can be, which it cannot where layers with a window have forgotten tokens. What is not longer stays.
    pub fn truncate(&mut self, length: usize) -> bool {
        if length < self.length && self.layers.iter().any(|held| held.first > 0) {
            return false;
        }
        self.length = self.length.min(length);
        true
    }

    /// One of several texts, of which each has so many tokens before it that are none.
    pub(super) fn padded(padding: Vec<usize>) -> Cache {
        Cache { padding, ..Cache::default() }
    }

    /// How many tokens before each text are none of it; nothing where there are none at all.
    pub(super) fn padding(&self) -> &[usize] {
        match self.padding.iter().all(|&n| n == 0) {
            true => &[],
            false => &self.padding,
        }
    }

    /// How many texts it has; `None` while it has nothing.
    pub(super) fn texts(&self) -> Option<usize> {
        self.layers.first().map(|held| held.buffers[0].shape()[0])
    }

    /// All layers have so many tokens more.
    pub(super) fn advance(&mut self, count: usize) {
        self.length += count;
    }

    /// Takes texts by their numbers; one may be taken several times.
    pub(super) fn reorder(&mut self, order: &[usize]) -> Result<()> {
        let Some(first) = self.layers.first() else { return Ok(()) };
        let numbers: Vec<i64> = order.iter().map(|&n| n as i64).collect();
        let numbers = Tensor::of_elements(&numbers, &[order.len()], first.buffers[0].device())?;
        for buffer in self.layers.iter_mut().flat_map(|held| &mut held.buffers) {
            *buffer = buffer.index_select(0, &numbers)?;
        }
        if !self.padding.is_empty() {
            self.padding = order.iter().filter_map(|&n| self.padding.get(n).copied()).collect();
        }
        Ok(())
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.layers.iter().flat_map(|l| &l.buffers).map(|t| t.numel() * t.dtype().size()).sum()
    }

    /// Adds a layer's keys and values; all that it has, and the number of the first token among them.
    pub(super) fn update(
        &mut self,
        layer: usize,
        new: [Tensor; 2],
        window: Option<usize>,
    ) -> Result<([Tensor; 2], usize)> {
        let (start, count) = (self.length, new[0].shape()[2]);
        let end = start + count;
        if self.layers.len() <= layer {
            let buffers = [new[0].contiguous()?, new[1].contiguous()?];
            self.layers.push(LayerCache { buffers, first: start });
            return Ok((new, start));
        }
        let held = &mut self.layers[layer];
        if end - held.first > held.buffers[0].shape()[2] {
            // What no later token looks at is forgotten.
            let first = window.map_or(0, |w| (start + 1).saturating_sub(w)).max(held.first);
            let kept = start - first;
            let room = (2 * kept).max(kept + count).next_multiple_of(STEP);
            for buffer in &mut held.buffers {
                let mut shape = buffer.shape().to_vec();
                shape[2] = room - kept;
                let spare = Tensor::full_of(&shape, Scalar::Float(0.0), buffer.dtype(), buffer.device())?;
                *buffer = cat(&[buffer.narrow(2, (first - held.first) as i64, kept as i64)?, spare], 2)?;
            }
            held.first = first;
        }
        let at = (start - held.first) as i64;
        for (buffer, new) in held.buffers.iter().zip(&new) {
            buffer.narrow(2, at, count as i64)?.copy_(new)?;
        }
        let all = |t: &Tensor| t.narrow(2, 0, at + count as i64);
        Ok(([all(&held.buffers[0])?, all(&held.buffers[1])?], held.first))
    }
}

/// Which tokens the queries of one call may look at.
pub(super) struct Step {
    offset: usize,
    count: usize,
    /// How many tokens before each text are none of it, where some are.
    padding: Vec<usize>,
    device: Device,
    /// A mask for each window and first key that was asked for.
    masks: Vec<(Option<usize>, usize, Option<Tensor>)>,
}

impl Step {
    pub(super) fn new(offset: usize, count: usize, padding: Vec<usize>, device: Device) -> Step {
        Step { offset, count, padding, device, masks: Vec::new() }
    }

    /// Which keys (S) each query (L) may look at, where causality alone does not say it: (L, S), or (B, 1, L, S) of texts
    /// with tokens before them.
    pub(super) fn mask(&mut self, window: Option<usize>, first: usize) -> Result<Option<Tensor>> {
        if let Some((_, _, made)) = self.masks.iter().find(|m| m.0 == window && m.1 == first) {
            return Ok(made.clone());
        }
        let end = self.offset + self.count;
        let within = window.is_none_or(|w| end - first <= w);
        let made = match within && (self.offset == first || self.count == 1) && self.padding.is_empty() {
            true => None,
            false => {
                let reach = window.unwrap_or(usize::MAX);
                let texts = if self.padding.is_empty() { &[0][..] } else { &self.padding };
                // What is before a text sees itself: weights of nothing at all would be no numbers.
                let seen = |query: usize, key: usize, none: usize| {
                    key <= query && query - key < reach && (key >= none || key == query)
                };
                let mut mask = crate::fallible::with_capacity(texts.len() * self.count * (end - first))?;
                for &none in texts {
                    let keys = |query: usize| (first..end).map(move |key| seen(query, key, none));
                    mask.extend((self.offset..end).flat_map(keys));
                }
                let shape = [texts.len(), 1, self.count, end - first];
                let shape = if self.padding.is_empty() { &shape[2..] } else { &shape[..] };
                Some(Tensor::of_elements(&mask, shape, self.device)?)
            }
        };
        self.masks.push((window, first, made.clone()));
        Ok(made)
    }
}
