//! What a garbage collector of an embedding language must know of the graph: the objects that closures on it hold.
//!
//! A hook, a packed tensor or a custom function may hold an object that leads back to the tensor whose history it is part of.
//! Reference counts never free such a cycle; the language's collector does, once it is told which objects a tensor or node
//! owns through the graph. Invariant: an object is reported only where all references to what holds it come from the root. So
//! no thread can reach it that does not hold the root: while a collector looks, which it does several times, the answer can
//! only become larger.

use super::autograd_meta::Auto;
use super::graph::GraphNode;
use super::hooks::Extra;
use super::node::{Edge, Kind, Node, Place, SavedTensor};
use crate::tensor::Inner;
use crate::Tensor;
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Objects of an embedding language that one closure holds. The closure has one handle and its registration another.
pub type HostRef = Arc<dyn Any + Send + Sync>;

/// How many closures on graphs were given host references: without any there is nothing to look for.
static REGISTERED: AtomicUsize = AtomicUsize::new(0);

/// Steps of the graph that one look visits: a collector looks often, at each tensor.
const MOST: usize = 1 << 16;

/// Says that a closure with host references was put on a graph.
pub(super) fn count_registered() {
    REGISTERED.fetch_add(1, Ordering::Relaxed);
}

/// Are the closure and its registration all that have it?
pub(super) fn is_idle(host: &HostRef) -> bool {
    Arc::strong_count(host) == 2
}

/// A part of the graph.
enum Part {
    Node(Arc<Node>),
    Tensor(Arc<Inner>),
}

/// The parts that were met, by address, with how often each was; and those all of whose references were met.
#[derive(Default)]
struct Walk {
    met: HashMap<usize, (Part, usize)>,
    owned: Vec<usize>,
}

impl Drop for Walk {
    /// Where another thread gave up its reference meanwhile, the traversal's is the last one: it is leaked, since dropping what it
    /// holds could run code of the language, which a collector forbids.
    fn drop(&mut self) {
        for (_, (part, _)) in self.met.drain() {
            match part {
                Part::Node(node) => std::mem::forget(Arc::into_inner(node)),
                Part::Tensor(inner) => std::mem::forget(Arc::into_inner(inner)),
            }
        }
    }
}

impl Walk {
    fn node(&mut self, node: &Arc<Node>) {
        let at = Arc::as_ptr(node) as usize;
        let (_, found) = self.met.entry(at).or_insert_with(|| (Part::Node(Arc::clone(node)), 0));
        *found += 1;
        // The traversal itself has one.
        if *found + 1 == Arc::strong_count(node) {
            self.owned.push(at);
        }
    }

    fn tensor(&mut self, t: &Tensor) {
        let at = Arc::as_ptr(&t.0) as usize;
        let (_, found) = self.met.entry(at).or_insert_with(|| (Part::Tensor(Arc::clone(&t.0)), 0));
        *found += 1;
        if *found + 1 == Arc::strong_count(&t.0) {
            self.owned.push(at);
        }
    }

