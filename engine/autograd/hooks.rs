//! Hooks on tensors, leaves and nodes, and what else hangs on a node only where someone asked for it.
//!
//! Order for one node, as in PyTorch: hooks on its results, kept gradients, hooks before it, the node, hooks after it.

use super::autograd_meta::Auto;
use super::host_refs::{self, HostRef};
use super::node::{Kind, Node};
use super::record::{edge_of, requires_grad};
use super::transform_leaf::Source;
use crate::{batching, Error, Result, Tensor};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::tensor::Inner;

/// The gradients of a node's results, or of its inputs.
pub type GradList = SmallVec<[Option<Tensor>; 3]>;
/// Sees a gradient on its way, and may put another in its place.
pub type Hook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;
/// Sees the gradients of a node's results before it runs, and may put others in their place.
pub type PreHook = Arc<dyn Fn(&[Option<Tensor>]) -> Result<Option<GradList>> + Send + Sync>;
/// Sees the gradients of a node's inputs and of its results after it ran, and may put others in the former's place.
pub type PostHook = Arc<dyn Fn(&[Option<Tensor>], &[Option<Tensor>]) -> Result<Option<GradList>> + Send + Sync>;
/// Sees a leaf after its gradient has grown.
pub type LeafHook = Arc<dyn Fn(&Tensor) -> Result<()> + Send + Sync>;

#[derive(Clone)]
enum Registered {
    Result(u32, Hook),
    Before(PreHook),
    After(PostHook),
    Accumulated(LeafHook),
}

/// The hooks of a node, or those of a leaf, which outlive the node that adds to it.
#[derive(Default)]
pub(crate) struct Extra(Mutex<Option<Box<Parts>>>);

#[derive(Default)]
struct Parts {
    hooks: Vec<(u64, Registered)>,
    /// What the hooks hold of an embedding language, by their handles.
    hosts: Vec<(u64, HostRef)>,
    retained: SmallVec<[(u32, Weak<Inner>); 1]>,
    trace: Option<String>,
    metadata: Option<Arc<dyn Any + Send + Sync>>,
    /// The leaf that the node leads to, once that was asked.
    source: Option<Source>,
}

/// Handles are unique in the process, so that any of them can be removed from anywhere.
static NEXT_HOOK: AtomicU64 = AtomicU64::new(1);

impl Extra {
    fn add(&self, hook: Registered) -> u64 {
        let id = NEXT_HOOK.fetch_add(1, Ordering::Relaxed);
        self.0.lock().get_or_insert_default().hooks.push((id, hook));
        id
    }

    fn remove(&self, id: u64) {
        let removed = self.0.lock().as_mut().and_then(|parts| {
            let host = parts.hosts.iter().position(|(i, _)| *i == id).map(|at| parts.hosts.remove(at));
            let at = parts.hooks.iter().position(|(i, _)| *i == id)?;
            Some((parts.hooks.remove(at), host))
        });
        drop(removed);
    }

    /// Says which objects a hook holds; nothing where it is gone.
    pub(super) fn set_host(&self, id: u64, host: HostRef) {
        host_refs::count_registered();
        if let Some(parts) = self.0.lock().as_mut().filter(|parts| parts.hooks.iter().any(|(own, _)| *own == id)) {
            parts.hosts.push((id, host));
        }
    }

    /// The objects that nothing but these hooks and the metadata holds.
    pub(super) fn each_host(&self, visit: &mut dyn FnMut(&HostRef)) {
        let Some(parts) = self.0.try_lock() else { return };
        let Some(parts) = parts.as_ref() else { return };
        parts.hosts.iter().map(|(_, host)| host).filter(|host| host_refs::is_idle(host)).for_each(&mut *visit);
        parts.metadata.iter().filter(|host| Arc::strong_count(host) == 1).for_each(visit);
    }

    /// Takes them out.
    pub(super) fn take_hosts(&self) -> Option<Box<dyn Any>> {
        let mut parts = self.0.try_lock()?;
        let parts = parts.as_mut()?;
        let Parts { hooks, hosts, metadata, .. } = &mut **parts;
        let (gone, kept) =
            std::mem::take(hooks).into_iter().partition(|(id, _)| hosts.iter().any(|(own, _)| own == id));
        *hooks = kept;
        let gone: Vec<(u64, Registered)> = gone;
        Some(Box::new((gone, std::mem::take(hosts), metadata.take())))
    }

