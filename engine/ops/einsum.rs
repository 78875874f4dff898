//! Contractions over named and listed dimensions: `einsum`, `tensordot`, and what is said by them.
//!
//! All end in the batched matrix product, so that they are as fast as it is and need no gradient rules of their own.

use super::macros::define_composites;
use super::DimPairs;
use crate::autograd::OpScope;
use crate::einsum_order;
use crate::fallible::filled;
use crate::shape;
use crate::tensor::signed;
use crate::warnings::warn_once;
use crate::{DType, Error, Result, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! einsum_ops {
    ($cb:ident) => { $crate::rows! { $cb "einsum" :
        /// Products summed as an equation says: `"ij,jk->ik"` is the matrix product. Each operand's dimensions get a
        /// letter; letters that the right side lacks are summed over, equal letters of one operand are its diagonal,
        /// `...` stands for dimensions that broadcast. Without `->` the letters that appear once are kept, in
        /// alphabetic order. Operands are contracted from left to right.
        function einsum(equation: Text, operands: Tensors) -> Tensor {
            call: variadic, amp: Low, dtypes: NUMERIC, result: Same,
            run: einsum_body,
            samples: [
                "'ij,jk->ik', N(2, 3), N(3, 4)",
                "'bij,bjk->bik', N(2, 2, 3), N(2, 3, 2)",
                "'ii', N(3, 3)",
                "'ii->i', N(3, 3)",
                "'i,j->ij', N(2), N(3)",
                "'ij->ji', N(2, 3)",
                "'...ij,...jk->...ik', N(2, 2, 3), N(3, 4)",
                "'ij,kj,kl->il', N(2, 3), N(4, 3), N(4, 2)",
                "'ba,cb', N(2, 3), N(4, 2)",
                "'i,i->', N(3), N(3)",
                "'ij,ij->j', N(2, 3), N(1, 3)",
                "'...', N(2, 3)",
                "'ijk->', N(2, 1, 3)",
            ],
            example: [
                "let (a, b) = (tensor([[1.0, 2.0], [3.0, 4.0]])?, tensor([[0.0, 1.0], [1.0, 0.0]])?);",
                r#"assert_close(einsum("ij,
                jk->ik", &[a.clone(), b])?, [[2.0, 1.0], [4.0, 3.0]]);"#,
                r#"assert_close(einsum("ii", &[a])?, 5.0);"#,
            ],
        }
        /// The sum of products over pairs of dimensions: the last `dims` of `a` with the first of `b`, or the two lists
        /// given.
        function tensordot(a: Tensor, b: Tensor, dims: DimPairs = &$crate::ops::DimPairs::Count(2)) -> Tensor {
            flags: [steps], amp: PromoteGpu, dtypes: NUMERIC, result: Same,
            run: tensordot_body, node: "view",
            samples: [
                "N(2, 3, 4), N(3, 4, 2)",
                "N(2, 3), N(3, 4), 1",
                "N(2), N(3), 0",
                "N(2, 3, 4), N(4, 2), ([0, 2], [1, 0])",
                "N(2, 3), N(1, 3), ([0], [0])",
            ],
            example: [
                "let (a, b) = (tensor([[1.0, 2.0], [3.0, 4.0]])?, tensor([10.0, 1.0])?);",
                "assert_close(tensordot(&a, &b, &lucid::ops::DimPairs::Count(1))?, [12.0, 34.0]);",
                "assert_close(tensordot(&a, &b, &lucid::ops::DimPairs::Lists(vec![0], vec![0]))?, [13.0, 24.0]);",
            ],
        }
        /// The sum of products over the last dimension of both; with a 0-d tensor, the plain product.
        method inner(other: Tensor) -> Tensor {
            out: rule, flags: [steps], dtypes: NUMERIC, result: Same,
            run: inner_body,
            samples: ["N(3), N(3)", "N(2, 3), N(4, 3)", "N(2, 3), N()", "N(2, 3), N(3)"],
            example: ["assert_close(tensor([[1.0, 2.0], [3.0, 4.0]])?.inner(&tensor([10.0, 1.0])?)?, [12.0, 34.0]);"],
        }
        /// The Kronecker product: every element of the first times the whole second tensor.
        method kron(other: Tensor) -> Tensor {
            out: cast, flags: [steps], dtypes: NUMERIC, result: Same,
            run: kron_body, node: "unsafe_view",
            samples: ["N(2, 3), N(3, 2)", "N(2), N(2, 2)", "N(), N(2)"],
            example: [
                "assert_close(tensor([1, 10])?.kron(&tensor([[1, 2], [3, 4]])?)?, [[1, 2, 10, 20], [3, 4, 30, 40]]);",
            ],
        }
        /// The product of several matrices, in the order of multiplication that costs least.
        function chain_matmul(matrices: Tensors) -> Tensor {
            call: variadic, out: rule, flags: [steps], amp: Low, dtypes: NUMERIC, result: Same,
            run: chain_matmul_body, node: "view",
            samples: ["N(2, 3), N(3, 4)", "N(2, 3), N(3, 4), N(4, 2), N(2, 5)", "N(2, 3)"],
            example: [
                "let (a, b) = (tensor([[1.0, 2.0]])?, tensor([[3.0], [4.0]])?);",
                "assert_close(chain_matmul(&[a, b, tensor([[2.0, 0.0]])?])?, [[22.0, 0.0]]);",
            ],
        }
    }};
}
einsum_ops!(define_composites);

// ---- einsum ----------------------------------------------------------------------------------------------------------

/// What a dimension of an operand is called: a letter, or its place among those that `...` stands for, from the last on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Letter(char),
    Dots(usize),
}

