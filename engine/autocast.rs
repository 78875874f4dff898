//! Automatic mixed precision: casts at the entry of ops, by the policy of each row of the op table ([`Amp`]).
//!
//! State belongs to the thread. Outside of autocast an op pays for one look at a thread-local flag, and only where its
//! policy asks for casts at all. Inside of an op that casts, and during backward passes, autocast is off. Casts are
//! recorded, so gradients arrive in the dtype of what was cast. Depends on `tensor` and the op table's `cast`.

use crate::ops::schema::Amp;
use crate::ops::Operand;
use crate::tensor::Inner;
use crate::{grad_enabled, DType, Device, Error, Result, Scalar, Tensor};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

thread_local! {
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
    static STATE: RefCell<State> = RefCell::new(State::default());
}

struct State {
    on: [bool; 3],
    dtypes: [DType; 2],
    cache: bool,
    depth: usize,
    /// Low-precision copies of leaves, by address.
    kept: HashMap<usize, CachedCast>,
}

/// A cast of a leaf; the address stays taken while the weak handle lives.
struct CachedCast {
    of: Weak<Inner>,
    version: u32,
    recorded: bool,
    cast: Tensor,
}

impl Default for State {
    fn default() -> State {
        State { on: [false; 3], dtypes: [DType::BF16, DType::F16], cache: true, depth: 0, kept: HashMap::new() }
    }
}

fn slot(device: Device) -> usize {
    match device {
        Device::Cpu => 0,
        Device::Gpu => 1,
        Device::Meta => 2,
    }
}

fn state<T>(f: impl FnOnce(&mut State) -> T) -> T {
    STATE.with(|s| f(&mut s.borrow_mut()))
}

/// Changes for which devices autocast is on.
fn switch<T>(f: impl FnOnce(&mut [bool; 3]) -> T) -> T {
    state(|s| {
        let made = f(&mut s.on);
        ACTIVE.with(|a| a.set(s.on != [false; 3]));
        made
    })
}

/// Is autocast on for this device, on this thread?
pub fn is_enabled(device: Device) -> bool {
    STATE.with(|s| s.borrow().on[slot(device)])
}

/// Turns autocast on or off for a device.
pub fn set_enabled(device: Device, on: bool) {
    switch(|all| all[slot(device)] = on);
}

/// The low-precision dtype of a device: bfloat16 on the CPU and float16 on the GPU unless set.
pub fn dtype(device: Device) -> DType {
    STATE.with(|s| s.borrow().dtypes[slot(device)])
}

/// Sets the low-precision dtype of a device.
///
/// # Errors
/// [`Error::InvalidValue`] for what is neither float16 nor bfloat16.
pub fn set_dtype(device: Device, dtype: DType) -> Result<()> {
    if !dtype.is_half() {
        let why = format!("autocast on {device} takes float16 or bfloat16, not {dtype}");
        return Err(Error::value("autocast", why));
    }
    state(|s| s.dtypes[slot(device)] = dtype);
    Ok(())
}

/// Are casts of leaves kept until the outermost block ends?
pub fn is_cache_enabled() -> bool {
    STATE.with(|s| s.borrow().cache)
}

/// Says whether casts of leaves are kept.
pub fn set_cache_enabled(on: bool) {
    state(|s| s.cache = on);
}

/// Forgets kept casts.
pub fn clear_cache() {
    // Dropped outside of the borrow: tensors may drop whole graphs.
    drop(state(|s| std::mem::take(&mut s.kept)));
}

/// Notes that a block begins.
pub fn enter() {
    state(|s| s.depth += 1);
}

/// Notes that a block ends; the outermost one forgets kept casts. Gives how many are left.
pub fn exit() -> usize {
    let left = state(|s| {
        s.depth = s.depth.saturating_sub(1);
        s.depth
    });
    if left == 0 {
        clear_cache();
    }
    left
}

/// Runs `f` with autocast off on all devices.
pub(crate) fn without<T>(f: impl FnOnce() -> T) -> T {
    struct Restore([bool; 3]);
    impl Drop for Restore {
        fn drop(&mut self) {
            switch(|on| *on = self.0);
        }
    }
    if !active() {
        return f();
    }
    let _restore = Restore(switch(std::mem::take));
    f()
}

/// May an op have to cast?
#[inline(always)]
pub(crate) fn active() -> bool {
    ACTIVE.with(Cell::get)
}

/// The inside of an op: no casts until dropped.
pub(crate) struct Inside(bool);

impl Inside {
    pub(crate) fn new() -> Inside {
        Inside(ACTIVE.with(|a| a.replace(false)))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        ACTIVE.with(|a| a.set(self.0));
    }
}

/// The casts of one call, by the op's policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Casts {
    policy: Amp,
    /// Has a float32 tensor been seen? For [`Amp::Promote`].
    wide: bool,
    /// The first tensor's device.
    device: Option<Device>,
}

impl Casts {
    pub(crate) fn new(policy: Amp) -> Casts {
        Casts { policy, wide: false, device: None }
    }

    fn target(self, t: &Tensor) -> Option<DType> {
        if !matches!(t.dtype(), DType::F16 | DType::BF16 | DType::F32) || !is_enabled(t.device()) {
            return None;
        }
        let to = match self.policy.on(t.device()) {
            Amp::Low => dtype(t.device()),
            Amp::Full => DType::F32,
            Amp::Promote if self.wide => DType::F32,
            // Those that name a device have been resolved.
            Amp::Promote | Amp::Keep | Amp::Own | Amp::LowGpu | Amp::FullGpu | Amp::FullCpu | Amp::PromoteGpu => {
                return None
            }
        };
        (to != t.dtype()).then_some(to)
    }

