//! What MLX computes on: Metal, CUDA, or its own CPU stream. Depends on the bindings and on whether the stream
//! exists. Invariants: what the loaded library offers does not change while the process runs; nor does which of its devices the
//! process computes on, once the stream exists.

use std::ffi::CStr;
use std::os::raw::c_int;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

use crate::error::{self, check, Error, Result};
use crate::{stream, sys};

/// The kind of device that the loaded MLX offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An Apple GPU.
    Metal,
    /// An NVIDIA GPU.
    Cuda,
    /// No GPU: MLX's CPU stream.
    Cpu,
}

/// What MLX says about its device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Info {
    /// The device's name, as far as MLX knows it.
    pub name: Option<String>,
    /// Its architecture.
    pub architecture: Option<String>,
    /// Its memory, in bytes.
    pub total_memory: Option<usize>,
    /// What of that is free, in bytes (CUDA only).
    pub free_memory: Option<usize>,
    /// The major and minor number of what it can compute (CUDA only).
    pub compute_capability: Option<(usize, usize)>,
}

/// An owned `mlx_device`.
pub(crate) struct Handle(sys::mlx_device);

impl Handle {
    pub(crate) fn new(kind: sys::mlx_device_type) -> Result<Self> {
        Handle::numbered(kind, if kind == sys::MLX_GPU { index() } else { 0 })
    }

    fn numbered(kind: sys::mlx_device_type, number: usize) -> Result<Self> {
        // SAFETY: plain arguments.
        let raw = unsafe { sys::mlx_device_new_type(kind, number as c_int) };
        if raw.ctx.is_null() {
            Err(error::take())
        } else {
            Ok(Handle(raw))
        }
    }

    pub(crate) fn raw(&self) -> sys::mlx_device {
        self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { sys::mlx_device_free(self.0) };
    }
}

fn ask(call: unsafe extern "C" fn(*mut bool) -> c_int) -> Result<bool> {
    let mut answer = false;
    // SAFETY: the functions passed write one bool.
    check(unsafe { call(&mut answer) })?;
    Ok(answer)
}

/// The kind of device that the loaded MLX offers.
pub fn kind() -> Result<Kind> {
    static KIND: OnceLock<Kind> = OnceLock::new();
    if let Some(kind) = KIND.get() {
        return Ok(*kind);
    }
    let kind = if ask(sys::mlx_metal_is_available)? {
        Kind::Metal
    } else if ask(sys::mlx_cuda_is_available)? {
        Kind::Cuda
    } else {
        Kind::Cpu
    };
    Ok(*KIND.get_or_init(|| kind))
}

/// Whether MLX offers a device of this kind here.
pub fn is_available(wanted: Kind) -> Result<bool> {
    Ok(wanted == Kind::Cpu || kind()? == wanted)
}

/// Has the device memory of its own, so that its copies bring elements to the host and from there? Elsewhere both use the same.
pub fn copies_by_device() -> bool {
    // Asked once there is a stream, so that it is of the device that was chosen.
    // SAFETY: no arguments.
    stream::stream().is_ok() && unsafe { sys::lucid_copies_by_device() }
}

/// Which of the GPUs this process computes on.
static INDEX: AtomicUsize = AtomicUsize::new(0);

/// The number of the GPU that this process computes on.
pub fn index() -> usize {
    INDEX.load(Ordering::Acquire)
}

/// Has this process compute on the GPU of this number, of [`count`]. A process computes on one, so that this comes before the
/// first use of MLX.
///
/// # Errors
/// Where there is no such GPU, or the process computes on another already.
pub fn choose(number: usize) -> Result<()> {
    if number == index() {
        return Ok(());
    }
    let there = count()?;
    if number >= there {
        return Err(Error::Mismatch(format!("invalid device ordinal: {number} of {there} devices")));
    }
    let chosen = stream::before_use(|| {
        INDEX.store(number, Ordering::Release);
        set_default()
    });
    match chosen {
        Some(done) => done,
        None => Err(Error::Mismatch(format!(
            "this process computes on device {} already, and a process computes on one; name device {number} before \
             anything else is done on a GPU",
            index()
        ))),
    }
}

/// Says to MLX which of its devices is meant where none is named.
fn set_default() -> Result<()> {
    let device = Handle::new(device_type()?)?;
    // SAFETY: a valid handle, whose device MLX copies.
    check(unsafe { sys::mlx_set_default_device(device.raw()) })
}

/// How many devices of the offered kind there are.
pub fn count() -> Result<usize> {
    let mut count: c_int = 0;
    // SAFETY: a valid out-parameter.
    check(unsafe { sys::mlx_device_count(&mut count, device_type()?) })?;
    Ok(usize::try_from(count).unwrap_or_default())
}

fn device_type() -> Result<sys::mlx_device_type> {
    Ok(if kind()? == Kind::Cpu { sys::MLX_CPU } else { sys::MLX_GPU })
}

/// What MLX says about the device that this process computes on.
pub fn info() -> Result<Info> {
    info_of(index())
}