impl Label {
    /// As messages call it.
    fn named(self) -> String {
        match self {
            Label::Letter(c) => format!("subscript {c:?}"),
            Label::Dots(place) => format!("dimension {place} from the end of `...`"),
        }
    }
}

fn fail<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::runtime("einsum", why))
}

/// The labels of one side's term; `rank` is the operand's, if it is one, and tells how much `...` stands for.
fn labels(term: &str, rank: Option<usize>, dots: usize) -> Result<Vec<Label>> {
    let parts: Vec<&str> = term.split("...").collect();
    let letters = |part: &str| -> Result<Vec<Label>> {
        part.chars()
            .map(|c| match c.is_ascii_alphabetic() {
                true => Ok(Label::Letter(c)),
                false => fail(format!("invalid subscript given: {c:?}, subscripts must be in [a-zA-Z]")),
            })
            .collect()
    };
    let (before, after) = match parts[..] {
        [only] => (letters(only)?, None),
        [before, after] => (letters(before)?, Some(letters(after)?)),
        _ => return fail(format!("found '...' more than once in {term:?}")),
    };
    let named = before.len() + after.as_ref().map_or(0, Vec::len);
    let hidden = match (rank, &after) {
        (Some(rank), None) if rank != named => {
            return fail(format!("the number of subscripts in {term:?} does not match the operand's {rank} dimensions"))
        }
        (Some(rank), Some(_)) if rank < named => {
            return fail(format!("the number of subscripts in {term:?} is more than the operand's {rank} dimensions"))
        }
        (Some(rank), Some(_)) => rank - named,
        (None, Some(_)) => dots,
        (_, None) => 0,
    };
    let dots = (0..hidden).rev().map(Label::Dots);
    Ok(before.into_iter().chain(dots).chain(after.into_iter().flatten()).collect())
}

