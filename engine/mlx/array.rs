//! Storage cells over MLX's immutable arrays, views into them, and writes through views.
//!
//! A [`Cell`] is what tensors share: it holds the current [`Value`], which an in-place write replaces, raising the
//! version. A view is the cell and a chain of view ops from the base; what it shows is made when asked for and kept with
//! the version it was made at. Depends on mlx-ffi, `view` and `lazy`. Invariants: a base's layout is row-major; a chain
//! has at most [`MAX_DEPTH`] links; a thread that holds a value waits for no lock but to read another value.

use super::kernel_error::Made;
use super::value::{Perm, Value, ValueRange};
use super::{convert, lazy, view};
use crate::shape::{numel, Layout, Shape, SliceDim, Slices};
use crate::DType;
use lucid_ir::backend;
use lucid_ir::ops::view::ViewOp;
use mlx_ffi::{ops, Array};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The longest chain of a view; a longer one becomes a single `as_strided` of the base.
const MAX_DEPTH: u8 = 8;

/// Storage shared by an array and its views.
pub(super) struct Cell {
    value: RwLock<Value>,
    version: AtomicU32,
    /// How many of the writes went by another count.
    hidden: AtomicU32,
    numel: usize,
    /// How many bytes the storage says that it has, at most what the value has.
    stated: AtomicUsize,
    /// The value's dtype; a view may show another.
    dtype: DType,
    /// Will a gradient need what it holds?
    kept: AtomicBool,
}

impl Cell {
    pub(super) fn value(&self) -> RwLockReadGuard<'_, Value> {
        self.value.read_recursive()
    }

    fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    fn store(&self, value: Value) {
        let mut held = self.value.write();
        let old = std::mem::replace(&mut *held, value);
        self.version.fetch_add(1, Ordering::Release);
        drop(held);
        drop(old);
    }

    /// Puts the same elements there in another form, unless they have changed since.
    pub(super) fn restate(&self, was: usize, value: Value) {
        if let Some(mut held) = self.value.try_write()
            && held.ready().map(Array::id) == Some(was)
        {
            *held = value;
        }
    }

    /// Notes what was found out of the elements, unless they have changed since.
    pub(super) fn learn(&self, was: usize, known: ValueRange) {
        if let Some(mut held) = self.value.try_write()
            && held.ready().map(Array::id) == Some(was)
        {
            held.known = known;
        }
    }

    /// Forgets how an evaluated value was made, so that nothing below it is kept.
    pub(super) fn forget_origin(&self) {
        let remembers = self.value().remembers();
        if remembers && let Some(mut held) = self.value.try_write() {
            held.forget_origin();
        }
    }
}

/// One link of a view's chain.
pub(super) struct View {
    /// The view that this one is made from; `None` is the base.
    parent: Option<Arc<View>>,
    op: ViewOp,
    /// The shape that the op is applied to, and what it makes of it.
    from: Shape,
    shape: Shape,
    depth: u8,
    cache: RwLock<Option<(u32, Arc<Value>)>>,
}

/// Was a storage that lives, other than this one, told that its elements are at an address, and are they there still? If not,
/// this one is told.
fn taken(address: usize, cell: &Arc<Cell>) -> Made<bool> {
    // With how many there may be before those that are gone are looked for: twice what was left, so that each is looked at seldom.
    static TOLD: Mutex<(BTreeMap<usize, Weak<Cell>>, usize)> = Mutex::new((BTreeMap::new(), 1024));
    let other = {
        let (told, most) = &mut *TOLD.lock();
        if told.len() >= *most {
            told.retain(|_, cell| cell.strong_count() > 0);
            *most = (2 * told.len()).max(1024);
        }
        let other = told.get(&address).and_then(Weak::upgrade).filter(|other| !Arc::ptr_eq(other, cell));
        if other.is_none() {
            told.insert(address, Arc::downgrade(cell));
        }
        other
    };
    let Some(other) = other else { return Ok(false) };
    let array = other.value().ready().cloned();
    let there = match array {
        Some(array) => array.address()? == Some(address),
        None => false,
    };
    if !there {
        TOLD.lock().0.insert(address, Arc::downgrade(cell));
    }
    Ok(there)
}

/// One array of the GPU backend.
#[derive(Clone)]
pub struct GpuArray {
    cell: Arc<Cell>,
    view: Option<Arc<View>>,
    layout: Layout,
    dtype: DType,
    /// The count of writes that it goes by where that is not the cell's.
    apart: Option<Arc<AtomicU32>>,
}

