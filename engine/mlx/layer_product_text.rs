//! The text of a product inside of the kernel of a decoder's layer: a few rows with matrices, by the units of a GPU that multiply
//! small matrices.
//!
//! Depends on `row_product`'s plan and `layer_input_text`. A group takes 16 rows of the matrices, of which each of its warps sums
//! some columns for all rows of `x`; `mma` is NVIDIA's product of 16 × 16 and 16 × 8, whose order of columns is as threads
//! read them. Packed numbers q become `128 + q` (1024 in float16) by their bits alone, and the sum of `x` takes that off again.
//! Invariant: sums are in float32, of each group of packed numbers apart.

use super::custom_kernel::GROUP;
use super::decode_kernels::gate_text;
use super::row_product::{Form, Format, Plan, WARP};
use std::fmt::Write;

pub(super) const WARPS: usize = GROUP / WARP;
/// Rows of matrices that a group takes.
pub(super) const TILE: usize = 16;
/// Bytes of `x` that a group holds at once.
const HELD: usize = 32 << 10;
/// Elements between rows of `x`, so that they are in other banks.
const PADDING: usize = 32;
/// Registers for what is read ahead.
const AHEAD: usize = 64;

/// What is read while turns are multiplied.
#[derive(Clone, Copy)]
enum Then<'a> {
    Nothing,
    /// The turns from here on.
    Turns(&'a str),
    /// The first turns of the next tile, where it goes `onward`.
    Tile,
}

/// A stage's product, and how a group goes about it.
pub(super) struct Product<'a> {
    pub(super) plan: &'a Plan,
    /// Columns that the four threads of a row take at once, all of one group of packed numbers.
    pub(super) unit: usize,
    /// Words of a row that a thread takes at once.
    words: usize,
    /// Turns that are read ahead, and turns in all.
    ahead: usize,
    turns: usize,
    /// Columns of `x` that a group holds at once.
    pub(super) span: usize,
}