/// The operand's dimensions in the order of `all`, of size 1 where it has none of that label.
fn align(x: &Tensor, own: &[Label], all: &[Label]) -> Result<Tensor> {
    let (mut x, mut own) = (x.clone(), own.to_vec());
    let mut i = 0;
    while i < own.len() {
        // A label that comes again: the diagonal of both dimensions, which becomes the last one.
        let Some(again) = (i + 1..own.len()).find(|&j| own[j] == own[i]) else {
            i += 1;
            continue;
        };
        if x.shape()[i] != x.shape()[again] {
            let why =
                format!("a subscript is repeated for dimensions of sizes {} and {}", x.shape()[i], x.shape()[again]);
            return Err(Error::shape("einsum", why, &[x.shape()]));
        }
        x = x.diagonal(0, i as isize, again as isize)?;
        let label = own[i];
        own.remove(again);
        own.remove(i);
        own.push(label);
    }
    let present: Vec<isize> = all.iter().filter_map(|l| own.iter().position(|o| o == l)).map(|i| i as isize).collect();
    x = x.permute(&present)?;
    let size = |l: &Label| own.iter().position(|o| o == l);
    let mut sizes = x.shape().iter();
    let shape: Vec<isize> = all.iter().map(|l| size(l).and_then(|_| sizes.next()).map_or(1, |&n| n as isize)).collect();
    x.reshape(&shape)
}

fn einsum_body(equation: &str, operands: &[Tensor]) -> Result<Tensor> {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if operands.is_empty() {
        return Err(Error::value("einsum", "must specify the equation string and at least one operand"));
    }
    if terms.len() != operands.len() {
        return fail(format!("{} operands were given for the {} terms of {equation:?}", operands.len(), terms.len()));
    }
    let inputs: Vec<Vec<Label>> =
        terms.iter().zip(operands).map(|(t, x)| labels(t, Some(x.ndim()), 0)).collect::<Result<_>>()?;
    let mut sizes: Vec<(Label, usize)> = Vec::new();
    let conflict = |label: Label, n: usize, i: usize, known: usize| {
        let has =
            |(own, x): &(&Vec<Label>, &Tensor)| own.iter().zip(x.shape()).any(|(&l, &m)| l == label && m == known);
        let other = inputs.iter().zip(operands).position(|pair| has(&pair)).unwrap_or(i);
        let what = label.named();
        let why = format!(
            "{what} has size {n} for operand {i}, which does not broadcast with size {known} of operand {other}"
        );
        Error::shape("einsum", why, &[operands[other].shape(), operands[i].shape()])
    };
    for (i, (own, x)) in inputs.iter().zip(operands).enumerate() {
        for (&label, &n) in own.iter().zip(x.shape()) {
            match sizes.iter_mut().find(|s| s.0 == label) {
                None => sizes.push((label, n)),
                Some(s) if s.1 == n || n == 1 => {}
                Some(s) if s.1 == 1 => s.1 = n,
                Some(s) => return Err(conflict(label, n, i, s.1)),
            }
        }
    }
    let hidden = sizes.iter().filter(|s| matches!(s.0, Label::Dots(_))).count();
    let output: Vec<Label> = match right {
        Some(right) => labels(right, None, hidden)?,
        None => {
            let count = |c: char| inputs.iter().flatten().filter(|l| **l == Label::Letter(c)).count();
            let letters = ('A'..='Z').chain('a'..='z').filter(|&c| count(c) == 1).map(Label::Letter);
            (0..hidden).rev().map(Label::Dots).chain(letters).collect()
        }
    };
    for (i, label) in output.iter().enumerate() {
        if output[..i].contains(label) {
            return fail(format!("the output of {equation:?} names {} more than once", label.named()));
        }
        if !sizes.iter().any(|s| s.0 == *label) {
            return fail(format!("the output of {equation:?} names {}, which no operand has", label.named()));
        }
    }
    let summed = sizes.iter().map(|s| s.0).filter(|l| !output.contains(l));
    let all: Vec<Label> = output.iter().copied().chain(summed).collect();
    let aligned: Vec<Tensor> =
        operands.iter().zip(&inputs).map(|(x, own)| align(x, own, &all)).collect::<Result<_>>()?;
    // Steps have the names of those that PyTorch ends with.
    OpScope::rename(
        "einsum",
        match (operands.len(), all.len() > output.len()) {
            (1, false) => "permute",
            (1, true) => "sum_over",
            (_, false) => "mul",
            (_, true) => "view",
        },
    );
    contract(&aligned, output.len())
}

