//! [`Module`]: the tree of parameters, buffers and submodules that a model is.
//!
//! Depends on `tensor` and `io`. A module shows its slots; everything else (names, state dicts, devices, modes) is made of
//! these, once, here. Invariant: names of parameters and buffers are PyTorch's, so state dicts move both ways.

use crate::{no_grad, DType, Device, Error, Result, Tensor};
use parking_lot::Mutex;
use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The name of a slot.
pub type Name = Cow<'static, str>;

/// Tensors by their names in a model, such as `encoder.layers.3.attn.in_proj_weight`.
pub type StateDict = BTreeMap<String, Tensor>;

/// What a module consists of.
#[non_exhaustive]
pub enum Slot<'a> {
    /// A tensor that is trained.
    Parameter(&'a Tensor),
    /// A tensor that is saved but not trained, such as a running mean.
    Buffer(&'a Tensor),
    /// A tensor that is neither, and moves between devices with the others.
    Constant(&'a Tensor),
    /// A part with slots of its own.
    Module(&'a (dyn Module + 'static)),
    /// Is the module in training mode?
    Training(bool),
}

/// [`Slot`], to change.
#[non_exhaustive]
pub enum SlotMut<'a> {
    /// A tensor that is trained.
    Parameter(&'a mut Tensor),
    /// A tensor that is saved but not trained.
    Buffer(&'a mut Tensor),
    /// A tensor that is neither.
    Constant(&'a mut Tensor),
    /// A part with slots of its own.
    Module(&'a mut (dyn Module + 'static)),
    /// The mode.
    Training(&'a mut bool),
}

/// Where a layer is in its model, for errors to say. Filled in when the model's parameters are listed.
#[derive(Default)]
pub struct Place(Mutex<Option<Arc<str>>>);

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.path())
    }
}

impl Clone for Place {
    /// A copy of a layer is in no model yet.
    fn clone(&self) -> Place {
        Place::default()
    }
}

impl Place {
    /// Remembers the path; the longest is the one from the model's root.
    fn set(&self, path: &str) {
        let mut own = self.0.lock();
        if own.as_ref().is_none_or(|known| known.len() < path.len()) {
            *own = Some(path.into());
        }
    }

    fn get(&self) -> Option<Arc<str>> {
        self.0.lock().clone()
    }

    /// The path, empty for the root and where none is known.
    pub(super) fn path(&self) -> String {
        self.get().map(|p| p.to_string()).unwrap_or_default()
    }
}

/// Names that a state dict lacked, or had beyond those of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mismatch {
    /// Names of the model that the state dict lacks.
    pub missing: Vec<String>,
    /// Names of the state dict that the model lacks.
    pub unexpected: Vec<String>,
}

