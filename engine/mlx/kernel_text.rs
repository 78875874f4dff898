//! What the texts of kernels over rows are put together from: dtypes, the threads that share a row, and what these threads
//! add up or compare.
//!
//! Depends on nothing but `custom_kernel`'s names. Invariant: both languages understand it; sums are in float32, and of equal
//! threads in the same order every time.

use super::custom_kernel::GROUP;
use mlx_ffi::{Array, Dtype};

/// Less than or equal to every float32 that is no infinity.
pub(super) const LEAST: &str = "-3.402823466e38f";

/// What floats of this dtype are called in both languages; `None` where kernels do not take them.
pub(super) fn type_name(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::Float32 => "float",
        Dtype::Float16 => "LUCID_F16",
        Dtype::Bfloat16 => "LUCID_BF16",
        _ => return None,
    })
}

/// Are an array's places counted in 32 bits, of which there is one at least?
pub(super) fn counted(x: &Array) -> bool {
    (1..=i32::MAX as usize).contains(&x.size())
}

pub(super) fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

/// The threads that share a row: those that run in step, or a whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lanes {
    /// 32, so that a group takes several rows.
    Warp,
    Group,
}

/// Threads in step, of either language.
const WARP: usize = 32;
/// The most elements of a row that a thread keeps in registers.
const KEPT: usize = 32;
/// The longest row of threads in step.
const NARROW: usize = 1024;

impl Lanes {
    /// For rows of `n` elements.
    pub(super) fn of(n: usize) -> Lanes {
        match n {
            ..=NARROW => Lanes::Warp,
            _ => Lanes::Group,
        }
    }

    fn count(self) -> usize {
        match self {
            Lanes::Warp => WARP,
            Lanes::Group => GROUP,
        }
    }

    /// Threads for this many rows: whole groups.
    pub(super) fn threads(self, rows: usize) -> usize {
        (rows * self.count()).div_ceil(GROUP) * GROUP
    }

    /// The name of it in keys.
    pub(super) fn name(self) -> &'static str {
        match self {
            Lanes::Warp => "warp",
            Lanes::Group => "group",
        }
    }

    /// The row of this thread and its place among those that share it: `row`, of which there are `d[0]`, and `at`.
    pub(super) fn begin(self) -> &'static str {
        match self {
            Lanes::Warp => {
                "unsigned int row = i / 32, at = lane % 32;
if (row >= (unsigned int)d[0]) return;
"
            }
            Lanes::Group => {
                "LUCID_SHARED float part[LUCID_GROUP / 32];
unsigned int row = i / LUCID_GROUP, at = lane;
"
            }
        }
    }

    /// How many elements of a row of `n` each thread keeps in registers, a power of two; `None` where they are too many and are
    /// read again. Stores between loads would make them wait for one another, since pointers may be the same.
    pub(super) fn kept(self, n: usize) -> Option<usize> {
        Some(n.div_ceil(self.count()).next_power_of_two()).filter(|&e| e <= KEPT)
    }

    /// A loop over `k` from this thread's first element of a row below `stop`.
    pub(super) fn each(self, stop: &str) -> String {
        format!("for (unsigned int k = at; k < {stop}; k += {})", self.count())
    }

    /// The same where `kept` elements are in registers, at `e` of arrays of that many: with a number of turns that the compiler
    /// knows.
    pub(super) fn each_kept(self, kept: Option<usize>, stop: &str) -> String {
        match kept {
            None => self.each(stop),
            Some(kept) => {
                let count = self.count();
                format!("for (unsigned int e = 0, k = at; e < {kept}; e++, k += {count}) if (k < {stop})")
            }
        }
    }

    /// `name` becomes what `combine` makes of it and another such number `v`, over all threads of the row.
    fn combined(self, name: &str, combine: &str) -> String {
        let mut text = format!("for (int o = 16; o > 0; o /= 2) {{ float v = LUCID_SHUFFLE({name}, o); {combine} }}\n");
        if self == Lanes::Group {
            text += &format!(
                "if (lane % 32 == 0) part[lane / 32] = {name};
LUCID_BARRIER;
{name} = part[0];
for (int o = 1; o < LUCID_GROUP / 32; o++) {{ float v = part[o]; {combine} }}
LUCID_BARRIER;
"
            );
        }
        text
    }

    /// `name` becomes its sum over all threads of the row.
    pub(super) fn sum(self, name: &str) -> String {
        self.combined(name, &format!("{name} += v;"))
    }

    /// `name` becomes the largest of all threads of the row, NaN where one is.
    pub(super) fn largest(self, name: &str) -> String {
        self.combined(name, &format!("if (v > {name} || v != v) {name} = v;"))
    }
}