/// What MLX says about the device of this number.
pub fn info_of(number: usize) -> Result<Info> {
    let device = Handle::numbered(device_type()?, number)?;
    // SAFETY: no arguments.
    let info = InfoHandle(unsafe { sys::mlx_device_info_new() });
    let mut raw = info.0;
    // SAFETY: `raw` is a valid or null handle that MLX fills or makes; `device` is valid.
    let status = unsafe { sys::mlx_device_info_get(&mut raw, device.raw()) };
    let info = if raw.ctx == info.0.ctx { info } else { InfoHandle(raw) };
    check(status)?;
    Ok(Info {
        name: info.text(c"device_name")?,
        architecture: info.text(c"architecture")?,
        total_memory: match info.size(c"total_memory")?.or(info.size(c"memory_size")?) {
            None if kind()? == Kind::Cpu => host_memory(),
            told => told,
        },
        free_memory: info.size(c"free_memory")?,
        compute_capability: info.size(c"compute_capability_major")?.zip(info.size(c"compute_capability_minor")?),
    })
}

/// What this process may have of the machine's memory and swap space in bytes, where the system tells: all of it, or what its
/// control groups and its resource limits leave.
pub(crate) fn host_memory() -> Option<usize> {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else {
        return physical_memory();
    };
    let field = |name: &str| {
        let line = text.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<usize>().ok()?.checked_mul(1024)
    };
    let machine = field("MemTotal:")? + field("SwapTotal:").unwrap_or_default();
    Some(group_limit().into_iter().chain(resource_limit()).fold(machine, usize::min))
}

/// The machine's memory, or what the process's limits leave of it: where there is no /proc, as on macOS.
fn physical_memory() -> Option<usize> {
    // SAFETY: takes a number and gives one.
    let told = |name| usize::try_from(unsafe { libc::sysconf(name) }).ok().filter(|&n| n > 0);
    let machine = told(libc::_SC_PHYS_PAGES)?.checked_mul(told(libc::_SC_PAGESIZE)?)?;
    let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA].into_iter().filter_map(|which| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the out-parameter is valid.
        let status = unsafe { libc::getrlimit(which, &mut limit) };
        let set = status == 0 && limit.rlim_cur != libc::RLIM_INFINITY;
        usize::try_from(limit.rlim_cur).ok().filter(|_| set)
    });
    Some(limits.fold(machine, usize::min))
}

/// The smallest limit of memory that the process's control group, or one above it, has.
fn group_limit() -> Option<usize> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        // Inside of a container its own group is often mounted as the root.
        let above = Path::new(path).ancestors().chain([Path::new("/")]);
        let limit = |p: &Path| {
            let text = std::fs::read_to_string(Path::new(root).join(p.strip_prefix("/").ok()?).join(file)).ok()?;
            text.trim().parse::<usize>().ok()
        };
        above.filter_map(limit).min()
    });
    limits.min()
}

/// The smaller of the limits on the process's address space and on its data.
fn resource_limit() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/limits").ok()?;
    let of = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<usize>().ok()
    };
    [of("Max address space"), of("Max data size")].into_iter().flatten().min()
}

struct InfoHandle(sys::mlx_device_info);

impl InfoHandle {
    fn has(&self, key: &CStr, text: bool) -> Result<bool> {
        let (mut exists, mut is_text) = (false, false);
        // SAFETY: a valid handle, a terminated key, valid out-parameters.
        unsafe {
            check(sys::mlx_device_info_has_key(&mut exists, self.0, key.as_ptr()))?;
            if exists {
                check(sys::mlx_device_info_is_string(&mut is_text, self.0, key.as_ptr()))?;
            }
        }
        Ok(exists && is_text == text)
    }

    fn text(&self, key: &CStr) -> Result<Option<String>> {
        if !self.has(key, true)? {
            return Ok(None);
        }
        let mut value = std::ptr::null();
        // SAFETY: a valid handle, a terminated key, a valid out-parameter.
        check(unsafe { sys::mlx_device_info_get_string(&mut value, self.0, key.as_ptr()) })?;
        // SAFETY: a terminated string that lives as long as the handle, copied here.
        Ok((!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned()))
    }

    fn size(&self, key: &CStr) -> Result<Option<usize>> {
        if !self.has(key, false)? {
            return Ok(None);
        }
        let mut value = 0usize;
        // SAFETY: a valid handle, a terminated key, a valid out-parameter.
        check(unsafe { sys::mlx_device_info_get_size(&mut value, self.0, key.as_ptr()) })?;
        Ok(Some(value))
    }
}

impl Drop for InfoHandle {
    fn drop(&mut self) {
        if !self.0.ctx.is_null() {
            // SAFETY: owned, freed once.
            unsafe { sys::mlx_device_info_free(self.0) };
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// What macOS is asked says the same here as /proc does, but for swap space and control groups.
    #[test]
    fn memory_without_proc() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:")).unwrap();
        let total: usize = line.split_whitespace().next().unwrap().parse().unwrap();
        let limits = resource_limit().unwrap_or(usize::MAX);
        let (asked, known) = (physical_memory().unwrap(), (total * 1024).min(limits));
        assert!(asked.abs_diff(known) <= known / 16, "{asked} beside {known}");
    }
}