    fn of_tensor(&mut self, auto: &Auto, visit: &mut dyn FnMut(Holder<'_>)) {
        auto.each_owned(&mut |owned| match owned {
            OwnedPart::Node(node) => self.node(node),
            OwnedPart::Tensor(t) => self.tensor(t),
            OwnedPart::Extra(extra) => visit(Holder::Extra(extra)),
        });
    }

    fn of_node(&mut self, node: &Node, visit: &mut dyn FnMut(Holder<'_>)) {
        for Edge { node, .. } in node.edges.iter().flatten() {
            self.node(node);
        }
        match &node.kind {
            Kind::Accumulate(leaf) => self.tensor(leaf),
            Kind::Custom(custom) if Arc::strong_count(custom) == 1 => visit(Holder::Custom(custom)),
            Kind::Custom(_) | Kind::Op(_) | Kind::MultiOp(_) | Kind::Write(..) | Kind::SplitInfo(_) => {}
        }
        let Some(saved) = node.saved.try_lock() else { return };
        for kept in saved.inputs.iter().chain([&saved.output]).flatten() {
            match kept {
                SavedTensor::Input(t, _) => self.tensor(t),
                SavedTensor::Output(kept, ..) => {
                    kept.1.iter().filter_map(|t| t.value.as_ref()).for_each(|t| self.tensor(t))
                }
                SavedTensor::Packed(packed) => {
                    if let Place::At(edge) = &packed.1 {
                        self.node(&edge.node);
                    }
                }
            }
        }
        drop(saved);
        visit(Holder::Saved(node));
        // The node that adds to a leaf may be found through the leaf, by threads that the traversal knows nothing of.
        if !matches!(node.kind, Kind::Accumulate(_)) {
            visit(Holder::Extra(&node.extra));
        }
    }

    /// Goes on from what is owned to what that owns.
    fn finish(&mut self, visit: &mut dyn FnMut(Holder<'_>)) {
        let mut steps = 0;
        while let Some(at) = self.owned.pop() {
            steps += 1;
            let part = match self.met.get(&at) {
                Some((Part::Node(node), _)) => Part::Node(Arc::clone(node)),
                Some((Part::Tensor(inner), _)) => Part::Tensor(Arc::clone(inner)),
                None => continue,
            };
            if steps > MOST {
                return;
            }
            match &part {
                Part::Node(node) => self.of_node(node, visit),
                Part::Tensor(inner) => self.of_tensor(&inner.auto, visit),
            }
        }
    }
}

/// What a tensor owns, for the traversal.
pub(super) enum OwnedPart<'a> {
    Node(&'a Arc<Node>),
    Tensor(&'a Tensor),
    Extra(&'a Extra),
}

/// What holds host references.
enum Holder<'a> {
    Extra(&'a Extra),
    Custom(&'a super::custom::Custom),
    Saved(&'a Node),
}

/// Calls `f` with each holder of host references that the tensor alone leads to.
fn of_tensor(t: &Tensor, f: &mut dyn FnMut(Holder<'_>)) {
    if REGISTERED.load(Ordering::Relaxed) == 0 || Arc::strong_count(&t.0) != 1 {
        return;
    }
    let mut walk = Walk::default();
    walk.of_tensor(&t.0.auto, f);
    if let Some(batch) = t.storage().batch().filter(|_| t.is_batched()) {
        walk.tensor(&batch.value);
    }
    walk.finish(f);
}

fn of_node(node: &GraphNode, f: &mut dyn FnMut(Holder<'_>)) {
    if REGISTERED.load(Ordering::Relaxed) == 0 || Arc::strong_count(&node.0) != 1 {
        return;
    }
    let mut walk = Walk::default();
    walk.of_node(&node.0, f);
    walk.finish(f);
}

/// Calls `visit` with the host references that nothing but this handle of the tensor leads to. Takes no lock that it would have
/// to wait for, calls no hook and drops no object: a collector may call it at any time.
#[doc(hidden)]
pub fn visit_tensor_hosts(t: &Tensor, visit: &mut dyn FnMut(&HostRef)) {
    of_tensor(t, &mut |holder| holder.each(visit));
}

/// The same of a node.
#[doc(hidden)]
pub fn visit_node_hosts(node: &GraphNode, visit: &mut dyn FnMut(&HostRef)) {
    of_node(node, &mut |holder| holder.each(visit));
}

/// Drops what [`visit_tensor_hosts`] visits, with the closures that have it: a collector has found that nobody asks for it.
#[doc(hidden)]
pub fn clear_tensor_hosts(t: &Tensor) {
    let mut taken = Vec::new();
    of_tensor(t, &mut |holder| taken.extend(holder.take()));
}

/// Drops what [`visit_node_hosts`] visits.
#[doc(hidden)]
pub fn clear_node_hosts(node: &GraphNode) {
    let mut taken = Vec::new();
    of_node(node, &mut |holder| taken.extend(holder.take()));
}

impl Holder<'_> {
    fn each(&self, visit: &mut dyn FnMut(&HostRef)) {
        match self {
            Holder::Extra(extra) => extra.each_host(visit),
            Holder::Custom(custom) => custom.host.get().into_iter().filter(|host| is_idle(host)).for_each(visit),
            Holder::Saved(node) => {
                let Some(saved) = node.saved.try_lock() else { return };
                for kept in saved.inputs.iter().chain([&saved.output]).flatten() {
                    if let SavedTensor::Packed(packed) = kept
                        && Arc::strong_count(&packed.0.call) == 1
                    {
                        packed.0.host.iter().filter(|host| is_idle(host)).for_each(&mut *visit);
                    }
                }
            }
        }
    }

    /// What is to be dropped when the traversal is over, since dropping runs code of the language.
    fn take(&self) -> Option<Box<dyn Any>> {
        match self {
            Holder::Extra(extra) => extra.take_hosts(),
            Holder::Custom(custom) => custom.take_backward(),
            Holder::Saved(node) => {
                let mut saved = node.saved.try_lock()?;
                let packed =
                    saved.inputs.iter().chain([&saved.output]).flatten().any(|k| matches!(k, SavedTensor::Packed(_)));
                let old = packed.then(|| std::mem::take(&mut *saved));
                saved.freed |= packed;
                old.map(|old| Box::new(old) as Box<dyn Any>)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Result};

    struct Object;

    /// A result with a hook that holds an object, and that object.
    fn hooked(x: &Tensor) -> Result<(Tensor, std::sync::Weak<Object>)> {
        let y = (x * 2.0)?;
        let object = Arc::new(Object);
        let (weak, host): (_, HostRef) = (Arc::downgrade(&object), object.clone());
        let handle = y.register_hook(Arc::new(move |_| {
            let _held = &object;
            Ok(None)
        }))?;
        y.set_hook_host(handle, host);
        Ok((y, weak))
    }

    fn seen(t: &Tensor) -> usize {
        let mut n = 0;
        visit_tensor_hosts(t, &mut |_| n += 1);
        n
    }

    #[test]
    fn a_tensor_shows_what_it_alone_leads_to() -> Result<()> {
        let x = Tensor::of_elements(&[1.0f32, 2.0], &[2], Device::Cpu)?.requires_grad_(true)?;
        let (y, object) = hooked(&x)?;
        assert_eq!(seen(&y), 1);
        let other = y.clone();
        assert_eq!(seen(&y), 0);
        drop(other);
        // Two ways lead from the result to the node, and the tensor itself is a third.
        let z = (y.exp()? + &y.sin()?)?;
        assert_eq!((seen(&y), seen(&z)), (0, 0));
        drop(y);
        assert_eq!(seen(&z), 1);
        let node = z.grad_fn();
        assert_eq!(seen(&z), 0);
        drop(node);
        assert!(object.upgrade().is_some());
        clear_tensor_hosts(&z);
        assert!(object.upgrade().is_none());
        assert_eq!(seen(&z), 0);
        z.sum(None, false, None)?.backward()
    }

    #[test]
    fn a_leaf_shows_its_hooks_once_no_graph_leads_to_it() -> Result<()> {
        let x = Tensor::of_elements(&[1.0f32], &[1], Device::Cpu)?.requires_grad_(true)?;
        let object: HostRef = Arc::new(Object);
        let host = Arc::clone(&object);
        let handle = x.register_post_accumulate_grad_hook(Arc::new(move |_| {
            let _held = &object;
            Ok(())
        }))?;
        x.set_hook_host(handle, host);
        assert_eq!(seen(&x), 1);
        let y = (&x * 2.0)?;
        assert_eq!(seen(&x), 0);
        y.backward()?;
        drop(y);
        assert_eq!(seen(&x), 1);
        x.remove_hook(handle);
        assert_eq!(seen(&x), 0);
        Ok(())
    }
}