/// A part of a model: parameters, buffers and submodules, by name.
///
/// `#[derive(Module)]` implements it for a struct: its tensors are parameters, its layers submodules. Lists of modules
/// (`Vec`, arrays, `Option`, `BTreeMap`) are modules, too, and so are closures of a tensor, which have no slots.
///
/// ```
/// use lucid::prelude::*;
///
/// #[derive(Module)]
/// struct Net {
///     hidden: Vec<nn::Linear>,
///     head: nn::Linear,
///     #[module(buffer)]
///     scale: Tensor,
/// }
///
/// impl Forward for Net {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         let mut x = (x * &self.scale)?;
///         for layer in &self.hidden {
///             x = layer.forward(&x)?.relu()?;
///         }
///         self.head.forward(&x)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let on = Device::Cpu;
/// let mut net = Net {
///     hidden: vec![nn::Linear::new(4, 8, on)?, nn::Linear::new(8, 8, on)?],
///     head: nn::Linear::options(8, 2).bias(false).build(on)?,
///     scale: tensor!(0.5)?,
/// };
/// let names: Vec<String> = net.state_dict()?.into_keys().collect();
/// assert_eq!(names[..3], ["head.weight", "hidden.0.bias", "hidden.0.weight"]);
/// assert_eq!(net.parameter_count(), 4 * 8 + 8 + 8 * 8 + 8 + 8 * 2);
/// net.eval();
/// let error = net.forward(&tensor!([[1.0, 2.0]])?).unwrap_err().to_string();
/// assert!(error.starts_with("hidden.0: linear"), "{error}");
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module",
    label = "not a module",
    note = "a struct of layers is one with `#[derive(Module)]`; a field that is a setting is marked `#[module(skip)]`"
)]
pub trait Module: Any + Send + Sync {
    /// The slots, in the order in which they are listed.
    fn slots(&self) -> Vec<(Name, Slot<'_>)>;

    /// The slots, to change.
    fn slots_mut(&mut self) -> Vec<(Name, SlotMut<'_>)>;

    /// Where the module keeps its place in the model, if it does.
    fn place(&self) -> Option<&Place> {
        None
    }

    /// The name of the type, for messages: `Conv2d`.
    fn kind(&self) -> String {
        kind_of(std::any::type_name::<Self>())
    }

    /// The parameters with their names. One that several layers share comes once, as in PyTorch.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let mut found: Vec<(String, Tensor)> = Vec::new();
        walk(self.slots(), "", &mut |name, slot| {
            if let Slot::Parameter(t) = slot {
                if !found.iter().any(|(_, known)| known.is_same(t)) {
                    found.push((name.to_string(), t.clone()));
                }
            }
        });
        found
    }

    /// The parameters.
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters().into_iter().map(|(_, t)| t).collect()
    }

