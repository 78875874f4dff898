//! What a language model's layer is made of beside its products: the norm of rows, heads that are rotated and put one after
//! the other, gates, and attention of single queries to a cache of keys and values.
//!
//! Depends on `custom_kernel` and `kernel_text`. Invariant: sums are in float32 and rounded once; what they stand for is in
//! `lucid.llm` as ops, which are their reference.

use super::convert::int;
use super::custom_kernel::{self, Text, GROUP};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::{strings, Lanes};
use super::row_product::Gate;
use crate::Error;
use mlx_ffi::{Array, Dtype};
use std::fmt::Write;

/// Keys whose scores a group holds.
pub(super) const KEYS: usize = 2048;
/// Elements of 16 bits that a thread takes at once.
const EACH: usize = 8;
/// How often a thread does so for a row that it keeps.
const TURNS: usize = 4;
/// The parts of 16 bytes.
const WORDS: [&str; 4] = ["x", "y", "z", "w"];

/// Are elements of this kind halves of words?
fn in_words(kind: &str) -> bool {
    kind != "float"
}

fn only(made: Vec<Array>) -> Made<Array> {
    let missing = || Error::backend("decoder", "a launch without a result");
    Ok(made.into_iter().next().ok_or_else(missing)?)
}

/// `x / sqrt(mean(x²) + eps) · weight` of rows (rows, n).
pub(super) fn rms_norm(x: &Array, weight: &Array, kind: &'static str, [rows, n]: [usize; 2], eps: f64) -> Made<Array> {
    let (d, e) = (custom_kernel::numbers(&[rows as i64, n as i64])?, custom_kernel::floats(&[eps as f32])?);
    let shape = [int(rows)?, int(n)?];
    let outputs = [(&shape[..], x.dtype())];
    let turns = n.div_ceil(EACH * GROUP);
    let turns = (in_words(kind) && n.is_multiple_of(EACH) && turns <= TURNS).then_some(turns);
    let key = format!("rms norm {kind} {turns:?}");
    let text = || rms_norm_text(kind, turns);
    only(custom_kernel::launch_typed(&key, text, &[x, weight, &d, &e], &outputs, rows * GROUP)?)
}

/// With `turns` a thread reads 16 bytes in each, once, where the arrays begin at a multiple of that.
fn rms_norm_text(kind: &str, turns: Option<usize>) -> Text {
    let lanes = Lanes::Group;
    let norm = "float by = 1.0f / sqrt(squares / (float)n + eps[0]);\n";
    let plain = format!(
        "{each} {{ float v = x[row * n + k]; squares += v * v; }}
{sum}{norm}{each} out[row * n + k] = ({kind})((float)x[row * n + k] * by * (float)w[k]);
",
        each = lanes.each("n"),
        sum = lanes.sum("squares"),
    );
    let body = match turns {
        None => plain,
        Some(turns) => {
            let (mut read, mut write) = (String::new(), String::new());
            for t in 0..turns {
                let at = format!("at + {}", t * GROUP);
                let _ = writeln!(read, "uint4 x{t} = {{0, 0, 0, 0}};\nif ({at} < chunks) x{t} = from[{at}];");
                for word in WORDS {
                    for half in ["LOW", "HIGH"] {
                        let _ = writeln!(read, "v = LUCID_{half}({kind}, x{t}.{word}); squares += v * v;");
                    }
                }
                let scaled = |word: &str, half: &str| {
                    format!("LUCID_{half}({kind}, x{t}.{word}) * by * LUCID_{half}({kind}, by_.{word})")
                };
                let _ = writeln!(write, "if ({at} < chunks) {{\nuint4 by_ = ((LUCID_DEVICE const uint4*)w)[{at}], y;");
                for word in WORDS {
                    let (low, high) = (scaled(word, "LOW"), scaled(word, "HIGH"));
                    let _ = writeln!(write, "y.{word} = LUCID_PAIR({kind}, {low}, {high});");
                }
                let _ = writeln!(write, "to[{at}] = y;\n}}");
            }
            format!(
                "if (((size_t)x | (size_t)w | (size_t)out) % 16 == 0) {{
unsigned int chunks = n / {EACH};
LUCID_DEVICE const uint4* from = (LUCID_DEVICE const uint4*)x + row * chunks;
LUCID_DEVICE uint4* to = (LUCID_DEVICE uint4*)out + row * chunks;
float v;
{read}{sum}{norm}{write}}} else {{
{plain}}}
",
                sum = lanes.sum("squares"),
            )
        }
    };
    let body = format!("{}unsigned int n = (unsigned int)d[1];\nfloat squares = 0.0f;\n{body}", lanes.begin());
    let inputs = strings(&["x", "w", "d", "eps"]);
    Text { name: KernelName::RmsNorm, inputs, outputs: strings(&["out"]), body, group: GROUP }
}

