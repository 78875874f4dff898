//! A decoder's layer for one more token of a few texts, in one launch on NVIDIA GPUs: what is between two points where all of
//! a row is needed is a stage, and stages follow one another inside of the kernel, whose groups read the next matrices while
//! they wait.
//!
//! Depends on `row_product` and `decode_kernels`. Groups take numbered pieces of work in order, and wait for pieces of lower
//! numbers alone, which groups that run have taken: so it ends however few of them run at once. Invariants: keys and values
//! are written in memory that nothing else shows (see `written`); a buffer of counts serves one launch, and the next one's is
//! made of zeros by it.

use super::array::GpuArray;
use super::convert::int;
use super::custom_kernel::{self, GROUP};
use super::decode_kernels::Sizes;
use super::decoder_layer::DecoderLayer;
use super::emulator::{self, Language};
use super::kernel_error::Made;
use super::layer_kernel_text::{scratch, text};
use super::layer_product_text::Product;
use super::row_product::{self, After, Plan, RowMatrix, Rows};
use super::written::{self, Written};
use mlx_ffi::{device, Array, Dtype};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Elements of a head that a thread takes.
pub(super) const EACH: usize = 8;
/// Groups of a launch: two for each processor of the largest GPUs. On smaller ones the last find nothing to do.
const GROUPS: usize = 264;
/// Queries that share keys which one group takes at once.
const TOGETHER: usize = 4;

/// What a layer's work is divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Projections,
    Attention,
    Joined,
    Gates,
    Last,
}

/// In order.
pub(super) const STAGES: [Stage; 5] = [Stage::Projections, Stage::Attention, Stage::Joined, Stage::Gates, Stage::Last];

/// What a text is written for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct LayerPlan {
    pub kind: &'static str,
    /// Heads of queries, of keys, and elements of a head.
    pub heads: [usize; 3],
    /// The bits of what is added to mean squares, and of what scores are multiplied by.
    pub numbers: [u32; 2],
    /// Pieces of the keys, which groups of their own look at.
    pub splits: usize,
    /// The stages that are products.
    pub stages: [Plan; 4],
}

impl LayerPlan {
    /// Texts, of one token each.
    pub(super) fn rows(&self) -> usize {
        self.stages[0].rows
    }

    pub(super) fn hidden(&self) -> usize {
        self.stages[0].columns
    }

    /// A stage's products.
    pub(super) fn stage(&self, stage: Stage) -> Option<&Plan> {
        Some(match stage {
            Stage::Projections => &self.stages[0],
            Stage::Attention => return None,
            Stage::Joined => &self.stages[1],
            Stage::Gates => &self.stages[2],
            Stage::Last => &self.stages[3],
        })
    }

    /// Queries that a group takes at once.
    pub(super) fn together(&self) -> usize {
        let shared = self.heads[0] / self.heads[1];
        (1..=TOGETHER.min(shared)).rev().find(|&n| shared.is_multiple_of(n)).unwrap_or(1)
    }

    /// Sets of such queries that share keys.
    pub(super) fn sets(&self) -> usize {
        self.heads[0] / self.heads[1] / self.together()
    }

    /// Such sets of all texts.
    fn all_sets(&self) -> usize {
        self.rows() * self.heads[1] * self.sets()
    }

    /// Pieces of work of a stage.
    pub(super) fn groups(&self, stage: Stage) -> usize {
        self.stage(stage).map_or(self.all_sets() * self.splits, |plan| Product::of(plan).map_or(0, |p| p.groups()))
    }

    /// How often a stage says that something is done.
    pub(super) fn ended(&self, stage: Stage) -> usize {
        if stage == Stage::Attention {
            self.all_sets()
        } else {
            self.groups(stage)
        }
    }

    /// Counts that a launch needs: behind them are how many tokens there are, and the room for them.
    pub(super) fn place(&self) -> usize {
        STAGES.len() + 1 + self.all_sets()
    }

    /// Numbers of attention that a group's warps exchange.
    pub(super) fn exchanged(&self) -> usize {
        GROUP / 32 * self.kept()
    }

    /// Numbers that are kept of a piece: of each query the largest score, the sum of weights and the weighted values.
    fn kept(&self) -> usize {
        self.together() * (self.heads[2] + 2)
    }

