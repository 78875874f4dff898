//! Containers: [`Sequential`], and lists, maps and options of modules.

use super::module::located;
use super::{Forward, Module, Name, Place, Slot, SlotMut};
use crate::ops::{DimList, Integer};
use crate::{Error, Result, Tensor};
use std::collections::BTreeMap;

/// Modules in a row: each takes what the one before it gives. Closures are modules, too.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let model = nn::Sequential::new()
///     .add(nn::Linear::new(784, 100, Device::Cpu)?)
///     .add(nn::Relu::new())
///     .add(nn::Linear::new(100, 10, Device::Cpu)?)
///     .add(|x: &Tensor| x.log_softmax(-1, None));
/// let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["0.weight", "0.bias", "2.weight", "2.bias"]);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Sequential {
    parts: Vec<(String, Box<dyn Forward>)>,
    place: Place,
}

impl Sequential {
    /// No modules yet.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends a module, named by its number.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // It adds a module; nothing is summed.
    pub fn add(self, module: impl Forward) -> Sequential {
        let name = self.parts.len().to_string();
        self.named(&name, module)
    }

    /// Appends a module with a name of its own.
    #[must_use]
    pub fn named(mut self, name: &str, module: impl Forward) -> Sequential {
        self.push(name, Box::new(module));
        self
    }

    /// Appends a module in place.
    pub fn push(&mut self, name: &str, module: Box<dyn Forward>) {
        self.parts.push((name.to_string(), module));
    }

    /// How many modules there are.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

impl std::fmt::Debug for Sequential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.parts.iter().map(|(name, part)| (name, part.kind()))).finish()
    }
}

impl Module for Sequential {
    fn slots(&self) -> Vec<(Name, Slot<'_>)> {
        self.parts.iter().map(|(name, part)| (name.clone().into(), Slot::Module(part.as_ref()))).collect()
    }
    fn slots_mut(&mut self) -> Vec<(Name, SlotMut<'_>)> {
        self.parts.iter_mut().map(|(name, part)| (name.clone().into(), SlotMut::Module(part.as_mut()))).collect()
    }
    fn place(&self) -> Option<&Place> {
        Some(&self.place)
    }
}

impl Forward for Sequential {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mut x = input.clone();
        for (name, part) in &self.parts {
            x = match (part.forward(&x), part.place()) {
                (Ok(x), _) => x,
                // A layer says where it is; of a closure its number is told.
                (Err(e), Some(_)) => return Err(e),
                (Err(e), None) => {
                    let own = self.place.path();
                    return Err(e.in_module(&if own.is_empty() { name.clone() } else { format!("{own}.{name}") }));
                }
            };
        }
        Ok(x)
    }
}

macro_rules! lists {
    ($([$($gen:tt)*] $List:ty;)*) => {$(
        impl<$($gen)*> Module for $List {
            fn slots(&self) -> Vec<(Name, Slot<'_>)> {
                self.iter().enumerate().map(|(i, m)| (i.to_string().into(), Slot::Module(m))).collect()
            }
            fn slots_mut(&mut self) -> Vec<(Name, SlotMut<'_>)> {
                self.iter_mut().enumerate().map(|(i, m)| (i.to_string().into(), SlotMut::Module(m))).collect()
            }
        }
    )*};
}
lists! {
    [T: Module] Vec<T>;
    [T: Module, const N: usize] [T; N];
}

impl<T: Module> Module for Option<T> {
    fn slots(&self) -> Vec<(Name, Slot<'_>)> {
        self.as_ref().map(Module::slots).unwrap_or_default()
    }
    fn slots_mut(&mut self) -> Vec<(Name, SlotMut<'_>)> {
        self.as_mut().map(Module::slots_mut).unwrap_or_default()
    }
    fn place(&self) -> Option<&Place> {
        self.as_ref().and_then(Module::place)
    }
}

