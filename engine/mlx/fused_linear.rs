//! Linear layers one after another, with or without relu between them, by one kernel of our own: a group of threads takes a
//! row through all of them. For short rows and small weights, where launching each layer costs more than its arithmetic.
//!
//! Depends on `custom_kernel` and `lower`. What is between the layers is never computed unless something else needs it; what a
//! gradient needs is computed anyway, so that layers are taken together only where none will be asked for. Invariant: MLX's
//! own products stay beside it, for all other cases and as its reference.

use super::array::GpuArray;
use super::convert::{int, ints};
use super::custom_kernel::{self, launch, numbers, Text};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::lower::Origin;
use super::nn::{product, transposed};
use super::value::Value;
use crate::shape::numel;
use crate::DType;
use lucid_ir::Meta;
use mlx_ffi::Array;
use smallvec::SmallVec;
use std::fmt::Write;

/// The longest row, and the most products over all rows and layers: beyond them MLX's own are quicker.
const WIDE: i32 = 1024;
/// Threads for a row: as many as a group may have, since what takes long is waiting for weights.
const GROUP: usize = 1024;
const WORK: usize = 1 << 23;
/// The most layers of one kernel.
const LAYERS: usize = 8;

/// One layer: `x wᵀ + bias`, clipped below 0 if `relu`.
#[derive(Clone)]
struct Layer {
    /// (outputs, inputs)
    w: Array,
    bias: Option<Array>,
    /// The weight's transpose and the bias broadcast, as MLX's product takes them.
    plain: (Array, Option<Array>),
    relu: bool,
}

/// Layers that a matrix (rows, features) goes through.
#[derive(Clone)]
pub(super) struct Chain {
    x: Array,
    layers: SmallVec<[Layer; 4]>,
}

impl Chain {
    /// One layer over `x`, after those that `x` was made by; `None` where a kernel of our own cannot take it.
    pub(super) fn of(x: &GpuArray, w: &GpuArray, bias: Option<&GpuArray>, out: &Meta) -> Made<Option<Chain>> {
        let floats = [x, w].into_iter().chain(bias).all(|a| a.element() == DType::F32);
        if !floats || custom_kernel::room().is_none() || x.ndim() != 2 || w.ndim() != 2 || numel(&out.shape) == 0 {
            return Ok(None);
        }
        let (v, w) = (x.value()?, w.value()?);
        if w.perm.is_some() || !w.is_evaluated() || w.array()?.shape().iter().any(|&n| n > WIDE) {
            return Ok(None);
        }
        let mut chain = match below(&v).filter(|_| !x.is_kept()) {
            Some(chain) => chain,
            None => Chain { x: v.logical()?.into_owned(), layers: SmallVec::new() },
        };
        let (bias, wide) = match bias.map(|b| b.value()).transpose()? {
            Some(b) => (Some(b.logical()?.into_owned()), Some(b.broadcast(&ints(&out.shape)?)?.into_owned())),
            None => (None, None),
        };
        let plain = (transposed(&w)?.into_owned(), wide);
        chain.layers.push(Layer { w: w.array()?.clone(), bias, plain, relu: false });
        let products = chain.layers.iter().map(|l| l.w.size()).sum::<usize>();
        let fits = chain.layers.len() <= LAYERS && products.saturating_mul(chain.rows()) <= WORK;
        Ok((fits && chain.x.size() > 0).then_some(chain))
    }

    fn rows(&self) -> usize {
        self.x.shape()[0] as usize
    }

    /// What the last layer gives.
    pub(super) fn make(&self) -> Made<Array> {
        match self.layers.as_slice() {
            // There is nothing to take together.
            [Layer { plain: (wt, wide), .. }] => product(&self.x, wt, wide.as_ref()),
            _ => self.launch(),
        }
    }

    fn launch(&self) -> Made<Array> {
        let mut sizes: SmallVec<[i64; 10]> = self.x.shape().iter().map(|&n| i64::from(n)).collect();
        sizes.extend(self.layers.iter().map(|l| i64::from(l.w.shape()[0])));
        let d = numbers(&sizes)?;
        let mut inputs: SmallVec<[&Array; 12]> = SmallVec::from_slice(&[&self.x, &d]);
        let (mut key, mut kinds) = (String::from("linear"), SmallVec::<[Kind; 4]>::new());
        for layer in &self.layers {
            inputs.push(&layer.w);
            inputs.extend(&layer.bias);
            let kind = Kind { bias: layer.bias.is_some(), relu: layer.relu };
            key.push(char::from(b'0' + u8::from(kind.bias) + 2 * u8::from(kind.relu)));
            kinds.push(kind);
        }
        let shape = [int(self.rows())?, int(sizes[sizes.len() - 1] as usize)?];
        let made = launch(&key, || text(&kinds), &inputs, &[&shape], self.rows() * GROUP)?;
        made.into_iter().next().ok_or_else(|| crate::Error::backend("linear", "a kernel without an output").into())
    }
}

