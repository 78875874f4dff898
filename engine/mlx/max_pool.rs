//! Max pools whose windows tile channels-last images, by kernels of our own.
//!
//! One kernel takes the maxima of `relu(raw + bias)`, where that was not computed yet, and one routes a gradient back to the
//! raw image, so that neither the sum nor what is clipped is ever made. Both read and write pooled images channels first
//! too, for what flattens them. Depends on `custom_kernel` and `lower`. Invariant: NaN is the largest of all, and of equals the
//! first in row-major order is the maximum.

use super::conv::channels_last;
use super::convert::int;
use super::custom_kernel::{self, launch, numbers, Text, GROUP};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::lower::Origin;
use super::value::{Perm, Value};
use mlx_ffi::{ops, Array};

/// Windows that tile planes of channels-last images: sizes and windows along height and width, and the channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    /// Rows, columns.
    pub size: [usize; 2],
    /// Rows, columns.
    pub window: [usize; 2],
    pub channels: usize,
}

/// Images (N, rows, columns, channels) to take windows of: `raw`, a number added for each channel, clipped below 0.
#[derive(Clone)]
pub(super) struct Image {
    pub raw: Array,
    /// (channels)
    pub bias: Option<Array>,
    pub relu: bool,
}

impl Image {
    fn images(&self) -> usize {
        self.raw.shape().first().map_or(0, |&n| n as usize)
    }

    /// Reads `at` into the variable `v`, which was not there before if it is `new`.
    fn load(bias: bool, relu: bool) -> &'static str {
        match (bias, relu) {
            (false, false) => "v = x[at];",
            (true, false) => "v = x[at] + b[channel];",
            (false, true) => "v = x[at]; v = v < 0.0f ? 0.0f : v;",
            (true, true) => "v = x[at] + b[channel]; v = v < 0.0f ? 0.0f : v;",
        }
    }
}

/// The maxima of an image's windows: how a pooled image was made.
pub(super) struct Pooled {
    tiles: Tiles,
    image: Image,
}

/// How the gradient of a pool was made.
pub(super) struct Returned {
    tiles: Tiles,
    image: Image,
    g: Array,
    planar: bool,
    /// What the pool was of; held, since another array may get the number of one that is gone.
    of: Value,
}

impl Tiles {
    fn counts(&self) -> [usize; 2] {
        [self.size[0] / self.window[0], self.size[1] / self.window[1]]
    }

    /// Windows of one image, over all channels.
    pub(super) fn per_image(&self) -> usize {
        self.counts().iter().product::<usize>() * self.channels
    }

    /// What the kernels know of the sizes, none above 2³¹: windows of an image and of a row, channels, elements of an
    /// image, from a window to the one below and to the next, rows and columns of a window, elements of a line, images.
    pub(super) fn numbers(&self, images: usize) -> [i64; 10] {
        let ([_, columns], [h, w], c) = (self.counts(), self.window, self.channels);
        let (image, line) = (self.size[0] * self.size[1] * c, self.size[1] * c);
        [self.per_image(), columns * c, c, image, h * line, w * c, h, w, line, images].map(|n| n as i64)
    }

    /// The largest element of every window of the image; (N, channels, rows, columns) if `planar`, else channels last.
    fn max(&self, image: &Image, planar: bool) -> Made<Array> {
        let [rows, columns] = self.counts();
        let (n, bias, relu) = (image.images(), image.bias.is_some(), image.relu);
        let shape = match planar {
            true => [n, self.channels, rows, columns],
            false => [n, rows, columns, self.channels],
        };
        let shape = [int(shape[0])?, int(shape[1])?, int(shape[2])?, int(shape[3])?];
        let table = numbers(&self.numbers(n))?;
        let inputs: Vec<&Array> = [&image.raw, &table].into_iter().chain(&image.bias).collect();
        let key = format!("max pool {bias} {relu} {planar}");
        let made = launch(&key, || largest(bias, relu, planar), &inputs, &[&shape], n * self.per_image());
        made.map(|mut made| made.swap_remove(0))
    }

    /// The pooled image, with how it was made.
    pub(super) fn pool(&self, image: Image) -> Made<Value> {
        Value::later(Origin::Pool(Pooled { tiles: *self, image }), Some(channels_last(4)))
    }

    /// Every window's gradient at its first largest element, zeros elsewhere. `g` is planar as [`Tiles::max`] says;
    /// `clipped` passes only what belongs to elements above 0.
    fn max_back(&self, image: &Image, g: &Array, planar: bool, clipped: bool) -> Made<Array> {
        let (n, bias, relu) = (image.images(), image.bias.is_some(), image.relu);
        let table = numbers(&self.numbers(n))?;
        let inputs: Vec<&Array> = [&image.raw, &table, g].into_iter().chain(&image.bias).collect();
        let key = format!("max pool back {bias} {relu} {planar} {clipped}");
        let text = || route_back(bias, relu, planar, clipped);
        let made = launch(&key, text, &inputs, &[image.raw.shape()], n * self.per_image());
        made.map(|mut made| made.swap_remove(0))
    }