    /// The hooks that `pick` picks. Cloned, because they run without the lock: they may add others.
    fn pick<T>(&self, pick: impl Fn(&Registered) -> Option<T>) -> SmallVec<[T; 2]> {
        match self.0.lock().as_ref() {
            Some(parts) => parts.hooks.iter().filter_map(|(_, hook)| pick(hook)).collect(),
            None => SmallVec::new(),
        }
    }

    /// Is there nothing for a backward pass to do?
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().as_ref().is_none_or(|parts| parts.hooks.is_empty() && parts.retained.is_empty())
    }

    /// How many hooks and notes there are.
    fn len(&self) -> usize {
        self.0.lock().as_ref().map_or(0, |parts| parts.hooks.len() + parts.retained.len())
    }

    /// Does anything wait for the node to have run?
    pub(crate) fn has_after(&self) -> bool {
        let after = |(_, hook): &(u64, Registered)| matches!(hook, Registered::After(_));
        self.0.lock().as_ref().is_some_and(|parts| parts.hooks.iter().any(after))
    }

    pub(super) fn source(&self) -> Option<Source> {
        self.0.lock().as_ref()?.source.clone()
    }

    pub(super) fn set_source(&self, source: Source) {
        self.0.lock().get_or_insert_default().source = Some(source);
    }

    pub(crate) fn set_trace(&self, trace: Option<String>) {
        if trace.is_some() {
            self.0.lock().get_or_insert_default().trace = trace;
        }
    }

    pub(crate) fn trace(&self) -> Option<String> {
        self.0.lock().as_ref()?.trace.clone()
    }

    /// What an embedding language keeps with the node; made when first asked for.
    pub(crate) fn metadata(&self, make: impl FnOnce() -> Arc<dyn Any + Send + Sync>) -> Arc<dyn Any + Send + Sync> {
        if let Some(found) = self.0.lock().as_ref().and_then(|parts| parts.metadata.clone()) {
            return found;
        }
        let made = make();
        host_refs::count_registered();
        Arc::clone(self.0.lock().get_or_insert_default().metadata.get_or_insert(made))
    }

    fn retain(&self, nr: u32, tensor: Weak<Inner>) {
        self.0.lock().get_or_insert_default().retained.push((nr, tensor));
    }

    /// The gradients of the results after all hooks that come before the node, kept where asked for.
    pub(crate) fn before(&self, op: &'static str, mut grads: GradList) -> Result<GradList> {
        if self.is_empty() {
            return Ok(grads);
        }
        let on_results = self.pick(|h| match h {
            Registered::Result(nr, hook) => Some((*nr as usize, Arc::clone(hook))),
            Registered::Before(_) | Registered::After(_) | Registered::Accumulated(_) => None,
        });
        for (nr, hook) in on_results {
            let Some(Some(g)) = grads.get(nr) else { continue };
            if let Some(other) = hook(g)? {
                check_same(op, g, &other)?;
                grads[nr] = Some(other);
            }
        }
        let retained = self.0.lock().as_ref().map(|parts| parts.retained.clone()).unwrap_or_default();
        for (nr, tensor) in retained {
            if let (Some(Some(g)), Some(inner)) = (grads.get(nr as usize), tensor.upgrade()) {
                let tensor = Tensor(inner);
                // Since it was written in place it is the result of another node.
                let made_by = batching::bare(&tensor).0.auto.own_edge();
                if made_by.is_some_and(|e| !std::ptr::eq(&e.node.extra, self)) {
                    continue;
                }
                let g = batching::rewrapped(g.clone(), &tensor)?;
                let total = match tensor.0.auto.grad() {
                    Some(old) => old + &g,
                    // Who asked for this gradient may write to it.
                    None if !g.is_sparse() => g.copy(),
                    None => Ok(g),
                }?;
                tensor.0.auto.set_grad(Some(total));
            }
        }
        let before = self.pick(|h| match h {
            Registered::Before(hook) => Some(Arc::clone(hook)),
            Registered::Result(..) | Registered::After(_) | Registered::Accumulated(_) => None,
        });
        for hook in before {
            if let Some(others) = hook(&grads)? {
                grads = replaced(op, &grads, others)?;
            }
        }
        Ok(grads)
    }

    /// The gradients of the inputs after the hooks that come after the node.
    pub(crate) fn after(&self, op: &'static str, mut inputs: GradList, outputs: &[Option<Tensor>]) -> Result<GradList> {
        if self.is_empty() {
            return Ok(inputs);
        }
        let after = self.pick(|h| match h {
            Registered::After(hook) => Some(Arc::clone(hook)),
            Registered::Result(..) | Registered::Before(_) | Registered::Accumulated(_) => None,
        });
        for hook in after {
            if let Some(others) = hook(&inputs, outputs)? {
                inputs = replaced(op, &inputs, others)?;
            }
        }
        Ok(inputs)
    }

    /// Runs what waits for a leaf's gradient to have grown.
    pub(crate) fn accumulated(&self, leaf: &Tensor) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let hooks = self.pick(|h| match h {
            Registered::Accumulated(hook) => Some(Arc::clone(hook)),
            Registered::Result(..) | Registered::Before(_) | Registered::After(_) => None,
        });
        hooks.iter().try_for_each(|hook| hook(leaf))
    }
}