/// The product of tensors of one rank, summed over all but the first `kept` dimensions, in the order of `einsum_order`.
fn contract(operands: &[Tensor], kept: usize) -> Result<Tensor> {
    let rank = operands[0].ndim();
    let mixed = operands.iter().any(|x| x.dtype() != operands[0].dtype());
    let shapes: Vec<&[usize]> = operands.iter().map(Tensor::shape).collect();
    let mut left: Vec<Option<Tensor>> = operands.iter().cloned().map(Some).collect();
    for (a, b) in einsum_order::pairs(&shapes, kept) {
        let (Some(a), Some(b)) = (left[a].take(), left[b].take()) else {
            return fail("an operand came twice in the order of products");
        };
        // What no other operand has can be summed now.
        let last = |d: &usize| left.iter().flatten().all(|other| other.shape()[*d] == 1);
        let over: Vec<usize> = (kept..rank).filter(last).collect();
        left.push(Some(pair(&a, &b, &over, mixed)?));
    }
    let Some(mut y) = left.into_iter().flatten().next_back() else {
        return fail("the order of products leaves no operand");
    };
    // A sum of one operand is one over a single element, too: it gives whole numbers of 64 bits.
    let alone = operands.len() == 1;
    let rest: Vec<isize> = (kept..rank).filter(|&d| alone || y.shape()[d] != 1).map(|d| d as isize).collect();
    if !rest.is_empty() {
        y = y.sum(Some(&rest), true, None)?;
    }
    y.reshape(&signed(&y.shape()[..kept]))
}

/// `a * b` summed over the dimensions `over`, which stay with size 1, as one batched product of matrices. Of operands that
/// came with several dtypes no sum is taken over both.
fn pair(a: &Tensor, b: &Tensor, over: &[usize], mixed: bool) -> Result<Tensor> {
    let (mut a, mut b) = (a.clone(), b.clone());
    let (mut both, mut only_a, mut only_b, mut summed) = (vec![], vec![], vec![], vec![]);
    for d in 0..a.ndim() {
        let (in_a, in_b) = (a.shape()[d] != 1, b.shape()[d] != 1);
        match (over.contains(&d), in_a, in_b) {
            (true, true, true) => summed.push(d),
            (true, true, false) => {
                a = a.sum(Some(&[d as isize]), true, None)?;
                only_a.push(d);
            }
            (true, false, true) => {
                b = b.sum(Some(&[d as isize]), true, None)?;
                only_a.push(d);
            }
            (false, true, true) => both.push(d),
            (false, false, true) => only_b.push(d),
            (_, _, false) => only_a.push(d),
        }
    }
    // A product without a sum promotes, and takes truth values, as all products of elements do.
    let unlike = a.dtype() != b.dtype();
    if summed.is_empty() && (unlike || a.dtype() == DType::Bool) {
        return a.mul(&b);
    }
    if unlike && mixed {
        let why = "expected all operands to have the same dtype; cast them with .to()";
        return Err(Error::dtype("einsum", why, &[a.dtype(), b.dtype()]));
    }
    // Sums of integers are int64.
    let dtype = a.dtype().promote(b.dtype())?;
    let (a, b) = (a.cast(dtype)?, b.cast(dtype)?);
    let sizes = |x: &Tensor, dims: &[usize]| dims.iter().map(|&d| x.shape()[d]).product::<usize>() as isize;
    let order = |groups: [&[usize]; 4]| groups.concat().into_iter().map(|d| d as isize).collect::<Vec<_>>();
    let left = a.permute(&order([&both, &only_a, &summed, &only_b]))?;
    let left = left.reshape(&[sizes(&a, &both), sizes(&a, &only_a), sizes(&a, &summed)])?;
    let right = b.permute(&order([&both, &summed, &only_b, &only_a]))?;
    let right = right.reshape(&[sizes(&b, &both), sizes(&b, &summed), sizes(&b, &only_b)])?;
    let y = left.matmul(&right)?;
    // Back to one dimension each, in the order both, a's, b's, summed; then to the order they came in.
    let groups = [&both[..], &only_a, &only_b, &summed].concat();
    let size = |&d: &usize| match () {
        () if summed.contains(&d) => 1,
        () if only_b.contains(&d) => b.shape()[d] as isize,
        () => a.shape()[d] as isize,
    };
    let y = y.reshape(&groups.iter().map(size).collect::<Vec<_>>())?;
    let back: Vec<isize> =
        (0..a.ndim()).filter_map(|d| groups.iter().position(|&g| g == d)).map(|i| i as isize).collect();
    y.permute(&back)
}

