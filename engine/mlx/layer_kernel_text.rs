//! The text of the kernel that computes a decoder's layer in one launch: see `layer_kernel`, which says how.
//!
//! Depends on `layer_kernel`'s plan and `layer_product_text`. Invariant: what one group writes and another reads goes through the
//! scratch memory, and is read behind the wait for all of what wrote it.

use super::custom_kernel::{Text, GROUP};
use super::kernel_name::KernelName;
use super::kernel_text::LEAST;
use super::layer_kernel::{LayerPlan, Stage, EACH, STAGES};
use super::layer_product_text::{Product, TILE};
use super::row_product::{Form, Format};
use std::fmt::Write;

/// The parts of the scratch memory, one behind the other: name and elements.
pub(super) fn scratch(plan: &LayerPlan) -> [(&'static str, usize); 6] {
    let (rows, [heads, kv_heads, head]) = (plan.rows(), plan.heads);
    let [.., gates, _] = &plan.stages;
    [
        ("queries", rows * heads * head),
        ("new_keys", rows * kv_heads * head),
        ("new_values", rows * kv_heads * head),
        ("attended", rows * heads * head),
        ("state", rows * plan.hidden()),
        ("inner", rows * gates.sizes[0]),
    ]
}

/// Names of the matrices of a stage, by their numbers among the layer's.
fn numbers(stage: Stage) -> &'static [usize] {
    match stage {
        Stage::Projections => &[0, 1, 2],
        Stage::Attention => &[],
        Stage::Joined => &[3],
        Stage::Gates => &[4, 5],
        Stage::Last => &[6],
    }
}

/// The inputs, in the order that `layer_kernel` gives them in.
fn inputs(plan: &LayerPlan) -> Vec<String> {
    let mut inputs: Vec<String> = ["x0", "n0", "n1", "c_", "s_", "keys", "values", "counts"].map(String::from).into();
    for stage in STAGES {
        let Some(part) = plan.stage(stage) else { continue };
        for number in numbers(stage) {
            inputs.push(format!("p{number}"));
            if matches!(part.format, Format::Packed { .. }) {
                inputs.extend([format!("ps{number}"), format!("pb{number}")]);
            }
            if part.biased {
                inputs.push(format!("pa{number}"));
            }
        }
    }
    inputs
}

