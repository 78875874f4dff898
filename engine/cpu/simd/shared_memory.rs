//! POSIX shared memory: segments that several processes map, found by name and removed with their last user.
//!
//! Depends on `error`. A segment starts with a header that counts its users: the processes that have mapped it, and the
//! tickets under way to processes that will. Invariant: whoever counts the users down to 0 removes the name.

use crate::error::{Error, Result};
use crate::Device;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Once;

/// Where elements start, past the header; keeps them aligned as the engine's own memory is.
const HEADER: usize = 64;
const MAGIC: u64 = 0x6c75_6369_645f_7368;
const PREFIX: &str = "/lucid-";

static NEXT: AtomicU64 = AtomicU64::new(0);
/// Names of the segments that this process has mapped, and how often.
static MAPPED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

#[repr(C)]
struct Header {
    magic: AtomicU64,
    users: AtomicU64,
    /// Of elements. macOS rounds what it says of a segment's own size to pages.
    bytes: AtomicU64,
}

/// A mapped segment. Dropping it counts this process out.
pub struct Segment {
    base: NonNull<u8>,
    /// The size of the mapping, header included.
    mapped: usize,
    name: String,
    /// Who mapped it: a forked child shows the same memory but is not counted.
    process: u32,
}

// SAFETY: the mapping is plain memory, valid on every thread until it is dropped; the header is atomic.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

fn failed(what: &str, cause: &io::Error) -> Box<Error> {
    let why = format!("{what}: {cause}; see how much shared memory the system allows (on Linux: df /dev/shm)");
    Box::new(Error::OutOfMemory { device: Device::Cpu, why: why.into() })
}

fn refused(why: String) -> Box<Error> {
    Error::runtime("shared memory", why)
}

fn c_name(name: &str) -> Result<CString> {
    let plain = |c: char| c.is_ascii_hexdigit() || c == '-';
    match name.strip_prefix(PREFIX) {
        // macOS takes at most 31 bytes.
        Some(rest) if name.len() <= 31 && rest.chars().all(plain) => {
            CString::new(name).map_err(|e| refused(e.to_string()))
        }
        _ => Err(refused(format!("{name:?} is no name of a shared segment of tensors"))),
    }
}