    fn cast(self, t: &Tensor) -> Result<Tensor> {
        let Some(to) = self.target(t) else { return Ok(t.clone()) };
        let leaf = t.dtype() == DType::F32 && to != DType::F32 && t.0.auto.view.is_none() && t.is_leaf();
        // A kept cast would be of another call than the one that is recorded.
        if !(leaf && t.requires_grad() && is_cache_enabled()) || crate::graph::recording() {
            return t.cast(to);
        }
        let (key, recorded) = (Arc::as_ptr(&t.0) as usize, grad_enabled());
        let kept = STATE.with(|s| {
            s.borrow().kept.get(&key).and_then(|k| {
                let same = k.recorded == recorded && k.version == t.version() && k.cast.dtype() == to;
                (same && std::ptr::eq(k.of.as_ptr(), Arc::as_ptr(&t.0))).then(|| k.cast.clone())
            })
        });
        if let Some(cast) = kept {
            return Ok(cast);
        }
        let cast = t.cast(to)?;
        let of = Arc::downgrade(&t.0);
        let old = state(|s| s.kept.insert(key, CachedCast { of, version: t.version(), recorded, cast: cast.clone() }));
        drop(old);
        Ok(cast)
    }

    /// Turns autocast off inside of the op, unless its policy there is to keep what it is made of.
    pub(crate) fn inside(self) -> Option<Inside> {
        (self.policy.on(self.device?) != Amp::Keep).then(Inside::new)
    }

    fn look(&mut self, t: &Tensor) {
        self.wide |= t.dtype() == DType::F32;
        self.device = self.device.or(Some(t.device()));
    }
}

/// Arguments with tensors in them, as an op is handed them and as it lends them on.
pub(crate) trait Castable {
    type Held;
    fn look(&self, casts: &mut Casts);
    fn hold(self, casts: Casts) -> Result<Self::Held>;
}

impl Castable for &Tensor {
    type Held = Tensor;
    fn look(&self, casts: &mut Casts) {
        casts.look(self);
    }
    fn hold(self, casts: Casts) -> Result<Tensor> {
        casts.cast(self)
    }
}

impl Castable for Option<&Tensor> {
    type Held = Option<Tensor>;
    fn look(&self, casts: &mut Casts) {
        self.iter().for_each(|t| casts.look(t));
    }
    fn hold(self, casts: Casts) -> Result<Option<Tensor>> {
        self.map(|t| casts.cast(t)).transpose()
    }
}

impl Castable for &[Tensor] {
    type Held = Vec<Tensor>;
    fn look(&self, casts: &mut Casts) {
        self.iter().for_each(|t| casts.look(t));
    }
    fn hold(self, casts: Casts) -> Result<Vec<Tensor>> {
        self.iter().map(|t| casts.cast(t)).collect()
    }
}

/// An [`Operand`] that owns its tensor.
pub(crate) enum HeldOperand {
    Tensor(Tensor),
    Scalar(Scalar),
}

impl HeldOperand {
    pub(crate) fn lend(&self) -> Operand<'_> {
        match self {
            HeldOperand::Tensor(t) => Operand::Tensor(t),
            HeldOperand::Scalar(s) => Operand::Scalar(*s),
        }
    }
}

impl Castable for Operand<'_> {
    type Held = HeldOperand;
    fn look(&self, casts: &mut Casts) {
        if let Operand::Tensor(t) = self {
            casts.look(t);
        }
    }
    fn hold(self, casts: Casts) -> Result<HeldOperand> {
        Ok(match self {
            Operand::Tensor(t) => HeldOperand::Tensor(casts.cast(t)?),
            Operand::Scalar(s) => HeldOperand::Scalar(s),
        })
    }
}

impl Castable for Option<Operand<'_>> {
    type Held = Option<HeldOperand>;
    fn look(&self, casts: &mut Casts) {
        if let Some(o) = self {
            o.look(casts);
        }
    }
    fn hold(self, casts: Casts) -> Result<Option<HeldOperand>> {
        self.map(|o| o.hold(casts)).transpose()
    }
}

/// Takes scaled gradients back to size in place, `g · inverse`, and says whether any was infinite or NaN before: one 0-d
/// float32 per device, in the order of the gradients' devices. Nothing is evaluated on the GPU.
///
/// # Errors
/// Where a gradient is not floating, and what the ops report.
pub fn unscale_(grads: &[Tensor], inverse: &Tensor) -> Result<Vec<Tensor>> {
    if let Some(odd) = grads.iter().find(|g| !g.dtype().is_float()) {
        return Err(Error::dtype("unscale_", "gradients must be of a floating dtype", &[odd.dtype()]));
    }
    if inverse.numel() != 1 {
        return Err(Error::shape("unscale_", "the inverse scale must be one number", &[inverse.shape()]));
    }
    without(|| {
        crate::no_grad(|| {
            let mut found: Vec<(Device, Tensor)> = Vec::new();
            let mut inverses: Vec<(Device, Tensor)> = Vec::new();
            for g in grads {
                let device = g.device();
                if !inverses.iter().any(|(d, _)| *d == device) {
                    inverses.push((device, inverse.detach()?.cast(DType::F32)?.to_device(device)?));
                }
                let Some((_, inverse)) = inverses.iter().find(|(d, _)| *d == device) else { continue };
                let good = g.isfinite()?.all(None, false)?;
                match found.iter_mut().find(|(d, _)| *d == device) {
                    Some((_, all)) => *all = all.logical_and(&good)?,
                    None => found.push((device, good)),
                }
                // In float32: the inverse of a large scale is nothing in 16 bits.
                let wide = if g.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
                g.copy_(&(g.cast(wide)? * &inverse.cast(wide)?)?)?;
            }
            found.into_iter().map(|(_, good)| good.logical_not()?.cast(DType::F32)).collect()
        })
    })
}