    /// The gradient through the pool of `x`, which is what `image` says, with how it was made.
    pub(super) fn route(&self, x: &Value, image: Image, g: &Value) -> Made<Value> {
        let planar = g.perm.is_none();
        let g = if planar { g.logical()? } else { g.ordered(x.perm.as_ref())? }.into_owned();
        Value::later(Origin::PoolBack(Returned { tiles: *self, image, g, planar, of: x.clone() }), x.perm.clone())
    }
}

impl Pooled {
    pub(super) fn make(&self) -> Made<Array> {
        self.tiles.max(&self.image, false)
    }

    /// The pooled image in logical order, where it would otherwise be computed in another and then moved.
    pub(super) fn planar(v: &Value) -> Made<Option<Array>> {
        match v.origin() {
            Some(Origin::Pool(pooled)) => Ok(Some(pooled.tiles.max(&pooled.image, true)?)),
            _ => Ok(None),
        }
    }
}

impl Returned {
    pub(super) fn make(&self) -> Made<Array> {
        self.tiles.max_back(&self.image, &self.g, self.planar, false)
    }

    /// The gradient through `relu` into a pool, from what came back through the pool: the gradient `g` by the relu's
    /// result `y`.
    pub(super) fn clipped(g: &Value, y: &Value) -> Made<Option<Value>> {
        match g.origin() {
            Some(Origin::PoolBack(r)) if r.of.is(y) => {
                let made = r.tiles.max_back(&r.image, &r.g, r.planar, true)?;
                Ok(Some(Value::new(made, g.perm.clone())))
            }
            _ => Ok(None),
        }
    }
}

/// Where window `i` begins in `x`, and a loop over its elements, each in `v`; `d` as [`Tiles::numbers`] has it.
fn windows(bias: bool, relu: bool) -> String {
    let load = Image::load(bias, relu);
    format!(
        "unsigned int per = d[0], per_row = d[1], channels = d[2];
if (i >= (unsigned int)d[9] * per) return;
unsigned int channel = i % channels, column = i % per_row / channels, row = i % per / per_row;
unsigned int start = i / per * d[3] + row * d[4] + column * d[5] + channel;
unsigned int at = start, where = start;
float v;
{load}
float best = v;
for (int y = 0; y < d[6]; y++) for (int z = 0; z < d[7]; z++) {{
  at = start + y * d[8] + z * channels;
  {load}
"
    )
}

/// Where window `i` is among the pooled elements.
fn place(planar: bool) -> &'static str {
    match planar {
        true => "i / per * per + channel * (per / channels) + row * (per_row / channels) + column",
        false => "i",
    }
}

fn inputs(names: &[&str], bias: bool) -> Vec<String> {
    names.iter().copied().chain(bias.then_some("b")).map(String::from).collect()
}

/// See [`Tiles::max`]. What is added and clipped does not change which is the largest, so that it is done once.
pub(super) fn largest(bias: bool, relu: bool, planar: bool) -> Text {
    let mut body = windows(false, false) + "  if (v > best || v != v) best = v;\n}\n";
    if bias {
        body += "best += b[channel];\n";
    }
    if relu {
        body += "best = best < 0.0f ? 0.0f : best;\n";
    }
    body += &format!("out[{}] = best;\n", place(planar));
    Text {
        name: KernelName::MaxPool,
        inputs: inputs(&["x", "d"], bias),
        outputs: vec!["out".into()],
        body,
        group: GROUP,
    }
}

/// See [`Tiles::max_back`]. Sums may be equal where what they are made of is not.
pub(super) fn route_back(bias: bool, relu: bool, planar: bool, clipped: bool) -> Text {
    let mut body = windows(bias, relu);
    // The first NaN is the largest; after it nothing is.
    body += "  out[at] = 0.0f;\n  if (best == best && (v > best || v != v)) { best = v; where = at; }\n}\n";
    let share = format!("g[{}]", place(planar));
    body += &match clipped {
        true => format!("out[where] = best <= 0.0f ? 0.0f : {share};\n"),
        false => format!("out[where] = {share};\n"),
    };
    Text {
        name: KernelName::MaxPoolBack,
        inputs: inputs(&["x", "d", "g"], bias),
        outputs: vec!["out".into()],
        body,
        group: GROUP,
    }
}

/// A convolution's bias, which may come with axes of size 1, as (channels).
pub(super) fn by_channel(bias: &Array, channels: usize) -> Made<Array> {
    if bias.ndim() == 1 {
        Ok(bias.clone())
    } else {
        Ok(ops::reshape(bias, &[int(channels)?])?)
    }
}

/// Are kernels of our own to be had, for images that have that layout?
pub(super) fn available(perm: Option<&Perm>) -> bool {
    perm == Some(&channels_last(4)) && custom_kernel::room().is_some()
}
