//! Which leaf a history leads to: what transforms ask of results, at every call and at each `.data`.
//!
//! The answer stays with each step that was looked at, so that a loop which asks in every round looks at each step once.

use super::forward;
use super::node::{Kind, Node};
use crate::{batching, Tensor};
use std::sync::{Arc, Weak};

/// The leaf of the outermost transform that a step leads to, of those whose gradients may still be asked for: the call of that
/// transform, 0 for none, and the leaf's node. `None` where it leads to no such leaf.
pub(super) type Source = Option<(u64, Weak<Node>)>;

/// Of two, that of the transform further out. A call's id is larger than those of the calls around it.
fn outer(a: Source, b: Source) -> Source {
    match (&a, &b) {
        (Some((x, _)), Some((y, _))) if y < x => b,
        (None, Some(_)) => b,
        _ => a,
    }
}

fn is_asked(node: &Node) -> bool {
    !matches!(&node.kind, Kind::Accumulate(leaf) if leaf.0.auto.is_retired())
}

/// What is known of a step without a look at those before it.
fn known(node: &Arc<Node>) -> Option<Source> {
    match &node.kind {
        Kind::Accumulate(leaf) => Some(is_asked(node).then(|| (leaf.call(), Arc::downgrade(node)))),
        _ if node.edges.is_empty() => Some(Some((0, Arc::downgrade(node)))),
        // A leaf that was found may be out of question by now, and another one not.
        _ => node.extra.source().filter(|found| match found {
            Some((_, leaf)) => leaf.upgrade().is_some_and(|leaf| is_asked(&leaf)),
            None => true,
        }),
    }
}

/// The leaf that `node` leads to, and how many steps were looked at to know it.
fn look(node: &Arc<Node>) -> (Source, usize) {
    if let Some(found) = known(node) {
        return (found, 0);
    }
    let mut looked = 1;
    let mut path: Vec<(Arc<Node>, usize, Source)> = vec![(Arc::clone(node), 0, None)];
    loop {
        let Some((top, next, found)) = path.last_mut() else { return (None, looked) };
        // Nothing is further out than what no transform has made.
        let edge = match found {
            Some((0, _)) => None,
            _ => top.edges.get(*next),
        };
        match edge {
            Some(edge) => {
                *next += 1;
                let Some(edge) = edge else { continue };
                match known(&edge.node) {
                    Some(other) => *found = outer(found.take(), other),
                    None => {
                        looked += 1;
                        let below = Arc::clone(&edge.node);
                        path.push((below, 0, None));
                    }
                }
            }
            None => {
                let found = found.take();
                top.extra.set_source(found.clone());
                path.pop();
                match path.last_mut() {
                    Some((_, _, own)) => *own = outer(own.take(), found),
                    None => return (found, looked),
                }
            }
        }
    }
}

/// The leaf that the history of `t` leads to.
pub(super) fn source(t: &Tensor) -> Source {
    t.edge().and_then(|edge| look(&edge.node).0)
}

/// Says that the gradients of these inputs of a differentiation are not asked for beyond it: see [`leads_elsewhere`].
#[doc(hidden)]
pub fn retire(inputs: &[Tensor]) {
    for t in inputs {
        batching::bare(t).0.auto.retire();
    }
}

/// Does the history of `outputs`, and with `pushed` that of their tangents, lead to a leaf that is not retired? Says whether
/// gradients are wanted elsewhere than where the retired ones were.
#[doc(hidden)]
pub fn leads_elsewhere(outputs: &[Tensor], pushed: bool) -> bool {
    let tangents = |t| forward::tangents(t).unwrap_or_default();
    outputs.iter().any(|t| source(t).is_some() || pushed && tangents(t).iter().any(|tangent| source(tangent).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::{enter_transform, leave_transform, retire};
    use crate::Device;

    fn leaf() -> Tensor {
        Tensor::of_elements(&[1.0f32], &[1], Device::Cpu).unwrap().requires_grad_(true).unwrap()
    }

    fn looked(t: &Tensor) -> (Option<u64>, usize) {
        let (found, looked) = look(&t.edge().unwrap().node);
        (found.map(|(call, _)| call), looked)
    }

    #[test]
    fn each_step_is_looked_at_once() {
        let former = enter_transform(true).unwrap();
        let x = leaf();
        let call = Some(x.call());
        let mut y = x.square().unwrap();
        assert_eq!(looked(&y), (call, 1));
        for _ in 0..100 {
            y = (&(&y * &x).unwrap() + &y).unwrap();
            assert_eq!(looked(&y), (call, 2));
            assert_eq!(looked(&y), (call, 0));
        }
        leave_transform(former);
        // Nobody asks for this leaf any more: once again all are looked at, and then never more.
        retire(&[x]);
        assert_eq!(looked(&y), (None, 201));
        assert_eq!(looked(&y), (None, 0));
    }

    #[test]
    fn what_no_transform_made_is_found_before_a_transforms_own() {
        let w = leaf();
        let former = enter_transform(true).unwrap();
        let x = leaf();
        let own = x.square().unwrap();
        let both = (&own * &w).unwrap();
        assert_eq!(looked(&own).0, Some(x.call()));
        assert_eq!(looked(&both).0, Some(0));
        leave_transform(former);
        retire(&[x]);
        assert_eq!((looked(&own).0, looked(&both).0), (None, Some(0)));
    }
}