impl fmt::Debug for GpuArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.view.is_some() { "view " } else { "" };
        write!(f, "GpuArray({kind}{:?}, {}, version {})", self.layout, self.dtype, self.cell.version())
    }
}

impl backend::Array for GpuArray {
    #[inline]
    fn layout(&self) -> &Layout {
        &self.layout
    }
    #[inline]
    fn is_contiguous(&self) -> bool {
        // A base's layout is row-major.
        self.view.is_none() || self.layout.is_contiguous()
    }
    #[inline]
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn version(&self) -> u32 {
        match &self.apart {
            Some(writes) => writes.load(Ordering::Acquire),
            None => self.cell.version().wrapping_sub(self.cell.hidden.load(Ordering::Acquire)),
        }
    }
    fn touch(&self) {
        self.cell.version.fetch_add(1, Ordering::Release);
        self.hide();
    }
    fn apart(&self) -> GpuArray {
        GpuArray { apart: Some(Arc::default()), ..self.clone() }
    }
    fn shares_storage(&self, other: &GpuArray) -> bool {
        Arc::ptr_eq(&self.cell, &other.cell)
    }
    fn storage_key(&self) -> usize {
        Arc::as_ptr(&self.cell) as usize
    }
    fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.cell) == 1
    }
    fn storage_numel(&self) -> usize {
        self.storage_bytes() / self.dtype.size()
    }
    fn storage_bytes(&self) -> usize {
        self.cell.stated.load(Ordering::Acquire)
    }
    fn resize_storage(&self, bytes: usize) -> crate::Result<bool> {
        // A base's shape is for ever; what was cut off is zero already.
        let room = self.cell.numel * self.cell.dtype.size();
        let fits = bytes <= room;
        if fits {
            self.cell.stated.store(bytes, Ordering::Release);
        }
        Ok(fits)
    }
}

/// A value that may be read: the base's own, under its lock, or a view's.
pub(super) enum Held<'a> {
    Base(RwLockReadGuard<'a, Value>),
    View(Arc<Value>),
}

impl Deref for Held<'_> {
    type Target = Value;
    #[inline(always)]
    fn deref(&self) -> &Value {
        match self {
            Held::Base(v) => v,
            Held::View(v) => v,
        }
    }
}

impl GpuArray {
    /// How often its memory was written, whoever counts the writes.
    pub(super) fn writes(&self) -> u32 {
        self.cell.version()
    }

    /// A new storage with a value in it.
    #[inline]
    pub(super) fn new(value: Value, shape: &[usize], dtype: DType) -> Made<GpuArray> {
        debug_assert!(value.ready().is_none_or(|a| a.size() == numel(shape)));
        debug_assert!(value.ready().is_none_or(|a| convert::dtype(dtype).is_ok_and(|d| d == a.dtype())));
        convert::countable(shape)?;
        let layout = Layout::contiguous(shape);
        let cell = Cell {
            value: RwLock::new(value),
            version: AtomicU32::new(0),
            hidden: AtomicU32::new(0),
            numel: layout.numel(),
            stated: AtomicUsize::new(layout.numel() * dtype.size()),
            dtype,
            kept: AtomicBool::new(false),
        };
        let array = GpuArray { cell: Arc::new(cell), view: None, layout, dtype, apart: None };
        lazy::note(&array.cell, array.cell.numel * dtype.size())?;
        Ok(array)
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    pub(super) fn ndim(&self) -> usize {
        self.layout.shape.len()
    }

    pub(super) fn numel(&self) -> usize {
        self.layout.numel()
    }

    pub(super) fn element(&self) -> DType {
        self.dtype
    }

    /// What the array shows now.
    #[inline]
    pub(super) fn value(&self) -> Made<Held<'_>> {
        match &self.view {
            None => Ok(Held::Base(self.cell.value())),
            Some(v) => {
                convert::countable(&self.layout.shape)?;
                Ok(Held::View(v.show(&self.cell)?))
            }
        }
    }

    /// The storage itself, where the array shows all of it as it is.
    pub(super) fn base(&self) -> Option<&Cell> {
        self.view.is_none().then_some(&*self.cell)
    }

    /// Of a view, the array of all of the storage, row-major, in which the layout finds the elements; nothing where it is no
    /// view, or the storage is kept otherwise.
    pub(super) fn whole(&self) -> Made<Option<Array>> {
        if self.view.is_none() || self.recast().is_some() {
            return Ok(None);
        }
        let value = self.cell.value();
        let array = value.array()?;
        Ok((value.perm.is_none() && array.size() == self.cell.numel).then(|| array.clone()))
    }

