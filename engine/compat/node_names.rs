//! The names of the graph's steps, as PyTorch has them: `AddBackward0`.
//!
//! A row says what PyTorch's step is called where that is not the op's name (`node` of `engine/rows`); steps inside of ops that
//! have no row are listed here.

use crate::autograd::{Kind, Node};
use crate::ops::schema::NodeName;
use std::borrow::Cow;

/// Which arguments an op was called with, as `mark!` of the op table says it.
#[derive(Clone, Copy)]
pub struct Given {
    pub(crate) op: &'static str,
    /// The marks, two bits each, of the parameters from the last one on.
    pub(crate) given: u64,
}

impl Given {
    /// The mark of a parameter of the op's row.
    pub(crate) fn mark(&self, param: &str) -> u64 {
        let row = crate::ops::schemas().find(|s| s.name == self.op.trim_end_matches('_'));
        let place = row.and_then(|row| row.params.iter().rev().position(|p| p.name == param));
        place.filter(|&i| i < 32).map_or(0, |i| (self.given >> (2 * i)) & 3)
    }

    /// 1 where the parameter was given.
    pub(crate) fn has(&self, param: &str) -> u64 {
        self.mark(param).min(1)
    }

    /// Was there a number before the tensor?
    pub(crate) fn led(&self) -> bool {
        self.given >> 63 == 1
    }

    /// 1 where it is a tensor.
    pub(crate) fn tensor(&self, param: &str) -> u64 {
        u64::from(self.mark(param) == 1)
    }

    /// 1 where it is a number in a tensor's place.
    pub(crate) fn number(&self, param: &str) -> u64 {
        u64::from(self.mark(param) == 2)
    }

    /// 1 for the form that writes in place.
    pub(crate) fn in_place(&self) -> u64 {
        u64::from(self.op.ends_with('_'))
    }
}

/// Steps inside of ops that have no row: PyTorch's name and overload.
const STEPS: &[(&str, &str, u64)] = &[
    ("cross_entropy_mean", "div", 1),
    ("cross_entropy_smooth", "add", 0),
    ("cross_entropy_sum", "neg", 0),
    ("gru_cell", "add", 0),
    ("lstm_cell", "mul", 0),
    ("lstm_cell_state", "add", 0),
    ("max_all", "max", 1),
    ("min_all", "min", 1),
    ("nll_loss_flat", "view", 0),
    ("pairwise_distance", "norm", 1),
    ("rrelu_with_noise_", "rrelu_with_noise", 1),
    ("ravel", "view", 0),
    ("sum_over", "sum", 1),
    ("unbatched", "squeeze", 1),
    ("vecmat", "squeeze", 4),
];

impl Node {
    /// The name, as PyTorch shows it: the op's in camel case, and which of its overloads was called.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        match &self.kind {
            Kind::Accumulate(_) => Cow::Borrowed("AccumulateGrad"),
            Kind::Write(ops, _) if !ops.is_empty() || self.called.is_none() => Cow::Borrowed("CopySlices"),
            Kind::Custom(custom) => Cow::Borrowed(custom.name),
            Kind::Op(_) | Kind::MultiOp(_) | Kind::Write(..) | Kind::SplitInfo(_) => {
                let (op, given) = self.called.map_or((self.op(), 0), |called| (called.name, called.given));
                match op {
                    "copy_" => return Cow::Borrowed("CopyBackwards"),
                    "diag" => return Cow::Borrowed("DiagonalBackward0_copy"),
                    // Around: the other kinds have names of their own. PyTorch fills an empty tensor part by part.
                    "pad" => return Cow::Borrowed("CopySlices"),
                    _ => {}
                }
                let (name, overload) = torch_name(Given { op, given });
                Cow::Owned(format!("{}Backward{overload}", camel(name)))
            }
        }
    }
}

/// PyTorch's name for the step that an op records, and the number that it gives the overload that was called.
fn torch_name(given: Given) -> (&'static str, u64) {
    if let Some(&(_, name, overload)) = STEPS.iter().find(|(step, ..)| *step == given.op) {
        return (name, overload);
    }
    // Ops that end in a sum or product with a number.
    if let Some(plain) = given.op.strip_suffix("_number") {
        return (plain, 1);
    }
    let plain = given.op.trim_end_matches('_');
    let Some(row) = crate::ops::schemas().find(|row| row.name == plain) else {
        // Those that fill in place say which overload it was.
        return if given.in_place() == 1 { (plain, given.given) } else { (given.op, 0) };
    };
    match row.node {
        NodeName::Own => (plain, 0),
        NodeName::Is(name, overload) => (name, overload),
        NodeName::By(rule) => rule(given),
    }
}

/// `max_pool2d` as `MaxPool2D`: upper case after underscores and after digits.
fn camel(name: &str) -> String {
    let mut upper = true;
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c => {
                out.push(if upper { c.to_ascii_uppercase() } else { c });
                upper = c.is_ascii_digit();
            }
        }
    }
    out
}
