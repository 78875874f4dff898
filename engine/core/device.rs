//! The devices, and how their names are resolved.
//!
//! `cpu` is one; the GPU device has the name of what the installed MLX offers (`metal`, `cuda` or `mlx`, MLX on its own
//! CPU stream) and always answers to `gpu`; `meta` has no memory. Depends on `mlx-ffi` for that name.

use crate::error::{Error, Result};
use std::fmt;

/// Where a tensor lives and its ops run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// Accelerate on Apple, OpenBLAS and SIMD kernels elsewhere.
    Cpu,
    /// MLX: Metal, CUDA, or MLX's own CPU stream.
    Gpu,
    /// None: a tensor with a shape, a dtype and strides, and no elements.
    Meta,
}

/// What parsing a device's name gave.
#[derive(Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The device.
    pub device: Device,
    /// Set where another GPU than the installed one was named: a warning to show once.
    pub warning: Option<String>,
}

impl Device {
    /// The real name: `cpu`, `metal`, `cuda` or `mlx`; `meta`.
    pub fn name(self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            Device::Gpu => gpu_name().unwrap_or("gpu"),
            Device::Meta => "meta",
        }
    }

    /// Reads a device's name: `cpu`, `gpu`, `metal` (or `mps`, PyTorch's word for it), `cuda`, `mlx` or `meta`, with an
    /// optional index `:0`.
    ///
    /// A GPU other than the installed one gives the installed one and a warning, or an error under
    /// `LUCID_STRICT_DEVICE=1`.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for another name or index, [`Error::GpuNotAvailable`] under `LUCID_STRICT_DEVICE=1`.
    ///
    /// # Examples
    /// ```
    /// use lucid::Device;
    /// assert_eq!(Device::parse("cpu")?.device, Device::Cpu);
    /// assert_eq!(Device::parse("gpu:0")?.device, Device::Gpu);
    /// assert!(Device::parse("tpu").is_err());
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn parse(text: &str) -> Result<Parsed> {
        let (name, index) = text.split_once(':').map_or((text, None), |(name, index)| (name, Some(index)));
        let name = if name == "mps" { "metal" } else { name };
        if !matches!(name, "cpu" | "gpu" | "metal" | "cuda" | "mlx" | "meta") {
            let why = format!("expected one of cpu, gpu, metal (or mps), cuda, mlx, meta as the device, got {text:?}");
            return Err(Error::runtime("device", why));
        }
        match index.map(str::parse) {
            None => {}
            Some(Ok(index)) if !matches!(name, "cpu" | "meta") => Device::select_gpu(index)?,
            Some(Ok(0)) => {}
            _ => {
                return Err(Error::runtime("device", format!("there is one {name} device, with index 0; got {text:?}")))
            }
        }
        if name == "cpu" {
            return Ok(Parsed { device: Device::Cpu, warning: None });
        }
        if name == "meta" {
            return Ok(Parsed { device: Device::Meta, warning: None });
        }
        let real = gpu_name()?;
        if name == "gpu" || name == real {
            return Ok(Parsed { device: Device::Gpu, warning: None });
        }
        let what = format!("device {name:?} is not available: the installed MLX offers {real:?}");
        if strict() {
            return Err(Box::new(Error::GpuNotAvailable(format!("{what} (LUCID_STRICT_DEVICE is set)").into())));
        }
        Ok(Parsed { device: Device::Gpu, warning: Some(format!("{what}, which is used instead")) })
    }

    /// Has this process compute on the GPU of this number: it computes on one, which its first use of a GPU settles. A process
    /// that a launcher started (`LOCAL_RANK`) and that sees one GPU calls it by its rank or 0.
    ///
    /// # Errors
    /// [`Error::Runtime`](crate::Error) where there is no such GPU, or the process computes on another already.
    ///
    /// # Examples
    /// ```
    /// use lucid::Device;
    /// Device::select_gpu(0)?;
    /// assert!(Device::select_gpu(1000).is_err());
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn select_gpu(index: usize) -> Result<()> {
        let chosen = mlx_ffi::device::choose(index);
        let own = || std::env::var("LOCAL_RANK").ok().and_then(|rank| rank.parse().ok()) == Some(index);
        match chosen {
            Err(_) if own() && mlx_ffi::device::count().is_ok_and(|n| n == 1) => Ok(()),
            Err(e) => Err(Error::runtime("device", e.to_string())),
            Ok(()) => Ok(()),
        }
    }

    /// How many GPUs there are; 1 where the installed MLX has none and computes on its CPU stream.
    ///
    /// # Errors
    /// [`Error::GpuNotAvailable`] where MLX cannot say.
    pub fn gpu_count() -> Result<usize> {
        mlx_ffi::device::count().map_err(|e| Box::new(Error::GpuNotAvailable(e.to_string().into())))
    }

    /// The number of the GPU that this process computes on.
    pub fn gpu_index() -> usize {
        mlx_ffi::device::index()
    }
}

fn strict() -> bool {
    std::env::var("LUCID_STRICT_DEVICE").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "false"))
}

fn gpu_name() -> Result<&'static str> {
    use mlx_ffi::device::Kind;
    match mlx_ffi::device::kind() {
        Ok(Kind::Metal) => Ok("metal"),
        Ok(Kind::Cuda) => Ok("cuda"),
        Ok(Kind::Cpu) => Ok("mlx"),
        Err(e) => Err(Box::new(Error::GpuNotAvailable(e.to_string().into()))),
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
