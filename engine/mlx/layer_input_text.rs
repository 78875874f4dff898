//! The text that puts the rows a product multiplies where the threads of a group find them, inside of the kernel of a decoder's
//! layer: behind the norm, rounded, and in the order in which packed numbers come out of their words.
//!
//! Depends on `layer_product_text`'s product. Invariant: what is put is what the norm's op would give.

use super::custom_kernel::GROUP;
use super::layer_product_text::{Product, WARPS};
use super::row_product::{Format, Plan};
use std::fmt::Write;

impl Product<'_> {
    /// How many chunks of 8 elements of a row of `x` each thread takes.
    fn chunks(&self) -> usize {
        (self.span.min(self.plan.columns) / 8).div_ceil(GROUP)
    }

    /// Are a thread's chunks of `x` few enough for registers?
    pub(super) fn is_short(&self) -> bool {
        self.holds_all() && self.plan.rows * self.chunks() <= 8
    }

    /// Puts the chunk `v` of row `m`, of number `chunk` in the span, where the group's threads find it. `by` is the norm's.
    fn put(&self, m: usize, v: &str, by: &str) -> String {
        let Plan { kind, normed, .. } = self.plan;
        let words = ["x", "y", "z", "w"];
        let mut text = format!("{{ uint4 v = {v};\n");
        // Rounded as the norm's result would be.
        if *normed {
            for w in words {
                let half =
                    |name: &str| format!("LUCID_{name}({kind}, v.{w}) * inv{m} * LUCID_{name}({kind}, {by}.{w})");
                let _ = writeln!(text, "v.{w} = LUCID_PAIR({kind}, {}, {});", half("LOW"), half("HIGH"));
            }
        }
        if self.is_packed() {
            let sum = words.map(|w| format!("LUCID_LOW({kind}, v.{w}) + LUCID_HIGH({kind}, v.{w})"));
            let lanes = self.unit / 8;
            let _ = write!(
                text,
                "float sum = {};
for (int o = {}; o > 0; o /= 2) sum += LUCID_SHUFFLE(sum, o);
if (inside && chunk % {lanes} == 0) sums[{} + chunk / {lanes}] = sum;
",
                sum.join(" + "),
                lanes / 2,
                m * self.sums(),
            );
        }
        // In the order in which packed numbers come out of their words.
        let order = match self.plan.format {
            Format::Dense => None,
            Format::Packed { bits: 4, .. } => Some([("x", "z"), ("y", "w")]),
            Format::Packed { .. } => Some([("x", "y"), ("z", "w")]),
        };
        if let Some(pairs) = order {
            let words = pairs.map(|(a, b)| format!("v.{a} & 0xffffu | v.{b} << 16, v.{a} >> 16 | v.{b} & 0xffff0000u"));
            let _ = writeln!(text, "v = {{{}}};", words.join(", "));
        }
        let _ = writeln!(text, "if (inside) ((uint4*)held)[{} + chunk] = v; }}", m * self.stride() / 8);
        text
    }

    /// Of a register `v` of 8 elements the sum of squares.
    fn squares(&self, v: &str) -> String {
        let squares = ["x", "y", "z", "w"].map(|w| {
            let half = |name: &str| format!("LUCID_{name}({}, {v}.{w})", self.plan.kind);
            format!("{low} * {low} + {high} * {high}", low = half("LOW"), high = half("HIGH"))
        });
        squares.join(" + ")
    }

    /// Makes of the threads' sums of squares what the norm multiplies rows by.
    fn norms(&self) -> String {
        let Plan { rows, columns, .. } = self.plan;
        let mut text = String::new();
        for m in 0..*rows {
            let _ = write!(
                text,
                "for (int o = 16; o > 0; o /= 2) inv{m} += LUCID_SHUFFLE(inv{m}, o);
if (lane % 32 == 0) part[{at} + warp] = inv{m};
",
                at = m * WARPS,
            );
        }
        text += "LUCID_BARRIER;\n";
        for m in 0..*rows {
            let parts: Vec<String> = (0..WARPS).map(|w| format!("part[{}]", m * WARPS + w)).collect();
            let _ = writeln!(text, "inv{m} = 1.0f / sqrt(({}) / {columns}.0f + eps);", parts.join(" + "));
        }
        text
    }

    /// Whether a thread's chunk of number `turn` is there: `chunk` and `inside`.
    fn place(&self, turn: &str) -> String {
        let Plan { columns, .. } = self.plan;
        let all = self.span.min(*columns) / 8;
        format!(
            "unsigned int chunk = {turn} * LUCID_GROUP + lane;
bool inside = chunk < {all} && first + chunk * 8 < {columns};
"
        )
    }

    /// All of `x`, by registers: what is read before `ready` and what comes behind it.
    pub(super) fn short(&self) -> [String; 2] {
        let Plan { rows, columns, normed, .. } = self.plan;
        let (mut before, mut text) = (String::new(), String::new());
        for turn in 0..self.chunks() {
            let place = self.place(&turn.to_string());
            if *normed {
                let read = format!("{{ {place}if (inside) by{turn} = ((const uint4*)nw)[chunk]; }}\n");
                before += &format!("uint4 by{turn} = {{0, 0, 0, 0}};\n{read}");
            }
            for m in 0..*rows {
                let at = m * columns / 8;
                let _ = writeln!(text, "uint4 v{m}_{turn} = {{0, 0, 0, 0}};");
                let _ = writeln!(text, "{{ {place}if (inside) v{m}_{turn} = ((const uint4*)x)[{at} + chunk]; }}");
            }
        }
        if *normed {
            for m in 0..*rows {
                let all: Vec<String> = (0..self.chunks()).map(|turn| self.squares(&format!("v{m}_{turn}"))).collect();
                let _ = writeln!(text, "float inv{m} = {};", all.join(" + "));
            }
            text += &self.norms();
        }
        for turn in 0..self.chunks() {
            let _ = write!(text, "{{ {}", self.place(&turn.to_string()));
            for m in 0..*rows {
                text += &self.put(m, &format!("v{m}_{turn}"), &format!("by{turn}"));
            }
            text += "}\n";
        }
        [before, text + "LUCID_BARRIER;\n"]
    }

    /// What the norm multiplies rows by, from memory.
    pub(super) fn long_norms(&self) -> String {
        let Plan { rows, columns, .. } = self.plan;
        let mut text = String::new();
        for m in 0..*rows {
            let _ = write!(
                text,
                "float inv{m} = 0.0f;
for (unsigned int k = lane; k < {chunks}; k += LUCID_GROUP) {{
uint4 v = ((const uint4*)x)[{base} + k];
inv{m} += {};
}}
",
                self.squares("v"),
                chunks = columns / 8,
                base = m * columns / 8,
            );
        }
        text + &self.norms()
    }

    /// Puts columns of `x` from `first` on where the group's threads find them.
    pub(super) fn stage(&self) -> String {
        let Plan { rows, columns, normed, .. } = self.plan;
        let mut text =
            format!("for (unsigned int turn = 0; turn < {}; turn++) {{\n{}", self.chunks(), self.place("turn"));
        if *normed {
            text += "uint4 by = {0, 0, 0, 0};\nif (inside) by = ((const uint4*)nw)[first / 8 + chunk];\n";
        }
        for m in 0..*rows {
            let at = m * columns / 8;
            let _ = writeln!(text, "uint4 v{m} = {{0, 0, 0, 0}};");
            let _ = writeln!(text, "if (inside) v{m} = ((const uint4*)x)[{at} + first / 8 + chunk];");
        }
        for m in 0..*rows {
            text += &self.put(m, &format!("v{m}"), "by");
        }
        text + "}\nLUCID_BARRIER;\n"
    }
}
