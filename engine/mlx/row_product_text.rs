//! The text of the kernel that multiplies a few rows with matrices: see `row_product`, which says what for.
//!
//! Depends on `row_product`'s plan and `custom_kernel`. Invariant: both languages understand it, and sizes are numbers in it, so
//! that loops are unrolled.

use super::custom_kernel::{Text, GROUP};
use super::decode_kernels::gate_text;
use super::kernel_name::KernelName;
use super::row_product::{Form, Format, Plan};
use std::fmt::Write;

/// Reads this thread's chunks of the piece from `first` on, where they are of the row.
fn loads(plan: &Plan, first: &str, words: bool, vector: &str) -> String {
    let Plan { format, columns, .. } = plan;
    let (chunk, taken) = (format.chunk(), plan.each * plan.parts());
    if !words {
        return String::new();
    }
    let mut text = format!(
        "LUCID_UNROLL
for (int turn = 0; turn < {}; turn++) {{
unsigned int at = {first} / {chunk} + turn * 32 + at32;
if (at >= {}) break;
",
        plan.turns(),
        columns / chunk,
    );
    for j in 0..taken {
        let _ = writeln!(text, "q{j}[turn] = ((LUCID_DEVICE const {vector}*)w{j})[at];");
        if let Format::Packed { group, .. } = format {
            let each = group / chunk;
            let _ = writeln!(text, "scale{j}[turn] = ws{j}[at / {each}]; bias{j}[turn] = wb{j}[at / {each}];");
        }
    }
    text + "}\n"
}

/// The number that some bits of a word are, without a conversion: put into the mantissa of 2²³, and that taken off.
fn number(word: &str, mask: u32) -> String {
    format!("(LUCID_AS_FLOAT(0x4B000000u | ({word} & {mask}u)) - 8388608.0f)")
}

/// The elements of a chunk from the words that were read into `q{j}`, each with what it is too large by.
fn elements(format: Format, kind: &str, j: usize) -> Vec<String> {
    let words = ["x", "y", "z", "w"];
    match format {
        Format::Packed { bits: 4, .. } => (0..16)
            .map(|e| {
                let half = if e / 4 % 2 == 0 {
                    format!("q{j}[turn].{}", words[e / 8])
                } else {
                    format!("(q{j}[turn].{} >> 16)", words[e / 8])
                };
                number(&half, 15 << (4 * (e % 4)))
            })
            .collect(),
        Format::Packed { .. } => (0..16)
            .map(|e| {
                let half = if e / 2 % 2 == 0 {
                    format!("q{j}[turn].{}", words[e / 4])
                } else {
                    format!("(q{j}[turn].{} >> 16)", words[e / 4])
                };
                number(&half, 255 << (8 * (e % 2)))
            })
            .collect(),
        Format::Dense if kind == "LUCID_BF16" => (0..8)
            .map(|e| match e % 2 {
                0 => format!("LUCID_AS_FLOAT(q{j}[turn].{} << 16)", words[e / 2]),
                _ => format!("LUCID_AS_FLOAT(q{j}[turn].{} & 0xffff0000u)", words[e / 2]),
            })
            .collect(),
        Format::Dense => (0..8).map(|e| format!("(float)w{j}[(size_t)at * 8 + {e}]")).collect(),
    }
}

/// What an element of [`elements`] is too large by.
fn excess(format: Format, e: usize) -> u32 {
    match format {
        Format::Packed { bits: 4, .. } => 1 << (4 * (e % 4)),
        Format::Packed { .. } => 1 << (8 * (e % 2)),
        Format::Dense => 1,
    }
}

/// See [`row_products`].
pub(super) fn text(plan: &Plan) -> Text {
    let Plan { kind, format, rows, columns, sizes, .. } = plan;
    let (chunk, tile, parts, units) = (format.chunk(), plan.tile(), plan.parts(), plan.units());
    let taken = plan.each * parts;
    let mut inputs = vec!["x".to_string()];
    if plan.normed {
        inputs.extend(["nw".into(), "eps".into()]);
    }
    for m in 0..sizes.len() {
        inputs.push(format!("m{m}"));
        if matches!(format, Format::Packed { .. }) {
            inputs.extend([format!("s{m}"), format!("b{m}")]);
        }
        if plan.biased {
            inputs.push(format!("a{m}"));
        }
    }
    match plan.after {
        Form::Product { added: true } => inputs.push("more".into()),
        Form::Rotated { .. } => inputs.extend(["c".into(), "s".into()]),
        Form::Product { added: false } | Form::Gated(_) => {}
    }
    let results = if matches!(plan.after, Form::Gated(_)) { 1 } else { sizes.len() };
    let outputs: Vec<String> = (0..results).map(|m| format!("out{m}")).collect();

    let mut body = String::new();
    if matches!(format, Format::Packed { .. }) || *kind == "LUCID_BF16" {
        let named: Vec<String> = (0..sizes.len()).map(|m| format!("m{m}")).collect();
        let _ = writeln!(body, "// aligned to 16 bytes: {}", named.join(", "));
    }
    let _ = writeln!(body, "LUCID_SHARED float4 held[{}];", rows * tile / 4);
    let _ = writeln!(body, "unsigned int warp = i / 32, at32 = lane % 32;");
    body += &rows_of_warp(plan);
    let turns = plan.turns();
    let (vector, words) = match format {
        Format::Packed { bits: 4, .. } => ("uint2", true),
        Format::Packed { .. } => ("uint4", true),
        Format::Dense if *kind == "LUCID_BF16" => ("uint4", true),
        Format::Dense => ("float", false),
    };
    for j in 0..taken {
        if words {
            let _ = writeln!(body, "{vector} q{j}[{turns}];");
        }
        if let Format::Packed { .. } = format {
            let _ = writeln!(body, "float scale{j}[{turns}], bias{j}[{turns}];");
        }
    }
    for m in 0..*rows {
        for j in 0..taken {
            let _ = writeln!(body, "float sum{m}_{j} = 0.0f;");
        }
    }
    if *kind == "LUCID_BF16" {
        let norm = if plan.normed { " && (size_t)nw % 8 == 0" } else { "" };
        let _ = writeln!(body, "bool whole = {} && (size_t)x % 8 == 0{norm};", columns % 4 == 0);
    }
    // ---- the first chunks of the matrices, which need not wait for x
    body += &loads(plan, "0", words, vector);
    if plan.normed {
        body += "LUCID_SHARED float part[LUCID_GROUP / 32];\n";
        for m in 0..*rows {
            let _ = write!(
                body,
                "float inv{m} = 0.0f;
LUCID_UNROLL
for (unsigned int k = lane; k < {columns}; k += LUCID_GROUP) {{ float v = x[{base} + k]; inv{m} += v * v; }}
for (int o = 16; o > 0; o /= 2) inv{m} += LUCID_SHUFFLE(inv{m}, o);
if (at32 == 0) part[lane / 32] = inv{m};
LUCID_BARRIER;
inv{m} = 0.0f;
for (int o = 0; o < LUCID_GROUP / 32; o++) inv{m} += part[o];
inv{m} = 1.0f / sqrt(inv{m} / {columns}.0f + eps[0]);
LUCID_BARRIER;
",
                base = m * columns,
            );
        }
    }
    // ---- the rows of x, piece by piece
    let _ = write!(
        body,
        "for (unsigned int first = 0; first < {columns}; first += {tile}) {{
if (first > 0) {{
LUCID_BARRIER;
{again}}}
LUCID_UNROLL
for (unsigned int k = lane * 4; k < {tile}; k += LUCID_GROUP * 4) {{
if (first + k >= {columns}) break;
unsigned int chunk = k / {chunk}, place = (chunk / 32 * {quads} + k % {chunk} / 4) * 32 + chunk % 32;
float4 v{by};
",
        again = loads(plan, "first", words, vector),
        quads = chunk / 4,
        by = if plan.normed { ", by" } else { "" },
    );
    // 16-bit elements four at a time, where they are so aligned.
    let quick = *kind == "LUCID_BF16";
    let four = |name: &str, at: &str, to: &str| {
        let single: String = ["x", "y", "z", "w"]
            .into_iter()
            .enumerate()
            .map(|(e, word)| format!("{to}.{word} = (float){name}[{at} + {e}]; "))
            .collect();
        match quick {
            false => format!("{single}\n"),
            true => format!(
                "if (whole) {{ uint2 u = ((LUCID_DEVICE const uint2*){name})[({at}) / 4];
{to}.x = LUCID_AS_FLOAT(u.x << 16); {to}.y = LUCID_AS_FLOAT(u.x & 0xffff0000u);
{to}.z = LUCID_AS_FLOAT(u.y << 16); {to}.w = LUCID_AS_FLOAT(u.y & 0xffff0000u); }} else {{ {single}}}\n"
            ),
        }
    };
    if plan.normed {
        body += &four("nw", "first + k", "by");
    }
    for m in 0..*rows {
        body += &four("x", &format!("{} + first + k", m * columns), "v");
        if plan.normed {
            for word in ["x", "y", "z", "w"] {
                // Rounded as the norm's result would be.
                let _ = writeln!(body, "v.{word} = (float)(({kind})(v.{word} * inv{m} * by.{word}));");
            }
        }
        let _ = writeln!(body, "held[{} + place] = v;", m * tile / 4);
    }
    body += "}\nLUCID_BARRIER;\n";
    // ---- the matrices' rows
    let _ = write!(
        body,
        "LUCID_UNROLL
for (int turn = 0; turn < {turns}; turn++) {{
unsigned int k = turn * 32 + at32, at = first / {chunk} + k;
if (at >= {all}) break;
unsigned int from = turn * {} + at32;
",
        32 * chunk / 4,
        all = columns / chunk,
    );
    for m in 0..*rows {
        body += "{\n";
        for v in 0..chunk / 4 {
            let _ = writeln!(body, "float4 v{v} = held[{} + from + {}];", m * tile / 4, v * 32);
        }
        let of = |e: usize| format!("v{}.{}", e / 4, ["x", "y", "z", "w"][e % 4]);
        if matches!(format, Format::Packed { .. }) {
            let all: Vec<String> = (0..chunk).map(of).collect();
            let _ = writeln!(body, "float total = {};", all.join(" + "));
            for e in (0..chunk).filter(|&e| excess(*format, e) > 1) {
                let _ = writeln!(body, "{} *= {:e}f;", of(e), 1.0 / f64::from(excess(*format, e)));
            }
        }
        for j in 0..taken {
            let terms: Vec<String> =
                elements(*format, kind, j).into_iter().enumerate().map(|(e, q)| format!("{q} * {}", of(e))).collect();
            let dot = terms.join("\n + ");
            let _ = match format {
                Format::Packed { .. } => {
                    writeln!(body, "sum{m}_{j} += scale{j}[turn] * ({dot}) + bias{j}[turn] * total;")
                }
                Format::Dense => writeln!(body, "sum{m}_{j} += {dot};"),
            };
        }
        body += "}\n";
    }
    body += "}\n}\n";
    for m in 0..*rows {
        for j in 0..taken {
            let _ = writeln!(body, "for (int o = 16; o > 0; o /= 2) sum{m}_{j} += LUCID_SHUFFLE(sum{m}_{j}, o);");
        }
    }
    body += "if (at32 == 0) {\n";
    for u in 0..plan.each {
        let _ = writeln!(body, "if (warp * {} + {u} < {units}) {{", plan.each);
        for m in 0..*rows {
            body += &store(plan, m, u);
        }
        body += "}\n";
    }
    body += "}\n";
    Text { name: KernelName::RowProduct, inputs, outputs, body, group: GROUP }
}

/// Where the rows of a warp are: `w{j}`, `ws{j}`, `wb{j}` and `wa{j}` point to their elements, scales and biases, `t{j}` is
/// the place of each in its matrix and `of{j}` the matrix's number. Beyond the last row it is the last row.
fn rows_of_warp(plan: &Plan) -> String {
    let Plan { kind, format, columns, sizes, .. } = plan;
    let (parts, units) = (plan.parts(), plan.units());
    let (weight, words) = match format {
        Format::Packed { bits, .. } => ("int", columns * bits / 32),
        Format::Dense => (*kind, *columns),
    };
    let mut body = String::new();
    for u in 0..plan.each {
        let _ = writeln!(
            body,
            "unsigned int u{u} = warp * {each} + {u} < {units} ? warp * {each} + {u} : {last};",
            each = plan.each,
            last = units - 1
        );
        for part in 0..parts {
            let j = u * parts + part;
            match plan.after {
                Form::Gated(_) => {
                    let _ = writeln!(body, "unsigned int t{j} = u{u}, of{j} = {part};");
                }
                Form::Rotated { head } => {
                    let half = head / 2;
                    let _ =
                        writeln!(body, "unsigned int t{j} = u{u} / {half} * {head} + u{u} % {half} + {};", part * half);
                }
                Form::Product { .. } => {
                    let _ = writeln!(body, "unsigned int t{j} = u{u};");
                }
            }
            if !matches!(plan.after, Form::Gated(_)) {
                let _ = writeln!(body, "unsigned int of{j} = 0;");
                for (m, size) in sizes[..sizes.len() - 1].iter().enumerate() {
                    let _ =
                        writeln!(body, "if (of{j} == {m} && t{j} >= {size}) {{ t{j} -= {size}; of{j} = {}; }}", m + 1);
                }
            }
            let chosen = |name: &str| {
                let mut text = format!("{name}{}", sizes.len() - 1);
                for m in (0..sizes.len() - 1).rev() {
                    text = format!("of{j} == {m} ? {name}{m} : {text}");
                }
                text
            };
            let _ = writeln!(body, "LUCID_DEVICE const {weight}* w{j} = ({}) + (size_t)t{j} * {words};", chosen("m"));
            if let Format::Packed { group, scales, .. } = format {
                for name in ["s", "b"] {
                    let (from, each) = (chosen(name), columns / group);
                    let _ =
                        writeln!(body, "LUCID_DEVICE const {scales}* w{name}{j} = ({from}) + (size_t)t{j} * {each};");
                }
            }
            if plan.biased {
                let _ = writeln!(body, "LUCID_DEVICE const {kind}* wa{j} = {};", chosen("a"));
            }
        }
    }
    body
}

/// Stores the results of unit `u` of the warp and row `m` of `x`.
fn store(plan: &Plan, m: usize, u: usize) -> String {
    let Plan { kind, sizes, .. } = plan;
    let parts = plan.parts();
    let value = |part: usize| {
        let j = u * parts + part;
        match plan.biased {
            true => format!("(sum{m}_{j} + (float)wa{j}[t{j}])"),
            false => format!("sum{m}_{j}"),
        }
    };
    // A store into the result of each matrix, by its number.
    let each = |j: usize, of: &str| {
        let mut text = String::new();
        for (number, size) in sizes.iter().enumerate() {
            let _ = writeln!(text, "if (of{j} == {number}) out{number}[{} + t{j}] = ({kind})({of});", m * size);
        }
        text
    };
    match plan.after {
        Form::Product { added: false } => each(u, &value(0)),
        Form::Product { added: true } => {
            let at = format!("{} + t{u}", m * sizes[0]);
            format!("out0[{at}] = ({kind})({} + (float)more[{at}]);\n", value(0))
        }
        Form::Gated(gate) => {
            let f = gate_text(gate);
            format!(
                "{{ float g = {}; out0[{} + t{}] = ({kind})(({f}) * {}); }}\n",
                value(0),
                m * sizes[0],
                u * parts,
                value(1)
            )
        }
        Form::Rotated { head } => {
            let (a, b, half) = (u * parts, u * parts + 1, head / 2);
            let rotated =
                [format!("of{a} < 2 ? p * c[k] - q * s[k] : p"), format!("of{a} < 2 ? q * c[k] + p * s[k] : q")];
            format!(
                "{{ float p = {}, q = {}; unsigned int k = u{u} % {half};\n{}{}}}\n",
                value(0),
                value(1),
                each(a, &rotated[0]),
                each(b, &rotated[1])
            )
        }
    }
}