fn check_same(op: &'static str, g: &Tensor, other: &Tensor) -> Result<()> {
    if other.shape() != g.shape() {
        return Err(Error::shape(op, "hook has changed the size of value", &[g.shape(), other.shape()]));
    }
    if other.dtype() != g.dtype() {
        return Err(Error::dtype(op, "hook has changed the type of value", &[g.dtype(), other.dtype()]));
    }
    if other.device() != g.device() {
        return Err(Error::device(op, "hook has changed the device of value", &[g.device(), other.device()]));
    }
    Ok(())
}

fn replaced(op: &'static str, old: &[Option<Tensor>], new: GradList) -> Result<GradList> {
    if new.len() != old.len() {
        let why =
            format!("hook has returned an incorrect number of values (got {}, but expected {})", new.len(), old.len());
        return Err(Error::runtime(op, why));
    }
    for pair in old.iter().zip(&new) {
        if let (Some(old), Some(new)) = pair {
            check_same(op, old, new)?;
        }
    }
    Ok(new)
}

impl Node {
    /// Where this node's hooks are: with the leaf for one that adds to it.
    pub(crate) fn with_extra<T>(&self, f: impl FnOnce(&Extra) -> T) -> T {
        match &self.kind {
            Kind::Accumulate(leaf) => f(&leaf.0.auto.leaf_extra()),
            Kind::Op(_) | Kind::MultiOp(_) | Kind::Write(..) | Kind::SplitInfo(_) | Kind::Custom(_) => f(&self.extra),
        }
    }

    pub(crate) fn add_pre_hook(&self, hook: PreHook) -> u64 {
        self.with_extra(|e| e.add(Registered::Before(hook)))
    }

    pub(crate) fn add_post_hook(&self, hook: PostHook) -> u64 {
        self.with_extra(|e| e.add(Registered::After(hook)))
    }

    pub(crate) fn remove_hook(&self, id: u64) {
        self.with_extra(|e| e.remove(id));
    }

    pub(crate) fn set_hook_host(&self, id: u64, host: HostRef) {
        self.with_extra(|e| e.set_host(id, host));
    }
}

impl Tensor {
    /// Calls `hook` with each gradient of this tensor before it goes further; what it returns takes its place. Gives a
    /// handle for [`Tensor::remove_hook`].
    ///
    /// # Errors
    /// [`Error::Runtime`] for a tensor that does not require a gradient.
    pub fn register_hook(&self, hook: Hook) -> Result<u64> {
        crate::graph::note_break("register_hook", "a hook on a gradient is registered")?;
        if self.is_batched() {
            // The tape holds what is computed in the end; the hook sees the gradient of one sample.
            let levels = batching::levels_of(self);
            let of_samples = move |g: &Tensor| {
                let other = hook(&batching::rewrapped_by(g.clone(), &levels)?)?;
                other.map(|g| batching::bare_by(g, &levels)).transpose()
            };
            return batching::bare(self).register_hook(Arc::new(of_samples));
        }
        super::check_followed("register_hook", self)?;
        let Some(edge) = edge_of(self) else {
            if requires_grad(self) {
                // No gradient reaches a view that was made without recording.
                return Ok(self.0.auto.leaf_extra().add(Registered::Accumulated(Arc::new(|_| Ok(())))));
            }
            return Err(Error::runtime(
                "register_hook",
                "cannot register a hook on a tensor that doesn't require gradient",
            ));
        };
        Ok(edge.node.with_extra(|e| e.add(Registered::Result(edge.nr, hook))))
    }