    /// What tells its kernel from others.
    fn key(&self) -> Arc<str> {
        thread_local! {
            static KEYS: RefCell<HashMap<LayerPlan, Arc<str>>> = RefCell::default();
        }
        let made = || {
            let stages: Vec<_> = self.stages.iter().map(Plan::key).collect();
            let LayerPlan { kind, heads, numbers, splits, .. } = self;
            format!("decoder layer {kind} {heads:?} {numbers:?} {splits} {stages:?}")
        };
        KEYS.with_borrow_mut(|keys| match keys.get(self) {
            Some(key) => Arc::clone(key),
            None => Arc::clone(keys.entry(self.clone()).or_insert_with(|| made().into())),
        })
    }
}

/// The arrays of a layer's step beside its matrices.
pub(super) struct Token<'a> {
    /// The rows (B, 1, hidden).
    pub x: &'a Array,
    /// Weights of the norms.
    pub norms: [&'a Array; 2],
    /// Cosines and sines (1, head / 2).
    pub angles: [&'a Array; 2],
    /// Keys and values (B, kv heads, room, head).
    pub buffers: [&'a GpuArray; 2],
    /// Tokens that are there.
    pub at: usize,
}

/// Has the GPU units that multiply matrices of bfloat16 numbers?
fn multiplies_matrices() -> bool {
    static HERE: OnceLock<bool> = OnceLock::new();
    let known = || device::info().ok().and_then(|info| info.compute_capability).is_some_and(|(major, _)| major >= 8);
    emulator::language().is_some() || *HERE.get_or_init(known)
}

/// A plan, and what of it each launch asks for.
struct Launched {
    plan: LayerPlan,
    key: Arc<str>,
    /// Numbers that stages leave for one another, in the rows' dtype and in float32.
    between: [i32; 2],
    /// Counts, behind which are two numbers more.
    counts: usize,
    threads: usize,
}

impl Launched {
    fn of(plan: LayerPlan) -> Made<Launched> {
        let groups = STAGES.iter().map(|&s| plan.groups(s)).max().unwrap_or(1);
        Ok(Launched {
            key: plan.key(),
            between: [
                int(scratch(&plan).iter().map(|(_, n)| n).sum())?,
                int(plan.all_sets() * plan.splits * plan.kept())?,
            ],
            counts: plan.place(),
            threads: groups.min(GROUPS) * GROUP,
            plan,
        })
    }
}

/// What a plan was made for: rows, the function and numbers of the layer, the room for keys, and how often each of its arrays had
/// been written. Who has a [`KnownLayer`] has the same arrays each time.
#[derive(PartialEq)]
struct Conditions {
    rows: [usize; 3],
    dtype: crate::DType,
    language: Option<Language>,
    numbers: [u64; 2],
    gate: row_product::Gate,
    writes: SmallVec<[u32; 32]>,
}

/// The plan of a layer's last launch, which holds as long as nobody writes its matrices. It holds none of them.
#[derive(Default)]
pub struct KnownLayer(Mutex<Option<(Conditions, Arc<Launched>)>>);

impl KnownLayer {
    /// The plan of a layer's launch, made anew where something has changed; `None` where there is none.
    fn launched(
        &self,
        of: Rows,
        layer: &DecoderLayer<'_>,
        kind: &'static str,
        token: &Token<'_>,
    ) -> Made<Option<Arc<Launched>>> {
        // What is recorded is new memory: embeddings, or a layer's result.
        if token.x.is_evaluated() && !row_product::aligned(token.x)? {
            return Ok(None);
        }
        let packed = |m: &RowMatrix<'_>| m.packed.map(|(scales, biases, ..)| [scales.writes(), biases.writes()]);
        let now = Conditions {
            rows: [of.rows, of.columns, token.buffers[0].shape()[2]],
            dtype: of.dtype,
            language: custom_kernel::language().filter(|_| row_product::is_wanted()),
            numbers: [layer.eps, layer.scale].map(f64::to_bits),
            gate: layer.gate,
            writes: layer
                .matrices()
                .flat_map(|m| {
                    let packed = packed(m).into_iter().flatten();
                    [m.weight.writes()].into_iter().chain(packed).chain(m.bias.map(GpuArray::writes))
                })
                .chain(layer.norms.iter().map(|n| n.writes()))
                .collect(),
        };
        if let Some((then, launched)) = &*self.0.lock()
            && *then == now
        {
            return Ok(Some(Arc::clone(launched)));
        }
        let Some(plan) = plan(of, layer, kind, token)? else { return Ok(None) };
        let launched = Arc::new(Launched::of(plan)?);
        *self.0.lock() = Some((now, Arc::clone(&launched)));
        Ok(Some(launched))
    }
}

impl std::fmt::Debug for KnownLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KnownLayer({})", if self.0.lock().is_some() { "a plan" } else { "nothing" })
    }
}