    /// The buffers with their names, those that are not saved included.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        let mut found = Vec::new();
        walk(self.slots(), "", &mut |name, slot| {
            if let Slot::Buffer(t) | Slot::Constant(t) = slot {
                found.push((name.to_string(), t.clone()));
            }
        });
        found
    }

    /// The paths and kinds of all submodules, outermost first.
    fn named_modules(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        walk(self.slots(), "", &mut |name, slot| {
            if let Slot::Module(m) = slot {
                found.push((name.to_string(), m.kind()));
            }
        });
        found
    }

    /// The tree of submodules with their parameters' shapes, a line for each, to read.
    ///
    /// ```
    /// use lucid::prelude::*;
    /// # fn main() -> Result<()> {
    /// let model = nn::Sequential::new().add(nn::Linear::new(2, 3, Device::Cpu)?).add(nn::Relu::new());
    /// assert_eq!(model.summary(), "Sequential, 9 numbers\n  0: Linear\n    weight [3, 2]\n    bias [3]\n  1: Relu\n");
    /// # Ok(())
    /// # }
    /// ```
    fn summary(&self) -> String {
        let mut text = format!("{}, {} numbers", self.kind(), self.parameter_count());
        walk(self.slots(), "", &mut |name, slot| {
            let (depth, own) = (name.matches('.').count() + 1, name.rsplit('.').next().unwrap_or(name));
            match slot {
                Slot::Module(m) => text += &format!("\n{}{own}: {}", "  ".repeat(depth), m.kind()),
                Slot::Parameter(t) | Slot::Buffer(t) => {
                    text += &format!("\n{}{own} {:?}", "  ".repeat(depth), t.shape())
                }
                Slot::Constant(_) | Slot::Training(_) => {}
            }
        });
        text + "\n"
    }

    /// How many numbers the parameters are.
    fn parameter_count(&self) -> usize {
        self.named_parameters().iter().map(|(_, t)| t.numel()).sum()
    }

    /// Parameters and buffers by name, without history. They share the model's memory; `copy` keeps their values.
    ///
    /// # Errors
    /// None today; a `Result` so that it reads as the ops do.
    fn state_dict(&self) -> Result<StateDict> {
        let mut found = Vec::new();
        walk(self.slots(), "", &mut |name, slot| {
            if let Slot::Parameter(t) | Slot::Buffer(t) = slot {
                found.push((name.to_string(), t.clone()));
            }
        });
        found.into_iter().map(|(name, t)| Ok((name, t.detach()?))).collect()
    }

    /// Writes the values of a state dict into the parameters and buffers, on the model's device and in its dtype. Every name
    /// must be there with its shape.
    ///
    /// # Errors
    /// [`Error::Runtime`] listing every name that is missing, unknown or of another shape; nothing is written then.
    fn load_state_dict(&self, state: &StateDict) -> Result<()> {
        let Mismatch { missing, unexpected } = check(self.slots(), state)?;
        let missing = missing.iter().map(|n| format!("missing {n}"));
        let wrong: Vec<String> = missing.chain(unexpected.iter().map(|n| format!("unexpected {n}"))).collect();
        if !wrong.is_empty() {
            return Err(Error::runtime("load_state_dict", wrong.join("; ")));
        }
        write(self.slots(), state)
    }

    /// [`load_state_dict`](Module::load_state_dict) of the names that both have; the others are given back.
    ///
    /// # Errors
    /// [`Error::Runtime`] listing every name that is of another shape; nothing is written then.
    fn load_matching(&self, state: &StateDict) -> Result<Mismatch> {
        let found = check(self.slots(), state)?;
        write(self.slots(), state)?;
        Ok(found)
    }

    /// Removes all gradients.
    ///
    /// # Errors
    /// None today; a `Result` so that it reads as the ops do.
    fn zero_grad(&self) -> Result<()> {
        self.parameters().iter().try_for_each(|p| p.set_grad(None))
    }

    /// Says whether gradients are wanted for all parameters.
    ///
    /// # Errors
    /// For parameters of a dtype without gradients.
    fn requires_grad_(&self, on: bool) -> Result<()> {
        self.parameters().iter().try_for_each(|p| p.requires_grad_(on).map(drop))
    }

    /// Is the module, or a part of it, in training mode?
    fn is_training(&self) -> bool {
        let mut found = false;
        walk(self.slots(), "", &mut |_, slot| found |= matches!(slot, Slot::Training(true)));
        found
    }

    /// Training mode or evaluation mode, for dropout, batch norms and their like.
    fn set_training(&mut self, on: bool) {
        let _: Result<()> = walk_mut(self.slots_mut(), &mut |slot| {
            if let SlotMut::Training(flag) = slot {
                *flag = on;
            }
            Ok(())
        });
    }

    /// Training mode.
    fn train(&mut self) {
        self.set_training(true);
    }

    /// Evaluation mode.
    fn eval(&mut self) {
        self.set_training(false);
    }

    /// Moves parameters and buffers to a device. They are new leaves then, without gradients: make optimizers afterwards.
    ///
    /// # Errors
    /// Where the device has no room, or not a parameter's dtype.
    fn to(&mut self, device: Device) -> Result<()> {
        convert(self.slots_mut(), &|t| if t.device() == device { Ok(t.clone()) } else { t.to_device(device) })
    }

    /// Casts parameters and buffers of floating dtype. They are new leaves then, without gradients.
    ///
    /// # Errors
    /// For a dtype that is not floating, and where the device has not the dtype.
    fn to_dtype(&mut self, dtype: DType) -> Result<()> {
        if !dtype.is_float() {
            return Err(Error::dtype("to_dtype", "parameters are of a floating dtype", &[dtype]));
        }
        convert(self.slots_mut(), &|t| if t.dtype().is_float() { t.cast(dtype) } else { Ok(t.clone()) })
    }

    /// Calls a function on every submodule and at last on the module itself, with their paths. `dyn Any` tells kinds apart.
    ///
    /// ```
    /// use lucid::prelude::*;
    /// # fn main() -> Result<()> {
    /// let mut model = nn::Sequential::new().add(nn::Linear::new(2, 2, Device::Cpu)?).add(nn::Relu::new());
    /// model.apply(&mut |_, module| {
    ///     match (module as &mut dyn std::any::Any).downcast_mut::<nn::Linear>() {
    ///         Some(linear) => nn::init::constant(&linear.weight, 0.5),
    ///         None => Ok(()),
    ///     }
    /// })?;
    /// assert_eq!(model.parameters()[0].to_vec::<f32>()?, [0.5; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the function reports.
    fn apply(&mut self, f: &mut dyn FnMut(&str, &mut (dyn Module + 'static)) -> Result<()>) -> Result<()>
    where
        Self: Sized,
    {
        apply_in(self.slots_mut(), "", f)?;
        f("", self)
    }

    /// Writes the state dict to a safetensors file, in one step. Of a `dyn Module`, [`checkpoint::save`](crate::checkpoint::save)
    /// takes the state dict.
    ///
    /// # Errors
    /// As [`crate::io::save`].
    #[cfg(feature = "safetensors")]
    fn save(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        crate::io::save(path, &self.state_dict()?)
    }

    /// Reads the state dict from a file: safetensors, or PyTorch's and Lucid's `.pt` (weights only).
    ///
    /// # Errors
    /// As [`crate::checkpoint::load`] and [`load_state_dict`](Module::load_state_dict).
    fn load(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        let path = path.as_ref();
        let state = crate::checkpoint::load(path, Device::Cpu)?;
        self.load_state_dict(&state).map_err(|e| Error::runtime("load", format!("{}: {e}", path.display())))
    }
}

/// A tensor as a parameter: one that asks for its gradient. In a struct with `#[derive(Module)]` a tensor that does not ask is
/// saved with the others, and not trained.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// #[derive(Module)]
/// struct Scale {
///     gain: Tensor,
/// }
/// let scale = Scale { gain: nn::parameter(Tensor::ones(3)?)? };
/// assert!(scale.parameters()[0].requires_grad());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// For a dtype without gradients.
pub fn parameter(t: Tensor) -> Result<Tensor> {
    t.detach()?.requires_grad_(true)
}

/// What the part `name` of a model is made by; an error says where in the model that is, as errors of `forward` do.
///
/// ```
/// use lucid::prelude::*;
///
/// struct Encoder {
///     attn: nn::MultiheadAttention,
/// }
///
/// fn encoder(heads: usize) -> Result<Encoder> {
///     Ok(Encoder { attn: nn::field("attn", nn::MultiheadAttention::new(16, heads, Device::Cpu))? })
/// }
///
/// let error = nn::field("encoder", encoder(3)).err().unwrap().to_string();
/// assert!(error.starts_with("encoder.attn: multi_head_attention: embed_dim 16"), "{error}");
/// ```
///
/// # Errors
/// That of `made`.
pub fn field<T>(name: &str, made: Result<T>) -> Result<T> {
    made.map_err(|error| error.in_field(name))
}

/// A module of one tensor that gives one: what [`Sequential`](super::Sequential) chains.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not map one tensor to another",
    label = "`Forward` is not implemented",
    note = "implement `Forward` for it beside `#[derive(Module)]`, or give a closure `|x: &Tensor| -> Result<Tensor>`"
)]
pub trait Forward: Module {
    /// The output for an input.
    ///
    /// # Errors
    /// What the ops report, such as shapes that do not fit, with the layer's path in the model.
    fn forward(&self, input: &Tensor) -> Result<Tensor>;
}

