//! The order in which `einsum` multiplies more than two operands: from left to right, or the cheapest by sizes.
//!
//! Invariant: every order multiplies each operand once, so that results differ by rounding alone.

use std::sync::atomic::{AtomicU8, Ordering};

/// How the order of products is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// From left to right, as written.
    LeftToRight,
    /// The cheapest order of up to 6 operands, a greedy one of more.
    Auto,
    /// At each step the pair whose product takes the least memory more than both.
    Greedy,
    /// The cheapest order of up to 10 operands, a greedy one of more.
    Optimal,
}

const STRATEGIES: [Strategy; 4] = [Strategy::LeftToRight, Strategy::Auto, Strategy::Greedy, Strategy::Optimal];
static STRATEGY: AtomicU8 = AtomicU8::new(0);

/// Sets how the order of products is chosen. At first it is from left to right.
///
/// # Examples
/// ```
/// use lucid::einsum_order::{set_strategy, strategy, Strategy};
/// use lucid::{ops::einsum::einsum, Tensor};
/// let row = lucid::tensor([1.0, 2.0])?;
/// let product = || -> lucid::Result<Tensor> { einsum("i,j,j->i", &[row.clone(), row.clone(), row.clone()]) };
/// let written = product()?;
/// set_strategy(Strategy::Optimal);
/// assert_eq!(product()?.to_vec::<f32>()?, written.to_vec::<f32>()?);
/// set_strategy(Strategy::LeftToRight);
/// assert_eq!(strategy(), Strategy::LeftToRight);
/// # Ok::<(), Box<lucid::Error>>(())
/// ```
pub fn set_strategy(strategy: Strategy) {
    STRATEGY.store(strategy as u8, Ordering::Relaxed);
}

/// How the order of products is chosen.
pub fn strategy() -> Strategy {
    STRATEGIES[usize::from(STRATEGY.load(Ordering::Relaxed)) % STRATEGIES.len()]
}

/// Pairs of operands in the order in which they are multiplied; the product of pair `k` of `n` operands is operand
/// `n + k`. The shapes have one rank; dimensions from `kept` on are summed once no other operand has them.
pub(crate) fn pairs(shapes: &[&[usize]], kept: usize) -> Vec<(usize, usize)> {
    let n = shapes.len();
    match strategy() {
        _ if n < 3 => left_to_right(n),
        Strategy::LeftToRight => left_to_right(n),
        Strategy::Auto if n <= 6 => optimal(shapes, kept),
        Strategy::Optimal if n <= 10 => optimal(shapes, kept),
        Strategy::Auto | Strategy::Greedy | Strategy::Optimal => greedy(shapes, kept),
    }
}

fn left_to_right(n: usize) -> Vec<(usize, usize)> {
    (1..n).map(|i| (if i == 1 { 0 } else { n + i - 2 }, i)).collect()
}

fn elements(shape: impl Iterator<Item = usize>) -> f64 {
    shape.map(|d| d as f64).product()
}

/// The shape of a product of two, beside which there are `others`.
fn product<'a>(a: &[usize], b: &[usize], kept: usize, others: impl Iterator<Item = &'a [usize]> + Clone) -> Vec<usize> {
    let size = |d: usize| match d >= kept && others.clone().all(|x| x[d] == 1) {
        true => 1,
        false => a[d].max(b[d]),
    };
    (0..a.len()).map(size).collect()
}