/// The plan of a layer's launch; `None` where there is none.
fn plan(of: Rows, layer: &DecoderLayer<'_>, kind: &'static str, token: &Token<'_>) -> Made<Option<LayerPlan>> {
    let [heads, kv_heads, head] = layer.heads;
    let sizes = Sizes { batch: of.rows, heads, kv_heads, head, count: 1, room: token.buffers[0].shape()[2] };
    let able = custom_kernel::language() == Some(Language::Cuda) && multiplies_matrices();
    let able = able && row_product::aligned(token.norms[0])? && row_product::aligned(token.norms[1])?;
    if !able || !sizes.fit() || !heads.is_multiple_of(kv_heads) {
        return Ok(None);
    }
    let rotation = After::Rotated { head, cos: token.angles[0], sin: token.angles[1] };
    let one = std::slice::from_ref::<RowMatrix<'_>>;
    let (joined, inside) = (Rows { columns: heads * head, ..of }, Rows { columns: layer.last.columns(), ..of });
    let projections = row_product::plan(of, true, &layer.projections, &rotation)?;
    let joined = row_product::plan(joined, false, one(&layer.joined), &After::Added(token.x))?;
    let gates = row_product::plan(of, true, &layer.gates, &After::Gated(layer.gate))?;
    let last = row_product::plan(inside, false, one(&layer.last), &After::Added(token.x))?;
    let (Some(projections), Some(joined), Some(gates), Some(last)) = (projections, joined, gates, last) else {
        return Ok(None);
    };
    let fits = projections.sizes[..] == [heads * head, kv_heads * head, kv_heads * head]
        && gates.sizes[0] == last.columns
        && last.sizes[0] == of.columns;
    let fits = fits && [&projections, &joined, &gates, &last].into_iter().all(|p| Product::of(p).is_some());
    let numbers = [layer.eps as f32, layer.scale as f32].map(f32::to_bits);
    let mut plan =
        LayerPlan { kind, heads: layer.heads, numbers, splits: 1, stages: [projections, joined, gates, last] };
    plan.splits = (GROUPS / plan.all_sets()).clamp(1, 32);
    Ok(fits.then_some(plan))
}

/// The layer's result (B, 1, hidden), with keys and values written; `None` where no kernel takes it.
pub(super) fn launch(of: Rows, layer: &DecoderLayer<'_>, kind: &'static str, token: &Token<'_>) -> Made<Option<Array>> {
    let Some(launched) = layer.known.launched(of, layer, kind, token)? else { return Ok(None) };
    let (rows, counts) = (of.rows, launched.counts);
    let Some([keys, values]) = written::both(token.buffers, counts, token.at)? else { return Ok(None) };
    let logical = |a: &GpuArray| -> Made<Array> { Ok(a.value()?.logical()?.into_owned()) };
    let mut inputs: SmallVec<[Array; 40]> = SmallVec::new();
    inputs.extend([
        token.x.clone(),
        token.norms[0].clone(),
        token.norms[1].clone(),
        token.angles[0].clone(),
        token.angles[1].clone(),
        keys.memory.clone(),
        values.memory,
        keys.by,
    ]);
    // Keys, values and counts, in the order of the text.
    let in_place = [5, 6, 7];
    for m in layer.matrices() {
        inputs.push(logical(m.weight)?);
        if let Some((scales, biases, ..)) = m.packed {
            inputs.extend([logical(scales)?, logical(biases)?]);
        }
        if let Some(bias) = m.bias {
            inputs.push(logical(bias)?);
        }
    }
    let dtype = super::convert::dtype(of.dtype)?;
    let [sizes, parts] = launched.between.map(|n| [n]);
    let (out, counts) = ([int(rows)?, 1, int(of.columns)?], [int(counts + 2)?]);
    let outputs = [(&out[..], dtype), (&sizes[..], dtype), (&parts[..], Dtype::Float32), (&counts[..], Dtype::Uint32)];
    let refs: SmallVec<[&Array; 40]> = inputs.iter().collect();
    let body = || text(&launched.plan);
    let (made, changed) =
        custom_kernel::launch_in_place(&launched.key, body, &refs, &in_place, &outputs, launched.threads)?;
    let ([result, _, _, counts], [keys, values, _]) = (made.as_slice(), changed.as_slice()) else {
        return Err(crate::Error::backend("decoder_layer", "a launch without its results").into());
    };
    for (buffer, memory) in token.buffers.iter().zip([keys, values]) {
        written::replace(buffer, Written { memory: memory.clone(), by: counts.clone(), tokens: token.at + 1 })?;
    }
    Ok(Some(result.clone()))
}