impl Segment {
    /// A new segment with room for that many bytes, all 0, used by this process.
    pub fn create(bytes: usize) -> Result<Segment> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        let mapped = bytes
            .checked_add(HEADER)
            .filter(|&n| n <= isize::MAX as usize / 2)
            .ok_or_else(|| refused(format!("cannot share {bytes} bytes")))?;
        loop {
            let name = format!("{PREFIX}{}-{:x}", owner()?, NEXT.fetch_add(1, Ordering::Relaxed));
            let path = c_name(&name)?;
            let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
            // SAFETY: the name is a C string; the call makes a file descriptor or fails.
            let fd = unsafe { libc::shm_open(path.as_ptr(), flags, 0o600 as libc::c_uint) };
            if fd < 0 {
                let cause = io::Error::last_os_error();
                // Made by the process that this one was forked from, or by one that drew the same token.
                if cause.kind() == io::ErrorKind::AlreadyExists {
                    continue;
                }
                return Err(failed("cannot create shared memory", &cause));
            }
            let fd = Descriptor(fd);
            let segment = fd.grow(mapped).and_then(|()| fd.map(mapped, name));
            return match segment {
                Ok(segment) => {
                    segment.header().users.store(1, Ordering::Release);
                    segment.header().bytes.store(bytes as u64, Ordering::Release);
                    segment.header().magic.store(MAGIC, Ordering::Release);
                    Ok(segment)
                }
                Err(cause) => {
                    // SAFETY: as for `shm_open`; nobody else knows the name.
                    unsafe { libc::shm_unlink(path.as_ptr()) };
                    Err(failed(&format!("cannot share {bytes} bytes"), &cause))
                }
            };
        }
    }

    /// The segment of that name, whose user this process becomes in place of the ticket that [`Segment::lend`] made.
    pub fn open(name: &str, bytes: usize) -> Result<Segment> {
        let path = c_name(name)?;
        // SAFETY: as in `create`.
        let fd = unsafe { libc::shm_open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0 as libc::c_uint) };
        if fd < 0 {
            let cause = io::Error::last_os_error();
            return Err(refused(format!("shared memory {name} is gone ({cause}): the process that sent the tensor must live until it is received")));
        }
        let fd = Descriptor(fd);
        let mapped = fd.size().map_err(|e| failed("cannot look at shared memory", &e))?;
        let small = |held: u64| refused(format!("shared memory {name} holds {held} bytes, {bytes} are needed"));
        if mapped < HEADER || mapped - HEADER < bytes {
            return Err(small(mapped.saturating_sub(HEADER) as u64));
        }
        let segment = fd.map(mapped, name.into()).map_err(|e| failed("cannot map shared memory", &e))?;
        if segment.header().magic.load(Ordering::Acquire) != MAGIC {
            // Not ours to count: nothing may be written there.
            segment.forget();
            unlist(name);
            return Err(refused(format!("shared memory {name} holds no tensor")));
        }
        let held = segment.header().bytes.load(Ordering::Acquire);
        if held < bytes as u64 {
            segment.forget();
            unlist(name);
            return Err(small(held));
        }
        Ok(segment)
    }

    /// Counts a user that is to come, who finds the segment by the name that is given back.
    pub fn lend(&self) -> &str {
        self.header().users.fetch_add(1, Ordering::AcqRel);
        &self.name
    }

    /// Where the elements are.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: the mapping is at least as long as the header.
        unsafe { self.base.as_ptr().add(HEADER) }
    }

    fn header(&self) -> &Header {
        // SAFETY: a mapping is page-aligned and longer than a header; all values of its fields are valid.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// Unmaps without counting.
    fn forget(mut self) {
        self.process = 0;
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            if self.header().users.fetch_sub(1, Ordering::AcqRel) == 1 {
                unlink(&self.name);
            }
            unlist(&self.name);
        }
        // SAFETY: mapped by this object with this size; nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

/// An open file descriptor; closed when dropped (a mapping outlives it).
struct Descriptor(libc::c_int);

impl Descriptor {
    fn grow(&self, bytes: usize) -> io::Result<()> {
        // SAFETY: an open descriptor. `posix_fallocate` finds out now that there is no room, not at the first write.
        #[cfg(target_os = "linux")]
        let code = unsafe { libc::posix_fallocate(self.0, 0, bytes as libc::off_t) };
        // SAFETY: an open descriptor.
        #[cfg(not(target_os = "linux"))]
        let code = match unsafe { libc::ftruncate(self.0, bytes as libc::off_t) } {
            0 => 0,
            _ => io::Error::last_os_error().raw_os_error().unwrap_or(-1),
        };
        if code == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(code))
        }
    }

    fn stat(&self) -> io::Result<libc::stat> {
        // SAFETY: `stat` is plain numbers, for which 0 is a value; the call fills it.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: an open descriptor and a place to write to.
        match unsafe { libc::fstat(self.0, &mut stat) } {
            0 => Ok(stat),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn size(&self) -> io::Result<usize> {
        self.stat().map(|stat| stat.st_size as usize)
    }

    /// Has it still a name?
    fn is_linked(&self) -> bool {
        self.stat().is_ok_and(|stat| stat.st_nlink > 0)
    }

    /// Locks it until it is closed, here and in forked children; false where another process has done so, `None` where the
    /// system has no such locks.
    fn lock(&self) -> Option<bool> {
        // SAFETY: an open descriptor.
        match unsafe { libc::flock(self.0, libc::LOCK_EX | libc::LOCK_NB) } {
            0 => Some(true),
            _ => (io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock).then_some(false),
        }
    }

    fn map(&self, mapped: usize, name: String) -> io::Result<Segment> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the system chooses, of an open descriptor.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, libc::MAP_SHARED, self.0, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr() as isize != -1 => {
                *MAPPED.lock().entry(name.clone()).or_default() += 1;
                Ok(Segment { base, mapped, name, process: std::process::id() })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: open, and closed once.
        unsafe { libc::close(self.0) };
    }
}

fn unlist(name: &str) {
    let mut mapped = MAPPED.lock();
    if let Some(times) = mapped.get_mut(name) {
        *times -= 1;
        if *times == 0 {
            mapped.remove(name);
        }
    }
}

fn unlink(name: &str) {
    if let Ok(path) = c_name(name) {
        // SAFETY: a C string; where the name is gone already, the call fails without effect.
        unsafe { libc::shm_unlink(path.as_ptr()) };
    }
}

/// How many hexadecimal digits a process's token has.
const TOKEN: usize = 12;

/// What the names of this process's segments begin with: random, since process ids mean nothing in another namespace. While
/// the process lives it holds a lock on the object of that name, which the system releases however it ends.
struct Owner {
    process: u32,
    token: String,
    /// Where segments cannot be listed, nobody looks for a lock.
    _lock: Option<Descriptor>,
}

static OWNER: Mutex<Option<Owner>> = Mutex::new(None);

/// This process's token; a forked child gets one of its own.
fn owner() -> Result<String> {
    let mut owner = OWNER.lock();
    if let Some(own) = owner.as_ref().filter(|own| own.process == std::process::id()) {
        return Ok(own.token.clone());
    }
    loop {
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
        let token = format!("{:0TOKEN$x}", random >> (64 - 4 * TOKEN));
        let lock = match cfg!(target_os = "linux") {
            true => match locked(&token)? {
                Some(lock) => Some(lock),
                None => continue,
            },
            false => None,
        };
        *owner = Some(Owner { process: std::process::id(), token: token.clone(), _lock: lock });
        return Ok(token);
    }
}

/// Makes the object of a token and locks it; `None` where another process has it, or took it for a dead one's meanwhile.
fn locked(token: &str) -> Result<Option<Descriptor>> {
    let path = c_name(&format!("{PREFIX}{token}"))?;
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the name is a C string; the call makes a file descriptor or fails.
    let fd = unsafe { libc::shm_open(path.as_ptr(), flags, 0o600 as libc::c_uint) };
    if fd < 0 {
        let cause = io::Error::last_os_error();
        return match cause.kind() == io::ErrorKind::AlreadyExists {
            true => Ok(None),
            false => Err(failed("cannot create shared memory", &cause)),
        };
    }
    let fd = Descriptor(fd);
    Ok((fd.lock() != Some(false) && fd.is_linked()).then_some(fd))
}

/// Does no process hold the lock of a token? Its object is removed then.
fn is_orphaned(token: &str) -> bool {
    let name = format!("{PREFIX}{token}");
    let Ok(path) = c_name(&name) else { return false };
    // SAFETY: as in `open`.
    let fd = unsafe { libc::shm_open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0 as libc::c_uint) };
    if fd < 0 {
        // Removed at the owner's end; of another user's nothing is known.
        return io::Error::last_os_error().kind() == io::ErrorKind::NotFound;
    }
    let fd = Descriptor(fd);
    let orphaned = fd.lock() == Some(true);
    if orphaned {
        unlink(&name);
    }
    orphaned
}