impl<T: Module> Module for BTreeMap<String, T> {
    fn slots(&self) -> Vec<(Name, Slot<'_>)> {
        self.iter().map(|(name, m)| (name.clone().into(), Slot::Module(m))).collect()
    }
    fn slots_mut(&mut self) -> Vec<(Name, SlotMut<'_>)> {
        self.iter_mut().map(|(name, m)| (name.clone().into(), SlotMut::Module(m))).collect()
    }
}

impl Module for Box<dyn Forward> {
    fn slots(&self) -> Vec<(Name, Slot<'_>)> {
        (**self).slots()
    }
    fn slots_mut(&mut self) -> Vec<(Name, SlotMut<'_>)> {
        (**self).slots_mut()
    }
    fn place(&self) -> Option<&Place> {
        (**self).place()
    }
    fn kind(&self) -> String {
        (**self).kind()
    }
}

impl Forward for Box<dyn Forward> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        (**self).forward(input)
    }
}

/// Parameters in a list, named by their numbers: PyTorch's `ParameterList`.
#[derive(Clone, Debug, Default)]
pub struct ParameterList(pub Vec<Tensor>);

impl Module for ParameterList {
    fn slots(&self) -> Vec<(Name, Slot<'_>)> {
        self.0.iter().enumerate().map(|(i, t)| (i.to_string().into(), Slot::Parameter(t))).collect()
    }
    fn slots_mut(&mut self) -> Vec<(Name, SlotMut<'_>)> {
        self.0.iter_mut().enumerate().map(|(i, t)| (i.to_string().into(), SlotMut::Parameter(t))).collect()
    }
}

/// Parameters by name: PyTorch's `ParameterDict`.
#[derive(Clone, Debug, Default)]
pub struct ParameterDict(pub BTreeMap<String, Tensor>);

impl Module for ParameterDict {
    fn slots(&self) -> Vec<(Name, Slot<'_>)> {
        self.0.iter().map(|(name, t)| (name.clone().into(), Slot::Parameter(t))).collect()
    }
    fn slots_mut(&mut self) -> Vec<(Name, SlotMut<'_>)> {
        self.0.iter_mut().map(|(name, t)| (name.clone().into(), SlotMut::Parameter(t))).collect()
    }
}

/// Gives its input.
#[derive(Clone, Copy, Debug, Default, Module)]
pub struct Identity;

impl Forward for Identity {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        Ok(input.clone())
    }
}

/// Dimensions `start` to `end` as one: PyTorch's `Flatten`, of all but the batch by default.
#[derive(Clone, Debug, Module)]
pub struct Flatten {
    /// The first.
    pub start: isize,
    /// The last.
    pub end: isize,
    place: Place,
}

impl Default for Flatten {
    fn default() -> Flatten {
        Flatten::new(1, -1)
    }
}

impl Flatten {
    /// Of these dimensions, both included.
    pub fn new(start: impl Integer, end: impl Integer) -> Flatten {
        Flatten { start: start.wide() as isize, end: end.wide() as isize, place: Place::default() }
    }
}

impl Forward for Flatten {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || input.flatten(self.start, self.end))
    }
}

/// One dimension as several.
#[derive(Clone, Debug, Module)]
pub struct Unflatten {
    /// Which.
    pub dim: isize,
    /// The sizes that it becomes; one may be -1.
    pub sizes: Vec<isize>,
    place: Place,
}

impl Unflatten {
    /// Dimension `dim` as `sizes`.
    ///
    /// # Errors
    /// For no sizes.
    pub fn new<'a>(dim: impl Integer, sizes: impl Into<DimList<'a>>) -> Result<Unflatten> {
        let sizes = sizes.into();
        if sizes.is_empty() {
            return Err(Error::value("unflatten", "sizes must be non-empty").in_module("Unflatten"));
        }
        Ok(Unflatten { dim: dim.wide() as isize, sizes: sizes.to_vec(), place: Place::default() })
    }
}

impl Forward for Unflatten {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || input.unflatten(self.dim, &self.sizes))
    }
}