/// Heads (B, L, heads, head) as (B, heads, L, head), rotated by cosines and sines (L, head / 2).
pub(super) fn rotated_heads(
    x: &Array,
    angles: [&Array; 2],
    kind: &'static str,
    [batch, length, heads, head]: [usize; 4],
) -> Made<Array> {
    let count = batch * length * heads * head / 2;
    let d = custom_kernel::numbers(&[count as i64, (head / 2) as i64, heads as i64, length as i64])?;
    let shape = [int(batch)?, int(heads)?, int(length)?, int(head)?];
    let (outputs, key) = ([(&shape[..], x.dtype())], format!("rotated heads {kind}"));
    let inputs = [x, angles[0], angles[1], &d];
    only(custom_kernel::launch_typed(&key, || rotated_heads_text(kind), &inputs, &outputs, count)?)
}

fn rotated_heads_text(kind: &str) -> Text {
    let body = format!(
        "if (i >= (unsigned int)d[0]) return;
unsigned int half_ = (unsigned int)d[1], heads = (unsigned int)d[2], length = (unsigned int)d[3];
unsigned int pair = i % half_, row = i / half_, head = row % heads, token = row / heads;
unsigned int from = row * 2 * half_ + pair, place = token % length;
float p = x[from], q = x[from + half_], cosine = c[place * half_ + pair], sine = s[place * half_ + pair];
unsigned int to = ((token / length * heads + head) * length + place) * 2 * half_ + pair;
out[to] = ({kind})(p * cosine - q * sine);
out[to + half_] = ({kind})(q * cosine + p * sine);
"
    );
    let inputs = strings(&["x", "c", "s", "d"]);
    Text { name: KernelName::RotatedHeads, inputs, outputs: strings(&["out"]), body, group: GROUP }
}

/// The function of a gate `g`, in both languages.
pub(super) fn gate_text(gate: Gate) -> &'static str {
    match gate {
        Gate::Silu => "g / (1.0f + exp(-g))",
        Gate::GeluTanh => "0.5f * g * (1.0f + tanh(0.7978845608f * (g + 0.044715f * g * g * g)))",
    }
}

/// `f(g) · x`, element by element.
pub(super) fn gated(g: &Array, x: &Array, kind: &'static str, gate: Gate) -> Made<Array> {
    let d = custom_kernel::numbers(&[int(x.size())? as i64])?;
    let (outputs, key) = ([(x.shape(), x.dtype())], format!("gated {kind} {gate:?}"));
    let threads = if in_words(kind) { x.size().div_ceil(EACH) } else { x.size() };
    only(custom_kernel::launch_typed(&key, || gated_text(kind, gate), &[g, x, &d], &outputs, threads)?)
}

