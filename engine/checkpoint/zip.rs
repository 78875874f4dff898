//! Zip archives as PyTorch writes them: entries that are stored, not compressed, with 64-bit sizes where needed.
//!
//! Depends on nothing of the engine but its errors. Every offset is checked against the file before it is read.

use crate::fallible::filled;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const ENTRY: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;
/// A directory of more bytes than this is no checkpoint's.
const LARGEST_DIRECTORY: u64 = 1 << 30;

struct Entry {
    at: u64,
    size: u64,
    crc: u32,
}

/// An archive that is open.
pub(super) struct Archive {
    path: PathBuf,
    file: File,
    len: u64,
    entries: BTreeMap<String, Entry>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

impl Archive {
    pub(super) fn open(path: &Path) -> Result<Archive> {
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        let len = file.metadata().map_err(|e| Error::io(path, e))?.len();
        let mut archive = Archive { path: path.to_path_buf(), file, len, entries: BTreeMap::new() };
        let tail_len = len.min(22 + 65_535 + 20 + 56);
        let tail = archive.bytes(len - tail_len, tail_len)?;
        let (count, size, start) = archive.directory(&tail).ok_or_else(|| archive.damaged("it has no directory"))?;
        if size > LARGEST_DIRECTORY {
            return Err(archive.damaged("its directory is too large"));
        }
        let listed = archive.bytes(start, size)?;
        archive.entries =
            archive.listed(&listed, count).ok_or_else(|| archive.damaged("its directory is truncated"))??;
        Ok(archive)
    }

    pub(super) fn damaged(&self, why: &str) -> Box<Error> {
        Error::file(&self.path, format!("not a checkpoint: {why}"))
    }

    fn bytes(&mut self, at: u64, len: u64) -> Result<Vec<u8>> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(self.damaged("a part of it is outside of the file"));
        }
        let mut bytes = filled(0, usize::try_from(len).map_err(|_| self.damaged("a part of it is too large"))?)?;
        self.file.seek(SeekFrom::Start(at)).map_err(|e| Error::io(&self.path, e))?;
        self.file.read_exact(&mut bytes).map_err(|e| Error::io(&self.path, e))?;
        Ok(bytes)
    }

    /// Number of entries, and the directory's size and start.
    fn directory(&mut self, tail: &[u8]) -> Option<(u64, u64, u64)> {
        let end = (0..tail.len().saturating_sub(21)).rev().find(|&i| u32_at(tail, i) == Some(END))?;
        let count = u16_at(tail, end + 10)?;
        let (size, start) = (u32_at(tail, end + 12)?, u32_at(tail, end + 16)?);
        let locator = end.checked_sub(20).filter(|&at| u32_at(tail, at) == Some(LOCATOR64));
        let Some(locator) = locator else { return Some((count.into(), size.into(), start.into())) };
        let at = u64_at(tail, locator + 8)?;
        let wide = self.bytes(at, 56).ok()?;
        (u32_at(&wide, 0)? == END64).then_some(())?;
        Some((u64_at(&wide, 32)?, u64_at(&wide, 40)?, u64_at(&wide, 48)?))
    }

    fn listed(&self, bytes: &[u8], count: u64) -> Option<Result<BTreeMap<String, Entry>>> {
        let mut entries = BTreeMap::new();
        let mut at = 0;
        for _ in 0..count {
            (u32_at(bytes, at)? == ENTRY).then_some(())?;
            let (method, crc) = (u16_at(bytes, at + 10)?, u32_at(bytes, at + 16)?);
            let (stored, full) = (u32_at(bytes, at + 20)?, u32_at(bytes, at + 24)?);
            let lens = [u16_at(bytes, at + 28)?, u16_at(bytes, at + 30)?, u16_at(bytes, at + 32)?].map(usize::from);
            let local = u32_at(bytes, at + 42)?;
            let name = String::from_utf8_lossy(bytes.get(at + 46..at + 46 + lens[0])?).into_owned();
            if method != 0 {
                return Some(Err(self.damaged(&format!("its entry {name} is compressed; PyTorch's are stored"))));
            }
            let extra = bytes.get(at + 46 + lens[0]..at + 46 + lens[0] + lens[1])?;
            let (mut size, mut start) = (u64::from(full), u64::from(local));
            // What does not fit into 32 bits is in a field of its own, in this order.
            let mut field = 0;
            while let (Some(tag), Some(len)) = (u16_at(extra, field), u16_at(extra, field + 2)) {
                if tag == 1 {
                    let mut next = field + 4;
                    let mut wide = |narrow: u32, value: &mut u64| -> Option<()> {
                        if narrow == u32::MAX {
                            *value = u64_at(extra, next)?;
                            next += 8;
                        }
                        Some(())
                    };
                    wide(full, &mut size)?;
                    wide(stored, &mut 0)?;
                    wide(local, &mut start)?;
                }
                field += 4 + usize::from(len);
            }
            entries.insert(name, Entry { at: start, size, crc });
            at += 46 + lens[0] + lens[1] + lens[2];
        }
        Some(Ok(entries))
    }

    /// The names of all entries.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The bytes of an entry, whose checksum is compared.
    pub(super) fn read(&mut self, name: &str) -> Result<Vec<u8>> {
        let missing = || Error::file(&self.path, format!("not a checkpoint: it has no {name}"));
        let &Entry { at, size, crc } = self.entries.get(name).ok_or_else(missing)?;
        let head = self.bytes(at, 30)?;
        let lens = (u16_at(&head, 26), u16_at(&head, 28));
        let (Some(LOCAL), (Some(name_len), Some(extra_len))) = (u32_at(&head, 0), lens) else {
            return Err(self.damaged("an entry is not where the directory says"));
        };
        let start = at + 30 + u64::from(name_len) + u64::from(extra_len);
        let bytes = self.bytes(start, size)?;
        if checksum(&bytes) != crc {
            return Err(self.damaged(&format!("{name} is damaged: its checksum differs")));
        }
        Ok(bytes)
    }
}

/// CRC-32 as zip has it.
fn checksum(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut c, mut k) = (i as u32, 0);
            while k < 8 {
                c = if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 };
                k += 1;
            }
            table[i] = c;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |c, &b| TABLE[usize::from((c as u8) ^ b)] ^ (c >> 8))
}