impl<F: Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static> Module for F {
    fn slots(&self) -> Vec<(Name, Slot<'_>)> {
        Vec::new()
    }
    fn slots_mut(&mut self) -> Vec<(Name, SlotMut<'_>)> {
        Vec::new()
    }
}

impl<F: Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static> Forward for F {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self(input)
    }
}

fn kind_of(full: &str) -> String {
    let name = full.split('<').next().unwrap_or(full).rsplit("::").next().unwrap_or(full);
    let space = full.strip_suffix('>').and_then(|s| s.rsplit('<').next()).filter(|n| n.parse::<usize>().is_ok());
    match space {
        Some(n) => format!("{name}{n}d"),
        None => name.to_string(),
    }
}

fn joined<'a>(prefix: &str, name: &'a str) -> Cow<'a, str> {
    if prefix.is_empty() {
        return name.into();
    }
    format!("{prefix}.{name}").into()
}

/// Calls `f` on all slots, with their full names, and tells every submodule its place.
fn walk<'a>(slots: Vec<(Name, Slot<'a>)>, prefix: &str, f: &mut dyn FnMut(&str, Slot<'a>)) {
    for (name, slot) in slots {
        let full = joined(prefix, &name);
        let inner = match slot {
            Slot::Module(m) => Some(m),
            _ => None,
        };
        f(&full, slot);
        if let Some(module) = inner {
            if let Some(place) = module.place() {
                place.set(&full);
            }
            walk(module.slots(), &full, f);
        }
    }
}