/// A thread takes the elements of 16 bytes, where they are of 16 bits: with one load for each, the kernel took 2.7 times as long on an
/// H200 as the one that MLX compiles.
fn gated_text(kind: &str, gate: Gate) -> Text {
    let (f, inputs) = (gate_text(gate), strings(&["gate", "x", "d"]));
    let body = if in_words(kind) {
        let mut words = String::new();
        for word in WORDS {
            for half in ["LOW", "HIGH"] {
                let _ = writeln!(words, "g = LUCID_{half}({kind}, a.{word});");
                let product = format!("({f}) * LUCID_{half}({kind}, b.{word})");
                let _ = match half {
                    "LOW" => writeln!(words, "low = {product};"),
                    _ => writeln!(words, "y.{word} = LUCID_PAIR({kind}, low, {product});"),
                };
            }
        }
        format!(
            "unsigned int n = (unsigned int)d[0], first = i * {EACH};
if (first >= n) return;
float g, low;
if (n - first >= {EACH} && ((size_t)gate | (size_t)x | (size_t)out) % 16 == 0) {{
uint4 a = ((LUCID_DEVICE const uint4*)gate)[i], b = ((LUCID_DEVICE const uint4*)x)[i], y;
{words}((LUCID_DEVICE uint4*)out)[i] = y;
return;
}}
for (unsigned int k = first; k < n && k < first + {EACH}; k++) {{ g = gate[k]; out[k] = ({kind})(({f}) * (float)x[k]); }}
"
        )
    } else {
        format!("if (i >= (unsigned int)d[0]) return;\nfloat g = gate[i];\nout[i] = ({kind})(({f}) * (float)x[i]);\n")
    };
    Text { name: KernelName::Gated, inputs, outputs: strings(&["out"]), body, group: GROUP }
}

/// Sizes of attention: texts, heads of queries and of keys, elements of a head, keys there are, and room for keys.
pub(super) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head: usize,
    pub count: usize,
    pub room: usize,
}

impl Sizes {
    /// Is there a kernel for it?
    pub(super) fn fit(&self) -> bool {
        (16..=256).contains(&self.head) && self.head.is_power_of_two() && self.count <= KEYS
    }
}

/// Attention of one query of each head (B, heads, 1, head) to the first keys and values of (B, kv_heads, room, head).
pub(super) fn attention(
    q: &Array,
    [keys, values]: [&Array; 2],
    kind: &'static str,
    sizes: &Sizes,
    scale: f64,
) -> Made<Array> {
    let &Sizes { batch, heads, kv_heads, head, count, room } = sizes;
    let d = custom_kernel::numbers(&[count as i64, room as i64])?;
    let f = custom_kernel::floats(&[scale as f32])?;
    let shape = [int(batch)?, int(heads)?, 1, int(head)?];
    let outputs = [(&shape[..], q.dtype() as Dtype)];
    let key = format!("decode attention {kind} {head} {heads} {kv_heads}");
    let text = || attention_text(kind, head, heads, kv_heads);
    only(custom_kernel::launch_typed(&key, text, &[q, keys, values, &d, &f], &outputs, batch * heads * GROUP)?)
}

/// Reads this thread's elements of a row of `name`, from `at` on, as `e0` to `e7`: one by one, or 16 bytes at once.
fn elements(name: &str, whole: bool) -> String {
    if !whole {
        return (0..EACH).map(|e| format!("e{e} = (float){name}[at + {e}]; ")).collect();
    }
    let mut text = format!("uint4 w = ((LUCID_DEVICE const uint4*){name})[at / 8]; ");
    for (e, word) in WORDS.into_iter().enumerate() {
        let _ = write!(
            text,
            "e{} = LUCID_AS_FLOAT(w.{word} << 16); e{} = LUCID_AS_FLOAT(w.{word} & 0xffff0000u); ",
            2 * e,
            2 * e + 1
        );
    }
    text
}