impl<'a> Product<'a> {
    /// `None` where sizes or dtypes do not fit.
    pub(super) fn of(plan: &'a Plan) -> Option<Product<'a>> {
        let (unit, words, more) = match plan.format {
            Format::Dense => (32, 4, 0),
            Format::Packed { bits, group, scales } if scales == plan.kind && matches!(group, 32 | 64 | 128) => {
                (group, group / 4 * bits / 32, 4)
            }
            Format::Packed { .. } => return None,
        };
        let tiles = match plan.after {
            Form::Product { .. } => plan.sizes.iter().all(|n| n.is_multiple_of(TILE)),
            Form::Gated(_) => plan.sizes.iter().all(|n| n.is_multiple_of(TILE / 2)),
            Form::Rotated { head } => (head / 2).is_multiple_of(TILE / 2),
        };
        let wide = matches!(plan.kind, "LUCID_BF16" | "LUCID_F16");
        if !wide || !tiles || !plan.columns.is_multiple_of(unit) {
            return None;
        }
        let turns = (plan.columns / unit).div_ceil(WARPS);
        let most = HELD / 2 / plan.rows / (WARPS * unit);
        let cap = (AHEAD / (2 * words + more)).clamp(1, 8).min(turns).min(most.max(1));
        // As many as go into all turns, if that is not few; of packed ones so many that their scales are whole words.
        let whole = |&n: &usize| turns.is_multiple_of(n);
        let choices = || (cap.div_ceil(2)..=cap).rev().filter(whole);
        let words_of_scales = |&n: &usize| more == 0 || n > 1 && n.is_power_of_two();
        let ahead = choices().find(words_of_scales).or_else(|| choices().next()).unwrap_or(cap);
        let piece = ahead * WARPS * unit;
        let span = (HELD / 2 / plan.rows / piece).max(1).min(turns.div_ceil(ahead)) * piece;
        Some(Product { plan, unit, words, ahead, turns, span })
    }

    /// Pieces of work.
    pub(super) fn groups(&self) -> usize {
        self.plan.units() * self.plan.parts() / TILE
    }

    /// Elements of `x` from row to row.
    pub(super) fn stride(&self) -> usize {
        self.span + PADDING
    }

    /// Numbers of 4 bytes that a group shares: `x`, and what packed numbers take of it.
    pub(super) fn held(&self) -> usize {
        self.plan.rows * (self.stride() / 2 + self.sums())
    }

    pub(super) fn sums(&self) -> usize {
        if self.is_packed() {
            self.span / self.unit
        } else {
            0
        }
    }

    pub(super) fn is_packed(&self) -> bool {
        matches!(self.plan.format, Format::Packed { .. })
    }

    /// Is all of `x` held at once, so that the next piece of work finds it?
    pub(super) fn holds_all(&self) -> bool {
        self.span >= self.plan.columns
    }

    /// Do all warps have all turns, and is what is read ahead a whole part of them?
    fn is_even(&self) -> bool {
        (self.plan.columns / self.unit).is_multiple_of(WARPS) && self.turns.is_multiple_of(self.ahead)
    }

    /// Words in which a thread has the scales of all turns that are read ahead, which lie beside each other; `None` where
    /// scales are read one by one. Read so, each of them would bring the 32 bytes around it, for each warp anew.
    fn scale_words(&self) -> Option<usize> {
        let even = self.is_even() && self.ahead > 1 && self.ahead.is_power_of_two();
        (self.is_packed() && even).then_some(self.ahead / 2)
    }

    /// The unit of a warp's turn of number `j` behind the turn `from`: a warp takes as many side by side as it reads ahead.
    fn unit_at(&self, from: &str, j: usize) -> String {
        format!("({from}) * {WARPS} + warp * {} + {j}", self.ahead)
    }

    /// Reads the scales and biases of the turns from `from` on, or the first ones, into words whose names begin with `to`.
    fn read_scales(&self, to: &str, from: Option<&str>) -> String {
        let Some(words) = self.scale_words() else { return String::new() };
        let vector = ["unsigned int", "uint2", "", "uint4"][words - 1];
        let (units, at) = (self.plan.columns / self.unit, self.unit_at(from.unwrap_or("0"), 0));
        let mut text = format!(
            "{{ unsigned int u = {at};\n{}{{\n",
            match from {
                Some(_) => format!("if (u < {units}) "),
                None => String::new(),
            }
        );
        for (name, array) in [("sa", "scalea"), ("ba", "biasa"), ("sb", "scaleb"), ("bb", "biasb")] {
            let _ = writeln!(text, "{vector} v{name} = *(const {vector}*)({array} + u);");
            for word in 0..words {
                let of = if words == 1 { String::new() } else { format!(".{}", ["x", "y", "z", "w"][word]) };
                let _ = writeln!(text, "{to}{name}{word} = v{name}{of};");
            }
        }
        text + "}\n}\n"
    }

    /// Names of the words of scales and biases, which begin with `to`.
    fn names_of_scales(&self, to: &str) -> Vec<String> {
        let words = self.scale_words().unwrap_or(0);
        (0..words).flat_map(|w| ["sa", "ba", "sb", "bb"].map(|name| format!("{to}{name}{w}"))).collect()
    }

    /// Reads the words of turn `j` behind the turn `from`, or of the first ones, into the registers of that number. A first turn
    /// that is not there reads the last: registers that only some threads fill would be kept through all of the kernel.
    fn read(&self, j: usize, from: Option<&str>) -> String {
        let vector = ["", "unsigned int", "uint2", "", "uint4"][self.words.min(4)];
        let vectors = self.words.div_ceil(4);
        let units = self.plan.columns / self.unit;
        let at = self.unit_at(from.unwrap_or("0"), j);
        let mut text = match from {
            Some(_) => format!("{{ unsigned int u = {at};\nif (u < {units}) {{\n"),
            None if (WARPS - 1) * self.ahead + j < units => format!("{{ unsigned int u = {at}; {{\n"),
            None => format!("{{ unsigned int u = {at} < {units} ? {at} : {}; {{\n", units - 1),
        };
        for row in ["a", "b"] {
            for v in 0..vectors {
                let _ = writeln!(
                    text,
                    "{vector} v{row}{v} = ((const {vector}*)w{row})[(u * 4 + quarter) * {vectors} + {v}];"
                );
                for word in 0..self.words.min(4) {
                    let of = if self.words == 1 { String::new() } else { format!(".{}", ["x", "y", "z", "w"][word]) };
                    let _ = writeln!(text, "q{row}{j}_{} = v{row}{v}{of};", v * 4 + word);
                }
            }
            if self.is_packed() && self.scale_words().is_none() {
                let _ = writeln!(text, "s{row}{j} = scale{row}[u]; b{row}{j} = bias{row}[u];");
            }
        }
        text + "}\n}\n"
    }

    /// Adds the products of turn `j` behind `begin` to the sums `c`.
    fn multiply(&self, j: usize) -> String {
        let Plan { kind, rows, columns, format, .. } = self.plan;
        let mma = if *kind == "LUCID_BF16" { "bf16" } else { "f16" };
        let vectors = self.unit / 32;
        let mut text = format!(
            "{{ unsigned int u = {at};
{inside}{{
const uint4* from = (const uint4*)held + column * {stride} + (u * {unit} - first) / 8 + quarter * {vectors};
",
            at = self.unit_at("begin", j),
            inside = if self.is_even() { String::new() } else { format!("if (u < {})", columns / self.unit) },
            stride = self.stride() / 8,
            unit = self.unit,
        );
        for v in 0..vectors {
            let _ = writeln!(text, "uint4 x{v} = from[{v}];");
        }
        let x = |pair: usize| format!("x{}.{}", pair / 4, ["x", "y", "z", "w"][pair % 4]);
        let product = |sums: &str, pair: usize, words: [String; 4]| {
            format!("LUCID_MMA(\"{mma}\", {sums}, {}, {}, {});\n", words.join(", "), x(pair), x(pair + 1))
        };
        match *format {
            Format::Dense => {
                for pair in [0, 2] {
                    let word = |row: &str, n: usize| format!("q{row}{j}_{n}");
                    text += &product(
                        "c",
                        pair,
                        [word("a", pair), word("b", pair), word("a", pair + 1), word("b", pair + 1)],
                    );
                }
            }
            Format::Packed { bits, .. } => {
                let magic = if mma == "bf16" { "0x43004300u" } else { "0x64006400u" };
                let nibble = |row: &str, word: usize, by: usize| {
                    let q = format!("q{row}{j}_{word}");
                    let moved = if by == 0 { q } else { format!("({q} >> {by})") };
                    format!("({moved} & 0x000f000fu | {magic})")
                };
                let four = |word: usize, by: [usize; 2]| {
                    [
                        nibble("a", word, by[0]),
                        nibble("b", word, by[0]),
                        nibble("a", word, by[1]),
                        nibble("b", word, by[1]),
                    ]
                };
                // Of 8 bits the low and the high halves by themselves.
                let planes: &[&str] = if bits == 4 { &["low"] } else { &["low", "high"] };
                for plane in planes {
                    let _ = writeln!(text, "float {plane}[4] = {{0.0f, 0.0f, 0.0f, 0.0f}};");
                }
                for word in 0..self.words {
                    if bits == 4 {
                        text += &product("low", 4 * word, four(word, [0, 4]));
                        text += &product("low", 4 * word + 2, four(word, [8, 12]));
                    } else {
                        text += &product("low", 2 * word, four(word, [0, 8]));
                        text += &product("high", 2 * word, four(word, [4, 12]));
                    }
                }
                let offset = if mma == "bf16" { 128 } else { 1024 } * if bits == 4 { 1 } else { 17 };
                let (n, unit) = (self.sums(), self.unit);
                let scale = |name: &str| match self.scale_words() {
                    Some(_) => format!("LUCID_{}({kind}, {name}{})", ["LOW", "HIGH"][j % 2], j / 2),
                    None => format!("(float){name}{j}"),
                };
                let second = if *rows > 1 { format!("sums[column1 * {n} + at]") } else { "sum0".into() };
                let _ = write!(
                    text,
                    "unsigned int at = u - first / {unit};
float sum0 = sums[column0 * {n} + at], sum1 = {second};
float sa = {}, sb = {}, za = {} - {offset}.0f * sa, zb = {} - {offset}.0f * sb;
",
                    scale("sa"),
                    scale("sb"),
                    scale("ba"),
                    scale("bb"),
                );
                for (e, row, sum) in [(0, "a", 0), (1, "a", 1), (2, "b", 0), (3, "b", 1)] {
                    let all = if bits == 4 { format!("low[{e}]") } else { format!("(low[{e}] + 16.0f * high[{e}])") };
                    let _ = writeln!(text, "c[{e}] += s{row} * {all} + z{row} * sum{sum};");
                }
            }
        }
        text + "}\n}\n"
    }

    /// The products of the turns from `begin` on that are in registers, into which what comes then is read.
    fn turns_ahead(&self, then: Then<'_>) -> String {
        let (from, guard) = match then {
            Then::Nothing => (None, ""),
            Then::Turns(next) => (Some(next), ""),
            Then::Tile => (None, "if (onward) "),
        };
        let reads = !matches!(then, Then::Nothing);
        let names = self.names_of_scales("next_");
        let mut text = String::new();
        if reads && !names.is_empty() {
            let scales = self.read_scales("next_", from);
            let _ = writeln!(text, "unsigned int {};\n{guard}{scales}", names.join(" = 0, ") + " = 0");
        }
        for j in 0..self.ahead {
            text += &self.multiply(j);
            if reads {
                text += &format!("{guard}{}", self.read(j, from));
            }
        }
        if reads {
            for (to, from) in self.names_of_scales("").iter().zip(&names) {
                let _ = writeln!(text, "{to} = {from};");
            }
        }
        text
    }

    /// The turns from `from` until `until`, of which the first are in registers.
    fn looped(&self, from: &str, until: &str) -> String {
        if self.turns <= self.ahead {
            return format!("{{ const unsigned int begin = 0;\n{}}}\n", self.turns_ahead(Then::Nothing));
        }
        let ahead = self.ahead;
        let inner = self.turns_ahead(Then::Turns(&format!("begin + {ahead}")));
        format!("for (unsigned int begin = {from}; begin < {until}; begin += {ahead}) {{\n{inner}}}\n")
    }

    /// All turns of a tile where `x` is held whole. With the last of them the next tile's first ones are read, so that
    /// memory has something to do from one tile to the next.
    fn tile(&self, [first, end]: [usize; 2]) -> String {
        let ahead = self.ahead;
        let last = (self.turns - 1) / ahead * ahead;
        let before = match last {
            0 => String::new(),
            last => {
                let unrolled = if last == ahead { "LUCID_UNROLL\n" } else { "" };
                let inner = self.turns_ahead(Then::Turns(&format!("begin + {ahead}")));
                format!("{unrolled}for (unsigned int begin = 0; begin < {last}; begin += {ahead}) {{\n{inner}}}\n")
            }
        };
        format!(
            "{before}if (lane == 0) taken = next;
LUCID_BARRIER;
unsigned int at_of = of, at_a = ta, at_b = tb;
ticket = taken;
bool onward = ticket < {end};
if (onward) {{
if (lane == 0) next = LUCID_TAKE(count);
item = ticket - {first};
{rows}}}
{{ const unsigned int begin = {last};
{inner}}}
",
            rows = self.rows_of_tile(),
            inner = self.turns_ahead(Then::Tile),
        )
    }

    /// What a group does from a `ticket` on while tickets are between `first` and `end`. `ready` comes where `x` is first read,
    /// behind the first reads of the matrices; what is done is added to the count of `number`. It expects `held`, `part`, `results`
    /// and `taken`, which the group shares, and `next` and `eps`.
    pub(super) fn text(&self, [first, end]: [usize; 2], ready: &str, number: usize) -> String {
        let Plan { kind, rows, columns, normed, .. } = self.plan;
        let last = rows - 1;
        let column = |at: &str| format!("{at} < {rows} ? {at} : {last}");
        let mut text = String::from("unsigned int warp = lane / 32, row = lane % 32 / 4, quarter = lane % 4;\n");
        let _ = writeln!(text, "unsigned int column = {};", column("row"));
        if self.is_packed() {
            let _ = writeln!(text, "float* sums = (float*)held + {};", rows * self.stride() / 2);
            let _ = writeln!(text, "unsigned int column0 = {};", column("2 * quarter"));
            if *rows > 1 {
                let _ = writeln!(text, "unsigned int column1 = {};", column("2 * quarter + 1"));
            }
        }
        text += "unsigned int item, of, ta, tb;\nconst unsigned int *wa, *wb;\n";
        if self.is_packed() {
            let _ = writeln!(text, "const {kind} *scalea, *biasa, *scaleb, *biasb;");
        }
        for j in 0..self.ahead {
            let names: Vec<String> =
                (0..self.words).flat_map(|w| ["a", "b"].map(|row| format!("q{row}{j}_{w}"))).collect();
            let _ = writeln!(text, "unsigned int {};", names.join(", "));
            if self.is_packed() && self.scale_words().is_none() {
                let _ = writeln!(text, "{kind} sa{j}, ba{j}, sb{j}, bb{j};");
            }
        }
        if self.scale_words().is_some() {
            let _ = writeln!(text, "unsigned int {};", self.names_of_scales("").join(", "));
        }
        let begun = |ticket: &str| {
            let reads: String = (0..self.ahead).map(|j| self.read(j, None)).collect();
            let reads = self.read_scales("", None) + &reads;
            format!("item = {ticket} - {first};\n{}{reads}", self.rows_of_tile())
        };
        text += &begun("ticket");
        let taken = "if (lane == 0) next = LUCID_TAKE(count);\n";
        let all = "const unsigned int first = 0;\n";
        let products = match (self.is_short(), self.holds_all()) {
            (true, _) => {
                let [before, behind] = self.short();
                text += &[all, "{\n", &before, ready, taken, &behind, "}\n"].concat();
                self.tile([first, end])
            }
            (false, holds_all) => {
                let norms = if *normed { self.long_norms() } else { String::new() };
                text += &[ready, taken, &norms].concat();
                if holds_all {
                    text += &[all, &self.stage()].concat();
                    self.tile([first, end])
                } else {
                    format!(
                        "for (unsigned int first = 0; first < {columns}; first += {span}) {{
if (first > 0) {{ LUCID_BARRIER; }}
{stage}unsigned int from = first / {step}, until = from + {by} < {all} ? from + {by} : {all};
{inner}}}
",
                        span = self.span,
                        stage = self.stage(),
                        step = WARPS * self.unit,
                        by = self.span / (WARPS * self.unit),
                        all = self.turns,
                        inner = self.looped("from", "until"),
                    )
                }
            }
        };
        // ---- the sums of all warps, and meanwhile the next tile
        let (awaited, ended) = match self.holds_all() {
            // Who is first in the next tile writes sums behind a barrier of its own.
            true => (String::new(), ["if (!onward) break;\n".into(), "LUCID_BARRIER;\n".into()]),
            false => (
                format!(
                    "if (lane == 0) taken = next;
LUCID_BARRIER;
ticket = taken;
unsigned int at_of = of, at_a = ta, at_b = tb;
if (ticket < {end}) {{
{}}}
",
                    begun("ticket")
                ),
                [format!("LUCID_BARRIER;\nif (ticket >= {end}) break;\n{taken}"), String::new()],
            ),
        };
        let [ended, behind] = ended;
        let seen = if self.holds_all() { "LUCID_BARRIER;\n" } else { "" };
        let _ = write!(
            text,
            "unsigned int made = 0;
for (;;) {{
float c[4] = {{0.0f, 0.0f, 0.0f, 0.0f}};
{products}if (2 * quarter < {rows}) {{
results[(warp * {TILE} + row) * {rows} + 2 * quarter] = c[0];
results[(warp * {TILE} + row + 8) * {rows} + 2 * quarter] = c[2];
}}
if (2 * quarter + 1 < {rows}) {{
results[(warp * {TILE} + row) * {rows} + 2 * quarter + 1] = c[1];
results[(warp * {TILE} + row + 8) * {rows} + 2 * quarter + 1] = c[3];
}}
{awaited}{seen}for (unsigned int o = lane; o < {count}; o += LUCID_GROUP) {{
unsigned int p = o % {each}, m = o / {each};
{store}}}
made++;
{ended}}}
{behind}if (lane == 0) {{ LUCID_ADD_DONE(count + {number}, made); }}
",
            store = self.store(),
            each = self.each(),
            count = self.each() * rows,
        );
        text
    }

    /// Results of a tile and a row of `x`.
    fn each(&self) -> usize {
        TILE / self.plan.parts()
    }

    /// Where a thread's two rows are, of the tile's first and second halves: `wa` and `wb`, their scales and biases; `ta` and `tb`
    /// are the places of the halves' first rows in the matrix of number `of`.
    fn rows_of_tile(&self) -> String {
        let Plan { format, columns, sizes, .. } = self.plan;
        let half_tile = TILE / 2;
        let mut text = String::from("of = 0;\n");
        let _ = match self.plan.after {
            Form::Product { .. } => writeln!(text, "ta = item * {TILE}, tb = ta + {half_tile};"),
            Form::Gated(_) => writeln!(text, "ta = item * {half_tile}, tb = ta;"),
            Form::Rotated { head } => {
                let half = head / 2;
                writeln!(
                    text,
                    "ta = item * {half_tile} / {half} * {head} + item * {half_tile} % {half}, tb = ta + {half};"
                )
            }
        };
        if !self.is_gated() {
            for (m, size) in sizes[..sizes.len() - 1].iter().enumerate() {
                let _ =
                    writeln!(text, "if (of == {m} && ta >= {size}) {{ ta -= {size}; tb -= {size}; of = {}; }}", m + 1);
            }
        }
        let words = match format {
            Format::Dense => columns / 2,
            Format::Packed { bits, .. } => columns * bits / 32,
        };
        for (half, row) in ["a", "b"].into_iter().enumerate() {
            let _ = writeln!(
                text,
                "w{row} = (const unsigned int*)({}) + (size_t)(t{row} + row) * {words};",
                self.chosen("m", half, "of")
            );
            if let Format::Packed { group, .. } = format {
                for (to, name) in [("scale", "s"), ("bias", "b")] {
                    let _ = writeln!(
                        text,
                        "{to}{row} = ({}) + (size_t)(t{row} + row) * {};",
                        self.chosen(name, half, "of"),
                        columns / group
                    );
                }
            }
        }
        text
    }

    fn is_gated(&self) -> bool {
        matches!(self.plan.after, Form::Gated(_))
    }

    /// Of the matrices' pointers of this name that of a half of a tile, where `of` holds the matrix's number.
    fn chosen(&self, name: &str, half: usize, of: &str) -> String {
        let last = self.plan.sizes.len() - 1;
        if self.is_gated() {
            return format!("{name}{half}");
        }
        (0..last).rev().fold(format!("{name}{last}"), |rest, m| format!("{of} == {m} ? {name}{m} : {rest}"))
    }

    /// Stores result `p` of the tile at `at_a` and `at_b` of matrix `at_of` for row `m` of `x`.
    fn store(&self) -> String {
        let Plan { kind, rows, sizes, biased, .. } = self.plan;
        let value = |name: &str, row: &str, half: usize| {
            let place = ["at_a", "at_b"][half];
            let terms: Vec<String> =
                (0..WARPS).map(|w| format!("results[({} + {row}) * {rows} + m]", w * TILE)).collect();
            let bias = match biased {
                true => format!(" + (float)({})[{place} + p]", self.chosen("a", half, "at_of")),
                false => String::new(),
            };
            format!("float {name} = {}{bias};\n", terms.join(" + "))
        };
        // A store into the result of each matrix, by its number.
        let into = |n: usize, at: &str, of: &str| {
            format!("if (at_of == {n}) out{n}[m * {} + {at}] = ({kind})({of});\n", sizes[n])
        };
        let each = |at: &str, of: &str| (0..sizes.len()).map(|n| into(n, at, of)).collect::<String>();
        match self.plan.after {
            Form::Product { added } => {
                let more = if added { format!(" + (float)more[m * {} + at_a + p]", sizes[0]) } else { String::new() };
                value("v", "p", 0) + &each("at_a + p", &format!("v{more}"))
            }
            Form::Gated(gate) => {
                let made = value("g", "p", 0) + &value("by", "p + 8", 1);
                format!("{made}out0[m * {} + at_a + p] = ({kind})(({}) * by);\n", sizes[0], gate_text(gate))
            }
            Form::Rotated { head } => {
                let half = head / 2;
                let made = value("v", "p", 0) + &value("w", "p + 8", 1);
                format!(
                    "{made}unsigned int k = (at_a + p) % {head} % {half};\n{}{}",
                    each("at_a + p", "at_of < 2 ? v * c_[k] - w * s_[k] : v"),
                    each("at_b + p", "at_of < 2 ? w * c_[k] + v * s_[k] : w"),
                )
            }
        }
    }
}