    /// Notes that a gradient will need the elements, so that they are computed whatever else is.
    pub fn keep(&self) {
        self.cell.kept.store(true, Ordering::Relaxed);
    }

    /// Will a gradient need the elements?
    pub(super) fn is_kept(&self) -> bool {
        self.cell.kept.load(Ordering::Relaxed)
    }

    /// The storage's dtype and the array's, where they are two.
    fn recast(&self) -> Option<(DType, DType)> {
        (self.dtype != self.cell.dtype).then_some((self.cell.dtype, self.dtype))
    }

    /// A view of this array; `layout` is what `op` makes of its own.
    pub(super) fn seen_as(&self, op: &ViewOp, layout: Layout) -> GpuArray {
        let view = link(self.view.as_ref(), op, &self.layout.shape, &layout, self.recast());
        GpuArray { cell: Arc::clone(&self.cell), view, layout, dtype: op.dtype(self.dtype), apart: self.apart.clone() }
    }

    /// Asks for the storage's elements to be moved into an order of axes when something is next evaluated.
    pub(super) fn wish_order(&self, perm: Perm) {
        if self.view.is_none() {
            lazy::wish(&self.cell, perm);
        }
    }

    /// Where the storage's elements are in row-major order; puts them there if they do not, and with `apart` elsewhere if
    /// another storage was told that it is there.
    pub(super) fn expose(&self, apart: bool) -> Made<backend::Exposed> {
        let (was, array) = {
            let value = self.cell.value();
            (value.array()?.id(), value.logical()?.into_owned())
        };
        if array.size() == 0 {
            return Ok(backend::Exposed { address: 0, writable: false, owner: Box::new(()) });
        }
        let (array, address) = match array.address()? {
            Some(address) => (array, address),
            None => {
                let dense = ops::contiguous(&array, false)?;
                let address = dense
                    .address()?
                    .ok_or_else(|| crate::Error::backend("data_ptr", "MLX's contiguous copy is not contiguous"))?;
                (dense, address)
            }
        };
        let (array, address) = match apart && taken(address, &self.cell)? {
            true => {
                // An op, as MLX's own copies share memory.
                let own = ops::where_(&Array::scalar(true)?, &array, &array)?;
                let address = own.address()?.unwrap_or(address);
                taken(address, &self.cell)?;
                (own, address)
            }
            false => (array, address),
        };
        // Kept, so that the address stays the same until the next write.
        if array.id() != was {
            self.cell.restate(was, Value::plain(array.clone()));
        }
        Ok(backend::Exposed { address, writable: false, owner: Box::new(array) })
    }

    /// After a write: counts it where this array's writes are counted apart, and not where they are not.
    fn hide(&self) {
        if let Some(writes) = &self.apart {
            self.cell.hidden.fetch_add(1, Ordering::Release);
            writes.fetch_add(1, Ordering::Release);
        }
    }

    /// Replaces the elements that this array shows. `value` has its shape and dtype.
    pub(super) fn replace(&self, value: Value) -> Made<()> {
        let value = match &self.view {
            None => value,
            // What is repeated cannot be written back, but a part that shows nothing twice can.
            Some(v) if v.repeats() && !self.layout.may_overlap() => {
                strided(v.base_shape(), self.recast(), &self.layout).write(&self.cell, value)?
            }
            Some(v) => v.write(&self.cell, value)?,
        };
        self.cell.store(value);
        self.hide();
        lazy::note(&self.cell, self.cell.numel * self.cell.dtype.size())
    }
}

/// The chain for `op` after `parent`, which shows the shape `from`, with neighbours merged; `None` where the base itself
/// results.
fn link(
    parent: Option<&Arc<View>>,
    op: &ViewOp,
    from: &Shape,
    layout: &Layout,
    recast: Option<(DType, DType)>,
) -> Option<Arc<View>> {
    let new = |parent: Option<&Arc<View>>, op: ViewOp, from: &Shape| {
        let depth = parent.map_or(0, |p| p.depth) + 1;
        let (from, shape) = (Shape::from_slice(from), Shape::from_slice(&layout.shape));
        Some(Arc::new(View { parent: parent.cloned(), op, from, shape, depth, cache: RwLock::new(None) }))
    };
    let strided = || Some(strided(parent.map_or(from, |p| p.base_shape()), recast, layout));
    if matches!(op, ViewOp::AsStrided { .. }) {
        return strided();
    }
    if view::changes_nothing(op, from) {
        return parent.cloned();
    }
    let Some(p) = parent else { return new(None, op.clone(), from) };
    if let Some(merged) = view::merge(&p.op, op) {
        if view::changes_nothing(&merged, &p.from) {
            return p.parent.clone();
        }
        return new(p.parent.as_ref(), merged, &p.from);
    }
    // What changes the dtype cannot be said by strides alone.
    let same = !matches!(op, ViewOp::AsReal | ViewOp::AsComplex | ViewOp::Recast { .. });
    if p.depth >= MAX_DEPTH && same {
        return strided();
    }
    new(parent, op.clone(), from)
}