fn attention_text(kind: &str, head: usize, heads: usize, kv_heads: usize) -> Text {
    let lanes = head / EACH;
    let (together, warps) = (GROUP / lanes, GROUP / 32);
    let names = |of: &str| (0..EACH).map(|e| format!("{of}{e}")).collect::<Vec<_>>().join(", ");
    let zero: String = (0..EACH).map(|e| format!("r{e} = 0.0f, ")).collect();
    let dot = (0..EACH).map(|e| format!("q{e} * e{e}")).collect::<Vec<_>>().join(" + ");
    let query: String = (0..EACH).map(|e| format!("q{e} = (float)q[head * {head} + sub * 8 + {e}] * f[0]; ")).collect();
    let weigh: String = (0..EACH).map(|e| format!("r{e} += p[t] * e{e}; ")).collect();
    let reduce = |name: &str, how: &str| {
        format!(
            "for (int o = 16; o > 0; o /= 2) {{ float v = LUCID_SHUFFLE({name}, o); {how} }}
if (lane % 32 == 0) part[lane / 32] = {name};
LUCID_BARRIER;
{name} = part[0];
for (int o = 1; o < {warps}; o++) {{ float v = part[o]; {how} }}
LUCID_BARRIER;
"
        )
    };
    // All that threads exchange comes before what some of them store.
    let shared_sums: String =
        (0..EACH).map(|e| format!("for (int o = {lanes}; o < 32; o *= 2) r{e} += LUCID_SHUFFLE(r{e}, o);\n")).collect();
    let stored: String = (0..EACH).map(|e| format!("sums[lane / 32 * {head} + sub * 8 + {e}] = r{e};\n")).collect();
    let gather = format!("{shared_sums}if (lane % 32 < {lanes}) {{\n{stored}}}\n");
    let either = |loop_: &dyn Fn(bool) -> String| match kind {
        "LUCID_BF16" => format!("if (whole) {{\n{}}} else {{\n{}}}\n", loop_(true), loop_(false)),
        _ => loop_(false),
    };
    let whole = match kind {
        "LUCID_BF16" => "bool whole = (size_t)k % 16 == 0 && (size_t)v0 % 16 == 0;\n",
        _ => "",
    };
    let body = format!(
        "LUCID_SHARED float p[{KEYS}], sums[{warps} * {head}], part[{warps}];
{whole}unsigned int head = i / LUCID_GROUP, sub = lane % {lanes}, own = lane / {lanes};
unsigned int n = (unsigned int)d[0], room = (unsigned int)d[1];
size_t base = (size_t)(head / {heads} * {kv_heads} + head % {heads} / {shared}) * room * {head} + sub * 8;
float {qs}, {es}, {zero}most = {least}, total = 0.0f;
{query}
{scores}LUCID_BARRIER;
for (unsigned int t = lane; t < n; t += LUCID_GROUP) {{ float v = p[t]; if (v > most || v != v) most = v; }}
{largest}for (unsigned int t = lane; t < n; t += LUCID_GROUP) {{ float v = exp(p[t] - most); p[t] = v; total += v; }}
{sum}{weighed}{gather}LUCID_BARRIER;
for (unsigned int k = lane; k < {head}; k += LUCID_GROUP) {{
  float all = 0.0f;
  for (int o = 0; o < {warps}; o++) all += sums[o * {head} + k];
  out[head * {head} + k] = ({kind})(all / total);
}}
",
        shared = heads / kv_heads,
        qs = names("q"),
        es = names("e"),
        least = super::kernel_text::LEAST,
        scores = either(&|whole| {
            let (read, half) = (elements("k", whole), lanes / 2);
            // Four keys are read before the first is used: what threads exchange would make each wait for the one before. Threads
            // beyond the last key read it again.
            let mut text = format!("for (unsigned int first = 0; first < n; first += {}) {{\n", 4 * together);
            for u in 0..4 {
                let _ = write!(
                    text,
                    "unsigned int t{u} = first + {} + own; float score{u};
{{ size_t at = base + (size_t)(t{u} < n ? t{u} : n - 1) * {head}; {read}
score{u} = {dot}; }}
",
                    u * together
                );
            }
            for u in 0..4 {
                let _ = write!(
                    text,
                    "for (int o = {half}; o > 0; o /= 2) score{u} += LUCID_SHUFFLE(score{u}, o);
if (sub == 0 && t{u} < n) p[t{u}] = score{u};
"
                );
            }
            text + "}\n"
        }),
        weighed = either(&|whole| {
            let read = elements("v0", whole);
            format!(
                "LUCID_UNROLL_BY_4
for (unsigned int t = own; t < n; t += {together}) {{ size_t at = base + (size_t)t * {head}; {read}
  {weigh} }}
"
            )
        }),
        largest = reduce("most", "if (v > most || v != v) most = v;"),
        sum = reduce("total", "total += v;"),
    );
    let inputs = strings(&["q", "k", "v0", "d", "f"]);
    Text { name: KernelName::DecodeAttention, inputs, outputs: strings(&["out"]), body, group: GROUP }
}