// ---- the others ------------------------------------------------------------------------------------------------------

fn tensordot_body(a: &Tensor, b: &Tensor, dims: &DimPairs) -> Result<Tensor> {
    let op = "tensordot";
    let (of_a, of_b): (Vec<isize>, Vec<isize>) = match dims {
        DimPairs::Count(n) if *n < 0 => {
            return Err(Error::runtime(op, format!("expects dims >= 0, but got dims={n}")));
        }
        DimPairs::Count(n) if *n as usize > a.ndim().min(b.ndim()) => {
            let why = format!("expects dims < ndim_a or ndim_b, but got dims={n}");
            return Err(Error::shape(op, why, &[a.shape(), b.shape()]));
        }
        DimPairs::Count(n) => ((-(*n as isize)..0).collect(), (0..*n as isize).collect()),
        DimPairs::Lists(of_a, of_b) => (of_a.clone(), of_b.clone()),
    };
    if of_a.len() != of_b.len() {
        let why = format!("both dimension lists should have same length, got {of_a:?} and {of_b:?}");
        return Err(Error::runtime(op, why));
    }
    if a.dtype() != b.dtype() {
        return Err(Error::dtype(op, "both inputs should have same dtype", &[a.dtype(), b.dtype()]));
    }
    let (of_a, of_b) = (shape::wrap_own_dims(op, &of_a, a.ndim())?, shape::wrap_own_dims(op, &of_b, b.ndim())?);
    let (mut a, mut b) = (a.clone(), b.clone());
    for (&i, &j) in of_a.iter().zip(&of_b) {
        // A size of 1 broadcasts: the other side is summed first.
        match (a.shape()[i], b.shape()[j]) {
            (n, m) if n == m => {}
            (1, _) => b = b.sum(Some(&[j as isize]), true, Some(b.dtype()))?,
            (_, 1) => a = a.sum(Some(&[i as isize]), true, Some(a.dtype()))?,
            (n, m) => {
                let why = format!(
                    "contracted dimensions need to match, but first has size {n} in dim {i} and second has size {m} in dim {j}"
                );
                return Err(Error::shape(op, why, &[a.shape(), b.shape()]));
            }
        }
    }
    let rest = |x: &Tensor, listed: &[usize]| (0..x.ndim()).filter(|d| !listed.contains(d)).collect::<Vec<_>>();
    let (rest_a, rest_b) = (rest(&a, &of_a), rest(&b, &of_b));
    let count = |x: &Tensor, dims: &[usize]| dims.iter().map(|&d| x.shape()[d]).product::<usize>() as isize;
    let order = |x: &[usize], y: &[usize]| x.iter().chain(y).map(|&d| d as isize).collect::<Vec<_>>();
    let left = a.permute(&order(&rest_a, &of_a))?.reshape(&[count(&a, &rest_a), count(&a, &of_a)])?;
    let right = b.permute(&order(&of_b, &rest_b))?.reshape(&[count(&b, &of_b), count(&b, &rest_b)])?;
    let sizes: Vec<isize> =
        rest_a.iter().map(|&d| a.shape()[d]).chain(rest_b.iter().map(|&d| b.shape()[d])).map(|n| n as isize).collect();
    left.matmul(&right)?.reshape(&sizes)
}