fn greedy(shapes: &[&[usize]], kept: usize) -> Vec<(usize, usize)> {
    let mut left: Vec<(usize, Vec<usize>)> = shapes.iter().map(|s| s.to_vec()).enumerate().collect();
    let mut steps = Vec::new();
    while left.len() > 1 {
        let mut best: Option<(f64, f64, usize, usize, Vec<usize>)> = None;
        for i in 0..left.len() {
            for j in i + 1..left.len() {
                let others = left.iter().enumerate().filter(|(k, _)| *k != i && *k != j).map(|(_, (_, s))| &s[..]);
                let (a, b) = (&left[i].1, &left[j].1);
                let made = product(a, b, kept, others);
                let size = |s: &[usize]| elements(s.iter().copied());
                let growth = size(&made) - size(a) - size(b);
                let cost = elements(a.iter().zip(b).map(|(&x, &y)| x.max(y)));
                if best.as_ref().is_none_or(|b| (growth, cost) < (b.0, b.1)) {
                    best = Some((growth, cost, i, j, made));
                }
            }
        }
        let Some((_, _, i, j, made)) = best else { break };
        steps.push((left[i].0, left[j].0));
        left.remove(j);
        left.remove(i);
        left.push((shapes.len() + steps.len() - 1, made));
    }
    steps
}

/// The fewest multiplications, by the best split of each set of operands.
fn optimal(shapes: &[&[usize]], kept: usize) -> Vec<(usize, usize)> {
    let (n, rank) = (shapes.len(), shapes[0].len());
    let all = (1usize << n) - 1;
    let has = |set: usize, d: usize| (0..n).filter(|i| set >> i & 1 == 1).map(|i| shapes[i][d]).max().unwrap_or(1);
    let shape_of = |set: usize| -> Vec<usize> {
        // An operand by itself is not summed before it is multiplied.
        let whole = set.count_ones() == 1;
        (0..rank).map(|d| if whole || d < kept || has(all & !set, d) != 1 { has(set, d) } else { 1 }).collect()
    };
    let sizes: Vec<Vec<usize>> = (0..=all).map(shape_of).collect();
    let mut best: Vec<(f64, usize)> = (0..=all).map(|_| (0.0, 0)).collect();
    for set in 1..=all {
        if set.count_ones() < 2 {
            continue;
        }
        let mut least = (f64::INFINITY, 0);
        // Each split once: the part that has the lowest operand.
        let lowest = set & set.wrapping_neg();
        let mut part = (set - 1) & set;
        while part != 0 {
            if part & lowest != 0 {
                let (a, b) = (&sizes[part], &sizes[set & !part]);
                let cost = elements(a.iter().zip(b).map(|(&x, &y)| x.max(y)));
                let total = best[part].0 + best[set & !part].0 + cost;
                if total < least.0 {
                    least = (total, part);
                }
            }
            part = (part - 1) & set;
        }
        // Sizes beyond a float's range: any split.
        best[set] = if least.1 == 0 { (f64::INFINITY, lowest) } else { least };
    }
    let mut steps = Vec::new();
    split(all, n, &best, &mut steps);
    steps
}

/// Adds the steps that multiply the operands of a set; gives the operand that they make.
fn split(set: usize, n: usize, best: &[(f64, usize)], steps: &mut Vec<(usize, usize)>) -> usize {
    if set.count_ones() == 1 {
        return set.trailing_zeros() as usize;
    }
    let part = best[set].1;
    let (a, b) = (split(part, n, best, steps), split(set & !part, n, best, steps));
    steps.push((a, b));
    n + steps.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_multiplied_from_its_cheap_end() {
        // ij,jk,kl->il with sizes 100, 100, 100, 1: the last two first.
        let shapes: [&[usize]; 3] = [&[100, 1, 100, 1], &[1, 1, 100, 100], &[1, 1, 1, 100]];
        assert_eq!(left_to_right(3), [(0, 1), (3, 2)]);
        assert_eq!(greedy(&shapes, 2), [(1, 2), (0, 3)]);
        assert_eq!(optimal(&shapes, 2), [(1, 2), (0, 3)]);
        // Outer products and single elements: every operand is multiplied once.
        let shapes: Vec<&[usize]> = vec![&[2, 1], &[1, 3], &[1, 1], &[2, 3], &[1, 0]];
        for steps in [left_to_right(5), greedy(&shapes, 1), optimal(&shapes, 1)] {
            let mut used: Vec<usize> = steps.iter().flat_map(|&(a, b)| [a, b]).collect();
            used.sort_unstable();
            assert_eq!(used, (0..8).collect::<Vec<_>>());
        }
    }
}
