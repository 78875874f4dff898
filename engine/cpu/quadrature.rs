//! Nodes and weights of Gaussian quadrature, from the eigenvalues of the Jacobi matrix (Golub and Welsch, 1969).
//!
//! Depends on `blas`. Both backends use them; they are computed once.

use super::blas::Decompose;
use std::sync::OnceLock;

/// Nodes and their weights.
pub struct Rule {
    /// Where the function is evaluated.
    pub nodes: Vec<f64>,
    /// The weight of each value.
    pub weights: Vec<f64>,
}

/// The rule of the orthogonal polynomials whose recurrence has these coefficients; `total` is the integral of the weight.
fn rule(n: usize, total: f64, diagonal: impl Fn(f64) -> f64, beside: impl Fn(f64) -> f64) -> Rule {
    #[allow(clippy::disallowed_methods)] // Rules have a few dozen nodes.
    let (mut a, mut nodes) = (vec![0.0; n * n], vec![0.0; n]);
    for i in 0..n {
        a[i * n + i] = diagonal(i as f64);
        if i > 0 {
            a[i * n + i - 1] = beside(i as f64);
        }
    }
    let info = f64::eigh(n, true, &mut a, &mut nodes);
    debug_assert_eq!(info, 0, "a tridiagonal matrix of small numbers has eigenvalues");
    // Eigenvectors are rows here; their first elements say how much a node counts.
    Rule { weights: (0..n).map(|i| total * a[i * n] * a[i * n]).collect(), nodes }
}

/// For `∫ f(t) dt` from 0 to 1.
pub fn legendre() -> &'static Rule {
    static RULE: OnceLock<Rule> = OnceLock::new();
    RULE.get_or_init(|| {
        let mut rule = rule(40, 1.0, |_| 0.0, |i| i / (4.0 * i * i - 1.0).sqrt());
        rule.nodes.iter_mut().for_each(|x| *x = (*x + 1.0) / 2.0);
        rule
    })
}

/// For `∫ f(t) e^-t dt` from 0 on.
pub fn laguerre() -> &'static Rule {
    static RULE: OnceLock<Rule> = OnceLock::new();
    RULE.get_or_init(|| rule(32, 1.0, |i| 2.0 * i + 1.0, |i| i))
}

/// For `∫ f(t) t^(-1/6) e^-t dt` from 0 on, over what it is for `f = 1`.
fn sixth_root(n: usize) -> Rule {
    const POWER: f64 = -1.0 / 6.0;
    rule(n, 1.0, |i| 2.0 * i + 1.0 + POWER, |i| (i * (i + POWER)).sqrt())
}

/// The rule with the weight of Airy functions, for double precision.
pub fn airy() -> &'static Rule {
    static RULE: OnceLock<Rule> = OnceLock::new();
    RULE.get_or_init(|| sixth_root(40))
}

/// The same for float32.
pub fn airy_narrow() -> &'static Rule {
    static RULE: OnceLock<Rule> = OnceLock::new();
    RULE.get_or_init(|| sixth_root(16))
}