pub(super) fn text(plan: &LayerPlan) -> Text {
    let inputs = inputs(plan);
    let mut body = String::new();
    let mut aligned = ["x0", "n0", "n1", "keys", "values", "scratch"].map(String::from).to_vec();
    aligned.extend((0..7).flat_map(|number| ["p", "ps", "pb"].map(|name| format!("{name}{number}"))));
    let _ = writeln!(body, "// aligned to 16 bytes: {}\n// written in place: keys, values, counts", aligned.join(", "));
    let products: Vec<(Stage, Product<'_>)> =
        STAGES.iter().filter_map(|&stage| Some((stage, Product::of(plan.stage(stage)?)?))).collect();
    let most = products.iter().map(|(_, product)| product.held()).max().unwrap_or(0).max(plan.exchanged());
    let warps = GROUP / 32;
    let _ = write!(
        body,
        "LUCID_SHARED float4 held[{}];
LUCID_SHARED float part[{}], results[{}];
LUCID_SHARED unsigned int taken;
unsigned int* count = (unsigned int*)counts;
unsigned int next = 0;
const unsigned int at = counts[{place}], room = counts[{place} + 1];
const float eps = {eps:e}f, scale = {scale:e}f;
",
        most.div_ceil(4),
        plan.rows() * warps,
        (plan.rows() * warps * TILE).max(plan.together() * plan.splits),
        place = plan.place(),
        eps = f32::from_bits(plan.numbers[0]),
        scale = f32::from_bits(plan.numbers[1]),
    );
    let mut at = 0;
    for (name, size) in scratch(plan) {
        let _ = writeln!(body, "{}* {name} = scratch + {at};", plan.kind);
        at += size;
    }
    // A number is taken while the one before is worked on, and not while that waits: who waits first would take two.
    let _ = write!(
        body,
        "if (i < {place}) counts_next[i] = 0;
if (i == {place}) {{ counts_next[i] = at + 1; counts_next[i + 1] = room; }}
if (lane == 0) taken = LUCID_TAKE(count);
LUCID_BARRIER;
unsigned int ticket = taken;
while (ticket < {all}) {{
",
        place = plan.place(),
        all = STAGES.iter().map(|&stage| plan.groups(stage)).sum::<usize>(),
    );
    let mut first = 0;
    for (number, stage) in STAGES.into_iter().enumerate() {
        let end = first + plan.groups(stage);
        let ready = match number.checked_sub(1) {
            None => String::new(),
            Some(before) => format!(
                "if (lane == 0) {{ LUCID_AWAIT(count + {number}, {}); }}\nLUCID_BARRIER;\n",
                plan.ended(STAGES[before])
            ),
        };
        let _ = writeln!(body, "{}if (ticket < {end}) {{", if number > 0 { "else " } else { "" });
        body += &match products.iter().find(|(of, _)| *of == stage) {
            Some((_, made)) => names(plan, stage) + &made.text([first, end], &ready, number + 1),
            None => attention(plan, first, &ready, number + 1),
        };
        body += "}\n";
        first = end;
    }
    body += "}\n";
    let outputs = ["out", "scratch", "parts", "counts_next"].map(String::from).into();
    Text { name: KernelName::DecoderLayer, inputs, outputs, body, group: GROUP }
}

/// What a stage's product calls what it takes and gives.
fn names(plan: &LayerPlan, stage: Stage) -> String {
    let (kind, Some(part)) = (plan.kind, plan.stage(stage)) else { return String::new() };
    let (x, results): (&str, &[&str]) = match stage {
        Stage::Projections => ("x0", &["queries", "new_keys", "new_values"]),
        Stage::Attention => ("", &[]),
        Stage::Joined => ("attended", &["state"]),
        Stage::Gates => ("state", &["inner"]),
        Stage::Last => ("inner", &["out"]),
    };
    let mut text = format!("const {kind}* x = {x};\n");
    let weight = match part.format {
        Format::Dense => kind,
        Format::Packed { .. } => "int",
    };
    for (own, number) in numbers(stage).iter().enumerate() {
        let _ = writeln!(text, "const {weight}* m{own} = p{number};");
        if let Format::Packed { scales, .. } = part.format {
            let _ = writeln!(text, "const {scales}* s{own} = ps{number};\nconst {scales}* b{own} = pb{number};");
        }
        if part.biased {
            let _ = writeln!(text, "const {kind}* a{own} = pa{number};");
        }
    }
    if part.normed {
        let _ = writeln!(text, "const {kind}* nw = {};", if stage == Stage::Projections { "n0" } else { "n1" });
    }
    if part.after == (Form::Product { added: true }) {
        let _ = writeln!(text, "const {kind}* more = {};", if stage == Stage::Joined { "x0" } else { "state" });
    }
    for (number, result) in results.iter().enumerate() {
        let _ = writeln!(text, "{kind}* out{number} = {result};");
    }
    text
}

/// Attention of some queries of one text, which share keys, to a piece of the keys, and of all pieces where this was the last.
fn attention(plan: &LayerPlan, begin: usize, ready: &str, number: usize) -> String {
    let LayerPlan { kind, heads: [heads, kv_heads, head], splits, .. } = plan;
    let (per, sets) = (plan.together(), plan.sets());
    let (lanes, warps) = (head / EACH, GROUP / 32);
    let together = GROUP / lanes;
    // What a warp, and then a group, keeps of a query: the largest score, the sum, and the weighted values.
    let kept = head + 2;
    let words = *kind == "LUCID_BF16";
    let each = |f: &dyn Fn(usize) -> String| (0..EACH).map(f).collect::<String>();
    let mut text = format!(
        "unsigned int item = ticket - {begin}, piece = item % {splits}, set = item / {splits};
unsigned int kv = set / {sets} % {kv_heads}, text = set / {sets} / {kv_heads}, row0 = (text * {kv_heads} + kv) * {head};
unsigned int head0 = text * {heads} + kv * {shared} + set % {sets} * {per};
unsigned int sub = lane % {lanes}, own = lane / {lanes};
unsigned int pieces = (at + {splits}) / {splits}, low = piece * pieces, high = low + pieces < at + 1 ? low + pieces : at + 1;
size_t base = (size_t)(text * {kv_heads} + kv) * room * {head} + sub * {EACH};
bool whole = false;
",
        shared = heads / kv_heads,
    );
    // ---- the first key and value of each thread, which are there before the queries are
    let read = |name: &str, to: &str, new: bool| match (words, new) {
        (true, false) => format!("{to} = ((const uint4*){name})[(base + (size_t)t * {head}) / {EACH}];\n"),
        (true, true) => format!("{to} = ((const uint4*){name})[(row0 + sub * {EACH}) / {EACH}];\n"),
        (false, false) => each(&|e| format!("{to}{e} = (float){name}[base + (size_t)t * {head} + {e}];\n")),
        (false, true) => each(&|e| format!("{to}{e} = (float){name}[row0 + sub * {EACH} + {e}];\n")),
    };
    text += &match words {
        true => "uint4 key = {0, 0, 0, 0}, value = {0, 0, 0, 0};\n".to_string(),
        false => each(&|e| format!("float key{e} = 0.0f, value{e} = 0.0f;\n")),
    };
    let held = format!("{}{}", read("keys", "key", false), read("values", "value", false));
    let fresh = format!("{}{}", read("new_keys", "key", true), read("new_values", "value", true));
    let _ = write!(
        text,
        "unsigned int t = low + own;
if (t < high && t < at) {{\n{held}}}
{ready}if (lane == 0) next = LUCID_TAKE(count);
"
    );
    // ---- the new key and value go where the next token finds them
    let _ = write!(
        text,
        "if (high == at + 1 && low <= at && set % {sets} == 0) {{
for (unsigned int k = lane; k < {head}; k += LUCID_GROUP) {{
size_t to = (size_t)(text * {kv_heads} + kv) * room * {head} + (size_t)at * {head} + k;
(({kind}*)keys)[to] = new_keys[row0 + k];
(({kind}*)values)[to] = new_values[row0 + k];
}}
}}
"
    );
    for h in 0..per {
        text += &each(&|e| {
            format!("float q{h}_{e} = (float)queries[(head0 + {h}) * {head} + sub * {EACH} + {e}] * scale, r{h}_{e} = 0.0f;\n")
        });
        let _ = writeln!(text, "float most{h} = {LEAST}, total{h} = 0.0f;");
    }
    let _ = write!(
        text,
        "for (unsigned int first = low; first < high; first += {together}) {{
t = first + own;
if (t == at) {{\n{fresh}}} else if (first > low && t < high) {{\n{held}}}
"
    );
    let element = |name: &str, e: usize| match words {
        false => format!("{name}{e}"),
        true => {
            let word = ["x", "y", "z", "w"][e / 2];
            let bits = if e.is_multiple_of(2) {
                format!("{name}.{word} << 16")
            } else {
                format!("{name}.{word} & 0xffff0000u")
            };
            format!("LUCID_AS_FLOAT({bits})")
        }
    };
    for h in 0..per {
        let dot: Vec<String> = (0..EACH).map(|e| format!("q{h}_{e} * {}", element("key", e))).collect();
        let _ = write!(
            text,
            "{{ float score = {};
for (int o = {}; o > 0; o /= 2) score += LUCID_SHUFFLE(score, o);
if (t < high) {{
float new_most = score > most{h} ? score : most{h}, old = exp(most{h} - new_most), by = exp(score - new_most);
most{h} = new_most; total{h} = total{h} * old + by;
{}}} }}
",
            dot.join(" + "),
            lanes / 2,
            each(&|e| format!("r{h}_{e} = r{h}_{e} * old + by * {};\n", element("value", e))),
        );
    }
    text += "}\n";
    // ---- the threads of a warp, the warps of a group, and the groups of a set
    for h in 0..per {
        let _ = write!(
            text,
            "for (int o = {lanes}; o < 32; o *= 2) {{
float other = LUCID_SHUFFLE(most{h}, o), new_most = other > most{h} ? other : most{h};
float old = exp(most{h} - new_most), by = exp(other - new_most);
most{h} = new_most; total{h} = total{h} * old + LUCID_SHUFFLE(total{h}, o) * by;
{}}}
",
            each(&|e| format!("r{h}_{e} = r{h}_{e} * old + LUCID_SHUFFLE(r{h}_{e}, o) * by;\n")),
        );
    }
    let _ = write!(text, "float* shared_ = (float*)held;\nif (lane % 32 < {lanes}) {{\n");
    for h in 0..per {
        let _ = write!(
            text,
            "{{ unsigned int to = (lane / 32 * {per} + {h}) * {kept};
if (sub == 0) {{ shared_[to] = most{h}; shared_[to + 1] = total{h}; }}
{}}}
",
            each(&|e| format!("shared_[to + 2 + sub * {EACH} + {e}] = r{h}_{e};\n")),
        );
    }
    let joined = format!(
        "float most = {LEAST}, total = 0.0f, all = 0.0f;
LUCID_UNROLL
for (int o = 0; o < {warps}; o++) {{ float m = of[o * {step}]; if (m > most || m != m) most = m; }}
LUCID_UNROLL
for (int o = 0; o < {warps}; o++) {{
float by = exp(of[o * {step}] - most);
total += by * of[o * {step} + 1]; all += by * of[o * {step} + 2 + k];
}}
",
        step = per * kept,
    );
    let _ = write!(
        text,
        "}}
LUCID_BARRIER;
float* mine = parts + (size_t)item * {whole_part};
for (unsigned int j = lane; j < {elements}; j += LUCID_GROUP) {{
unsigned int h = j / {head}, k = j % {head};
float* of = shared_ + h * {kept};
{joined}mine[h * {kept} + 2 + k] = all;
if (k == 0) {{ mine[h * {kept}] = most; mine[h * {kept} + 1] = total; }}
}}
LUCID_BARRIER;
if (lane == 0) {{ LUCID_FENCE; part[0] = LUCID_TAKE(count + {first} + set) == {last} ? 1.0f : 0.0f; LUCID_FENCE; }}
LUCID_BARRIER;
whole = part[0] != 0.0f;
if (whole) {{
const float* of = parts + (size_t)set * {set_parts};
for (unsigned int j = lane; j < {pairs}; j += LUCID_GROUP) {{
unsigned int from = j % {splits} * {whole_part} + j / {splits} * {kept};
results[j] = of[from]; shared_[j] = of[from + 1];
}}
LUCID_BARRIER;
for (unsigned int j = lane; j < {elements}; j += LUCID_GROUP) {{
unsigned int h = j / {head}, k = j % {head};
float most = {LEAST}, total = 0.0f, all = 0.0f;
for (int o = 0; o < {splits}; o++) {{ float m = results[h * {splits} + o]; if (m > most || m != m) most = m; }}
LUCID_UNROLL
for (int o = 0; o < {splits}; o++) {{
float by = exp(results[h * {splits} + o] - most);
total += by * shared_[h * {splits} + o]; all += by * of[o * {whole_part} + h * {kept} + 2 + k];
}}
attended[(head0 + h) * {head} + k] = ({kind})(all / total);
}}
}}
if (lane == 0) taken = next;
LUCID_BARRIER;
ticket = taken;
if (lane == 0 && whole) {{ LUCID_ADD_DONE(count + {number}, 1u); }}
",
        whole_part = per * kept,
        elements = per * head,
        first = STAGES.len() + 1,
        last = splits - 1,
        set_parts = splits * per * kept,
        pairs = per * splits,
    );
    text
}