fn inner_body(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.ndim() == 0 || b.ndim() == 0 {
        return a.mul(b);
    }
    let (n, m) = (a.shape()[a.ndim() - 1], b.shape()[b.ndim() - 1]);
    if n != m {
        let why = format!(
            "the size of tensor self must match the size of tensor other at the last dimension, got {n} and {m}"
        );
        return Err(Error::shape("inner", why, &[a.shape(), b.shape()]));
    }
    if (a.ndim(), b.ndim()) == (1, 1) {
        // As PyTorch does it, which autocast sees.
        return a.permute(&[0])?.dot(&b.permute(&[0])?)?.view(());
    }
    tensordot_body(a, b, &DimPairs::Lists(vec![-1], vec![-1]))
}

fn kron_body(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let rank = a.ndim().max(b.ndim());
    let size = |x: &Tensor, d: usize| (d + x.ndim()).checked_sub(rank).map_or(1, |i| x.shape()[i] as isize);
    let left: Vec<isize> = (0..rank).flat_map(|d| [size(a, d), 1]).collect();
    let right: Vec<isize> = (0..rank).flat_map(|d| [1, size(b, d)]).collect();
    let out: Vec<isize> = (0..rank).map(|d| size(a, d).saturating_mul(size(b, d))).collect();
    let unsafe_view = |x: &Tensor, shape: &[isize]| {
        let _name = OpScope::of("unsafe_view", 0);
        x.reshape(shape)
    };
    unsafe_view(&unsafe_view(a, &left)?.mul(&unsafe_view(b, &right)?)?, &out)
}

fn chain_matmul_body(matrices: &[Tensor]) -> Result<Tensor> {
    let op = "chain_matmul";
    warn_once!("chain_matmul is deprecated. Use linalg.multi_dot instead, which takes a list of two or more tensors.");
    if let Some(x) = matrices.iter().find(|x| x.ndim() != 2) {
        return Err(Error::shape(op, "Tensor is not a matrix", &[x.shape()]));
    }
    let n = matrices.len();
    if n == 0 {
        return Err(Error::runtime(op, "Expecting at least 1 matrix"));
    }
    if n == 1 {
        let _name = crate::autograd::named("clone");
        return matrices[0].copy();
    }
    let y = product_of(matrices)?;
    y.view(&signed(y.shape()))
}

/// The product of several matrices.
pub(super) fn product_of(matrices: &[Tensor]) -> Result<Tensor> {
    let n = matrices.len();
    // The cheapest way to multiply matrices i to j, and where to split them (Cormen et al., chapter 14.2).
    let sides: Vec<f64> =
        matrices.iter().map(|x| x.shape()[0]).chain([matrices[n - 1].shape()[1]]).map(|n| n as f64).collect();
    let mut cost = filled(filled(0.0, n)?, n)?;
    let mut split = filled(filled(0, n)?, n)?;
    for len in 1..n {
        for i in 0..n - len {
            let j = i + len;
            let of = |k: usize| cost[i][k] + cost[k + 1][j] + sides[i] * sides[k + 1] * sides[j + 1];
            let best = (i..j).min_by(|&a, &b| of(a).total_cmp(&of(b))).unwrap_or(i);
            (cost[i][j], split[i][j]) = (of(best), best);
        }
    }
    fn multiply(x: &[Tensor], split: &[Vec<usize>], i: usize, j: usize) -> Result<Tensor> {
        if i == j {
            return Ok(x[i].clone());
        }
        let k = split[i][j];
        multiply(x, split, i, k)?.mm(&multiply(x, split, k + 1, j)?)
    }
    multiply(matrices, &split, 0, n - 1)
}