/// Removes the names that only this process uses; for when it ends without dropping its tensors.
pub fn release_names() {
    let names = std::mem::take(&mut *MAPPED.lock());
    for (name, times) in names {
        let Ok(path) = c_name(&name) else { continue };
        // SAFETY: as in `open`.
        let fd = unsafe { libc::shm_open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0 as libc::c_uint) };
        if fd < 0 {
            continue;
        }
        let fd = Descriptor(fd);
        let Ok(size) = fd.size() else { continue };
        let Ok(segment) = fd.map(size, name.clone()) else { continue };
        let ours = segment.header().users.load(Ordering::Acquire) <= times;
        segment.forget();
        if ours {
            unlink(&name);
        }
    }
    let own = OWNER.lock();
    if let Some(own) = own.as_ref().filter(|own| own.process == std::process::id()) {
        unlink(&format!("{PREFIX}{}", own.token));
    }
}

/// Removes segments whose makers were killed before they could. Only Linux lists them.
fn sweep() {
    let Ok(entries) = std::fs::read_dir("/dev/shm") else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str().map(|file| format!("/{file}")));
    let mut orphaned = BTreeMap::new();
    for name in names.collect::<Vec<_>>() {
        let Some(token) = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()) else { continue };
        if token.len() == TOKEN && *orphaned.entry(token.to_owned()).or_insert_with(|| is_orphaned(token)) {
            unlink(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exists(name: &str) -> bool {
        let path = c_name(name).unwrap();
        // SAFETY: as in `open`.
        let fd = unsafe { libc::shm_open(path.as_ptr(), libc::O_RDONLY, 0 as libc::c_uint) };
        let _closed = (fd >= 0).then(|| Descriptor(fd));
        fd >= 0
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no `shm_open`")]
    fn two_mappings_show_one_memory_and_the_last_removes_it() {
        let a = Segment::create(100).unwrap();
        let name = a.lend().to_owned();
        let b = Segment::open(&name, 100).unwrap();
        assert_ne!(a.as_ptr(), b.as_ptr());
        assert_eq!(a.as_ptr() as usize % 64, 0);
        // SAFETY: both mappings have 100 bytes.
        unsafe {
            a.as_ptr().add(99).write(7);
            assert_eq!(b.as_ptr().add(99).read(), 7);
        }
        drop(a);
        assert!(exists(&name));
        drop(b);
        assert!(!exists(&name));
        assert!(Segment::open(&name, 1).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no `shm_open`")]
    #[cfg(target_os = "linux")]
    fn a_sweep_removes_what_nobody_holds_and_nothing_else() {
        let own = Segment::create(8).unwrap();
        // Another process, whose number says nothing here, alive and then dead.
        let token = "0123456789ab";
        let theirs = c_name(&format!("{PREFIX}{token}-0")).unwrap();
        // SAFETY: as in `create`.
        drop(Descriptor(unsafe {
            libc::shm_open(theirs.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600 as libc::c_uint)
        }));
        let lock = locked(token).unwrap().unwrap();
        sweep();
        assert!(exists(&format!("{PREFIX}{token}-0")) && exists(&own.name));
        drop(lock);
        sweep();
        assert!(!exists(&format!("{PREFIX}{token}-0")) && !exists(&format!("{PREFIX}{token}")));
        assert!(exists(&own.name));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no `shm_open`")]
    fn names_have_at_most_31_bytes() {
        // What macOS takes. Counters start again in each process.
        let token = owner().unwrap();
        assert_eq!(token.len(), TOKEN);
        let longest = format!("{PREFIX}{token}-{:x}", (1u64 << 44) - 1);
        assert_eq!(longest.len(), 31);
        assert!(c_name(&longest).is_ok());
        assert!(c_name(&format!("{longest}0")).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no `shm_open`")]
    fn a_segment_has_the_size_that_was_asked_for_where_the_system_rounds_it() {
        let a = Segment::create(100).unwrap();
        let name = a.lend().to_owned();
        // As macOS does: whole pages.
        let path = c_name(&name).unwrap();
        // SAFETY: as in `open`.
        let whole = Descriptor(unsafe { libc::shm_open(path.as_ptr(), libc::O_RDWR, 0 as libc::c_uint) });
        // SAFETY: an open descriptor. On macOS, where a size is given once, this fails and nothing is left to do.
        unsafe { libc::ftruncate(whole.0, 16 << 10) };
        assert!(whole.size().unwrap() > 100 + HEADER);
        let b = Segment::open(&name, 100).unwrap();
        assert!(Segment::open(&name, 101).is_err());
        drop(a);
        drop(b);
        assert!(!exists(&name));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no `shm_open`")]
    fn names_and_sizes_are_checked() {
        assert!(Segment::open("/somebody-elses", 1).is_err());
        assert!(Segment::open("/lucid-../../etc", 1).is_err());
        assert!(Segment::create(usize::MAX).is_err());
        let a = Segment::create(8).unwrap();
        let name = a.lend().to_owned();
        assert!(Segment::open(&name, 9).is_err());
        drop(Segment::open(&name, 8).unwrap());
        assert!(exists(&name));
        drop(a);
        assert!(!exists(&name));
    }
}