fn walk_mut(slots: Vec<(Name, SlotMut<'_>)>, f: &mut dyn FnMut(SlotMut<'_>) -> Result<()>) -> Result<()> {
    slots.into_iter().try_for_each(|(_, slot)| match slot {
        SlotMut::Module(m) => walk_mut(m.slots_mut(), f),
        other => f(other),
    })
}

fn apply_in(
    slots: Vec<(Name, SlotMut<'_>)>,
    prefix: &str,
    f: &mut dyn FnMut(&str, &mut (dyn Module + 'static)) -> Result<()>,
) -> Result<()> {
    for (name, slot) in slots {
        if let SlotMut::Module(m) = slot {
            let full = joined(prefix, &name);
            apply_in(m.slots_mut(), &full, f)?;
            f(&full, m)?;
        }
    }
    Ok(())
}

/// Replaces all tensors; those that layers share stay shared.
fn convert(slots: Vec<(Name, SlotMut<'_>)>, change: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
    let mut done: Vec<(Tensor, Tensor)> = Vec::new();
    walk_mut(slots, &mut |slot| {
        let (SlotMut::Parameter(t) | SlotMut::Buffer(t) | SlotMut::Constant(t)) = slot else { return Ok(()) };
        if let Some((_, new)) = done.iter().find(|(old, _)| old.is_same(t)) {
            *t = new.clone();
            return Ok(());
        }
        let made = no_grad(|| change(&t.detach()?))?;
        if made.shares_storage(t) {
            return Ok(());
        }
        let made = if t.requires_grad() { made.requires_grad_(true)? } else { made };
        done.push((t.clone(), made.clone()));
        *t = made;
        Ok(())
    })
}

/// The names that only one of both has.
fn check(slots: Vec<(Name, Slot<'_>)>, state: &StateDict) -> Result<Mismatch> {
    let mut own: BTreeMap<String, Tensor> = BTreeMap::new();
    walk(slots, "", &mut |name, slot| {
        if let Slot::Parameter(t) | Slot::Buffer(t) = slot {
            own.insert(name.to_string(), t.clone());
        }
    });
    let differs = |(name, t): (&String, &Tensor)| {
        let given = state.get(name).filter(|given| given.shape() != t.shape())?;
        Some(format!("{name} is {:?} in the state dict and {:?} here", given.shape(), t.shape()))
    };
    let wrong: Vec<String> = own.iter().filter_map(differs).collect();
    if !wrong.is_empty() {
        return Err(Error::runtime("load_state_dict", wrong.join("; ")));
    }
    let missing = own.keys().filter(|n| !state.contains_key(*n)).cloned().collect();
    let unexpected = state.keys().filter(|n| !own.contains_key(*n)).cloned().collect();
    Ok(Mismatch { missing, unexpected })
}

fn write(slots: Vec<(Name, Slot<'_>)>, state: &StateDict) -> Result<()> {
    let mut pairs = Vec::new();
    walk(slots, "", &mut |name, slot| {
        if let (Slot::Parameter(t) | Slot::Buffer(t), Some(given)) = (slot, state.get(name)) {
            pairs.push((t.clone(), given.clone()));
        }
    });
    no_grad(|| pairs.iter().try_for_each(|(own, given)| own.copy_(&given.to_device(own.device())?.cast(own.dtype())?)))
}

/// Runs a layer's computation; an error says where the layer is in its model, or its kind where it is in none. Of layers that
/// keep no place, such as activations, [`Sequential`](super::Sequential) says it.
///
/// # Errors
/// What `run` reports.
pub fn located<M: Module + ?Sized, T>(module: &M, run: impl FnOnce() -> Result<T>) -> Result<T> {
    run().map_err(|error| match module.place().map(Place::get) {
        None => error,
        Some(Some(path)) => error.in_module(&path),
        Some(None) => error.in_module(&module.kind()),
    })
}