/// What a layout shows of a base, of its elements as those of another dtype where one is given, as a chain of its own.
fn strided(base: &Shape, recast: Option<(DType, DType)>, layout: &Layout) -> Arc<View> {
    let parent = recast.map(|(own, dtype)| recast_base(base, own, dtype));
    let from = parent.as_ref().map_or(base, |p| &p.shape).clone();
    let depth = parent.as_ref().map_or(0, |p| p.depth) + 1;
    let op = ViewOp::AsStrided { layout: Box::new(layout.clone()), source: lucid_ir::ops::view::Source::Plain };
    Arc::new(View { parent, op, from, shape: Shape::from_slice(&layout.shape), depth, cache: RwLock::new(None) })
}

/// The whole of a base as elements of another dtype, in one dimension: what is left over of a last one is left out.
fn recast_base(base: &Shape, own: DType, dtype: DType) -> Arc<View> {
    let link = |parent: Option<&Arc<View>>, op: ViewOp, from: usize, shape: usize| {
        let depth = parent.map_or(0, |p| p.depth) + 1;
        let (from, shape) = (Shape::from_slice(&[from]), Shape::from_slice(&[shape]));
        Arc::new(View { parent: parent.cloned(), op, from, shape, depth, cache: RwLock::new(None) })
    };
    let n = numel(base);
    let mut flat = link(None, ViewOp::Reshape { shape: Shape::from_slice(&[n]) }, n, n);
    if let Some(flat) = Arc::get_mut(&mut flat) {
        flat.from = base.clone();
    }
    let count = n * own.size() / dtype.size();
    let used = count * dtype.size() / own.size();
    if used < n {
        let part = SliceDim { axis: 0, start: 0, step: 1, len: used };
        flat = link(Some(&flat), ViewOp::Slice { dims: Slices::from_slice(&[part]) }, n, used);
    }
    link(Some(&flat), ViewOp::Recast { from: own, dtype }, used, count)
}

impl View {
    fn base_shape(&self) -> &Shape {
        self.parent.as_ref().map_or(&self.from, |p| p.base_shape())
    }

    /// Does some step of the chain show elements more than once?
    fn repeats(&self) -> bool {
        let own = match &self.op {
            ViewOp::Expand { .. } => numel(&self.from) != numel(&self.shape),
            ViewOp::AsStrided { layout, .. } => layout.may_overlap(),
            ViewOp::Reshape { .. } | ViewOp::Permute { .. } | ViewOp::Slice { .. } => false,
            ViewOp::AsReal | ViewOp::AsComplex | ViewOp::Recast { .. } => false,
        };
        own || self.parent.as_ref().is_some_and(|p| p.repeats())
    }

    /// What the view shows of the cell's current value.
    fn show(&self, cell: &Cell) -> Made<Arc<Value>> {
        let version = cell.version();
        if let Some((at, value)) = self.cache.read_recursive().as_ref()
            && *at == version
        {
            return Ok(Arc::clone(value));
        }
        let made = Arc::new(match &self.parent {
            None => view::apply(&self.op, &cell.value(), &self.from)?,
            Some(p) => view::apply(&self.op, &*p.show(cell)?, &self.from)?,
        });
        let old = self.cache.write().replace((version, Arc::clone(&made)));
        drop(old);
        Ok(made)
    }

    /// The base's value with `value` written where this view shows it.
    fn write(&self, cell: &Cell, value: Value) -> Made<Value> {
        match &self.parent {
            None => view::write(&self.op, &cell.value(), &self.from, &self.shape, value),
            Some(p) => {
                let written = view::write(&self.op, &*p.show(cell)?, &self.from, &self.shape, value)?;
                p.write(cell, written)
            }
        }
    }
}