/// The layers that a value was made by, if it still has to be computed.
fn below(v: &Value) -> Option<Chain> {
    match v.origin()? {
        Origin::Linear(chain) => Some(chain.clone()),
        Origin::Relu { input, .. } => {
            let mut chain = below(input)?;
            chain.layers.last_mut()?.relu = true;
            Some(chain)
        }
        Origin::BiasAdd { .. }
        | Origin::Pool(_)
        | Origin::PoolBack(_)
        | Origin::LogSoftmax(_)
        | Origin::OneClass(_)
        | Origin::Framed(_)
        | Origin::Written(_) => None,
    }
}

/// What a layer's text depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub bias: bool,
    pub relu: bool,
}

/// The kernel for such layers; `d` holds the rows and the length of a row before and after each layer. A whole warp shares four
/// outputs: its threads read neighbouring weights, of several outputs and places at a time.
pub(super) fn text(kinds: &[Kind]) -> Text {
    let mut inputs: Vec<String> = vec!["x".into(), "d".into()];
    let mut body = format!(
        "unsigned int row = i / LUCID_GROUP;
if (row >= (unsigned int)d[0]) return;
LUCID_SHARED float h0[{WIDE}];
LUCID_SHARED float h1[{WIDE}];
LUCID_SHARED float sums[LUCID_GROUP * 4];
int parts = LUCID_GROUP < 32 ? 1 : 32, at_once = LUCID_GROUP / parts * 4, part = lane % parts, own = lane / parts * 4;
int n = d[1], m = 0;
for (int k = lane; k < n; k += LUCID_GROUP) h0[k] = x[row * n + k];
LUCID_BARRIER;
"
    );
    for (l, kind) in kinds.iter().enumerate() {
        inputs.push(format!("w{l}"));
        if kind.bias {
            inputs.push(format!("b{l}"));
        }
        let (from, to) = (format!("h{}", l % 2), format!("h{}", (l + 1) % 2));
        let start = if kind.bias { format!("b{l}[o]") } else { "0.0f".into() };
        let clip = if kind.relu { "total = total < 0.0f ? 0.0f : total; " } else { "" };
        let store = match l + 1 == kinds.len() {
            true => "out[row * m + o] = total;".into(),
            false => format!("{to}[o] = total;"),
        };
        // Outputs that are not there are those of the last one. Threads that add up begin at different places, or they
        // would all ask one bank of memory. Writing to a String cannot fail.
        let _ = write!(
            body,
            "m = d[{}];
for (int first = 0; first < m; first += at_once) {{
  int o0 = first + own, o1 = o0 + 1, o2 = o0 + 2, o3 = o0 + 3;
  int r0 = (o0 < m ? o0 : m - 1) * n, r1 = (o1 < m ? o1 : m - 1) * n;
  int r2 = (o2 < m ? o2 : m - 1) * n, r3 = (o3 < m ? o3 : m - 1) * n;
  float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
#pragma unroll 4
  for (int k = part; k < n; k += parts) {{
    float v = {from}[k];
    s0 += v * w{l}[r0 + k];
    s1 += v * w{l}[r1 + k];
    s2 += v * w{l}[r2 + k];
    s3 += v * w{l}[r3 + k];
  }}
  sums[own * parts + part] = s0;
  sums[(own + 1) * parts + part] = s1;
  sums[(own + 2) * parts + part] = s2;
  sums[(own + 3) * parts + part] = s3;
  LUCID_BARRIER;
  for (int e = lane; e < at_once && first + e < m; e += LUCID_GROUP) {{
    int o = first + e;
    float total = {start};
    for (int p = 0; p < parts; p++) total += sums[e * parts + (p + e) % parts];
    {clip}{store}
  }}
  LUCID_BARRIER;
}}
n = m;
",
            l + 2
        );
    }
    Text { name: KernelName::Linear, inputs, outputs: vec!["out".into()], body, group: GROUP }
}