    /// Calls `hook` with this leaf each time that a backward pass has added to its gradient.
    ///
    /// # Errors
    /// [`Error::Runtime`] for a tensor that does not require a gradient, or is not a leaf.
    pub fn register_post_accumulate_grad_hook(&self, hook: LeafHook) -> Result<u64> {
        let op = "register_post_accumulate_grad_hook";
        crate::graph::note_break(op, "a hook on a gradient is registered")?;
        if !requires_grad(self) {
            let why = "cannot register a hook on a tensor that doesn't require gradient";
            return Err(Error::runtime(op, why));
        }
        if !self.is_leaf() {
            let why = "post accumulate grad hooks cannot be registered on non-leaf tensors";
            return Err(Error::runtime(op, why));
        }
        Ok(self.0.auto.leaf_extra().add(Registered::Accumulated(hook)))
    }

    /// Does something wait for its gradients, a hook or a note to keep them?
    pub fn has_hooks(&self) -> bool {
        self.hook_count() > 0
    }

    /// How many wait for its gradients, hooks and notes to keep them.
    pub fn hook_count(&self) -> usize {
        if !requires_grad(self) {
            return 0;
        }
        let own = &batching::bare(self).0.auto;
        match own.own_edge() {
            Some(edge) => edge.node.with_extra(Extra::len),
            None => own.leaf_extra().len(),
        }
    }

    /// Takes a hook away; does nothing where it is gone already.
    pub fn remove_hook(&self, handle: u64) {
        let own = &batching::bare(self).0.auto;
        match own.own_edge() {
            Some(edge) => edge.node.remove_hook(handle),
            None => own.leaf_extra().remove(handle),
        }
    }

    /// Tells a garbage collector, through [`visit_tensor_hosts`](super::visit_tensor_hosts), what a hook holds.
    #[doc(hidden)]
    pub fn set_hook_host(&self, handle: u64, host: HostRef) {
        let own = &batching::bare(self).0.auto;
        match edge_of(self).filter(|_| !own.is_leaf()) {
            Some(edge) => edge.node.set_hook_host(handle, host),
            None => own.leaf_extra().set_host(handle, host),
        }
    }

    /// Keeps this result's gradient as [`Tensor::grad`], which otherwise only leaves have.
    ///
    /// # Errors
    /// [`Error::Runtime`] for a tensor that does not require a gradient.
    pub fn retain_grad(&self) -> Result<()> {
        crate::graph::note_break("retain_grad", "the gradient of a result is kept")?;
        if !requires_grad(self) {
            return Err(Error::runtime("retain_grad", "can't retain_grad on Tensor that has requires_grad=False"));
        }
        // A view without a step of its own is a leaf to PyTorch here, lost or not.
        if self.0.auto.own_edge().is_some() {
            super::check_followed("retain_grad", self)?;
        }
        if self.is_leaf() || !self.0.auto.start_retaining() {
            return Ok(());
        }
        if let Some(edge) = edge_of(self) {
            edge.node.extra.retain(edge.nr, Arc::downgrade(&self.0));
        }
        Ok(())
    }

    /// Is this result's gradient kept?
    pub fn retains_grad(&self) -> bool {
        !self.is_leaf() && self.0.auto.is_retaining()
    }
}

impl Auto {
    /// The gradient goes here after each in-place write too: PyTorch keeps it for the latest value.
    pub(crate) fn retain_again(&self, tensor: &Tensor) {
        if self.is_retaining()
            && let Some(edge) = self.own_edge()
        {
            edge.node.extra.retain(edge.nr, Arc::downgrade(&tensor.0));
        }
    }
}
