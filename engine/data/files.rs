//! Data from files: IDX (MNIST's format) and CSV.

use crate::fallible::filled;
use crate::{DType, Device, Error, Result, Tensor};
use std::path::Path;

/// Reads an IDX file, the format of MNIST and its like, to the CPU.
///
/// ```
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("labels-idx1-ubyte");
/// std::fs::write(&path, [0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4]).unwrap();
/// assert_eq!(lucid::data::read_idx(&path)?.to_vec::<u8>()?, [5, 0, 4]);
/// # lucid::Result::<()>::Ok(())
/// ```
///
/// # Errors
/// [`Error::Io`] with the path where the file cannot be read, is compressed, or is no IDX file.
pub fn read_idx(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|e| Error::io(path, e))?;
    let bad = |why: &str| Error::file(path, format!("not an IDX file: {why}"));
    let (head, rest) = bytes.split_at_checked(4).ok_or_else(|| bad("it has less than 4 bytes"))?;
    if head[..2] == [0x1f, 0x8b] {
        return Err(bad("it is compressed; gunzip it first"));
    }
    let dtype = match (head[0], head[1], head[2]) {
        (0, 0, 0x08) => DType::U8,
        (0, 0, 0x09) => DType::I8,
        (0, 0, 0x0b) => DType::I16,
        (0, 0, 0x0c) => DType::I32,
        (0, 0, 0x0d) => DType::F32,
        (0, 0, 0x0e) => DType::F64,
        _ => return Err(bad("its first bytes name no element type")),
    };
    let ndim = usize::from(head[3]);
    let (sizes, data) = rest.split_at_checked(4 * ndim).ok_or_else(|| bad("its sizes are truncated"))?;
    let shape: Vec<usize> =
        sizes.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize).collect();
    let total = shape.iter().try_fold(dtype.size(), |n, &s| n.checked_mul(s));
    if total != Some(data.len()) {
        return Err(bad(&format!("sizes {shape:?} of {dtype} for {} bytes", data.len())));
    }
    // Its numbers are big-endian.
    let mut own = filled(0, data.len())?;
    own.copy_from_slice(data);
    if cfg!(target_endian = "little") {
        own.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
    Tensor::of_bytes(&own, &shape, dtype, Device::Cpu)
}

/// A CSV file: the names of its columns, and its fields as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The first line's fields.
    pub columns: Vec<String>,
    /// The other lines'.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Columns as numbers in float32: (rows, columns), on the CPU.
    ///
    /// # Errors
    /// For a column that is not there, and a field that is no number, which are named.
    pub fn numbers(&self, columns: &[&str]) -> Result<Tensor> {
        let place = |name: &&str| {
            let at = self.columns.iter().position(|own| own == name);
            at.ok_or_else(|| Error::value("csv", format!("there is no column {name:?} among {:?}", self.columns)))
        };
        let places = columns.iter().map(place).collect::<Result<Vec<_>>>()?;
        let mut numbers: Vec<f32> = Vec::new();
        for (i, row) in self.rows.iter().enumerate() {
            for &at in &places {
                let field = row.get(at).map(String::as_str).unwrap_or_default();
                let bad = || {
                    let why = format!("row {}, column {:?}: {field:?} is no number", i + 1, self.columns[at]);
                    Error::value("csv", why)
                };
                numbers.push(field.trim().parse().map_err(|_| bad())?);
            }
        }
        Tensor::of_elements(&numbers, &[self.rows.len(), columns.len()], Device::Cpu)
    }
}

/// Reads a CSV file with a header (RFC 4180: fields may be quoted, with quotes doubled, and contain line breaks).
///
/// ```
/// use lucid::{data::read_csv, testing::assert_close};
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("rooms.csv");
/// std::fs::write(&path, "name,size,price\n\"a, small\",20,100\nb,30,140\n").unwrap();
/// let table = read_csv(&path)?;
/// assert_eq!(table.rows[0][0], "a, small");
/// assert_close(table.numbers(&["price", "size"])?, [[100.0, 20.0], [140.0, 30.0]]);
/// # lucid::Result::<()>::Ok(())
/// ```
///
/// # Errors
/// [`Error::Io`] with the path where the file cannot be read, a quote is not closed, or a row has another number of fields.
pub fn read_csv(path: impl AsRef<Path>) -> Result<Table> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
    let mut rows: Vec<Vec<String>> = Vec::new();
    let (mut row, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = text.trim_start_matches('\u{feff}').chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quoted) {
            ('"', true) if chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            ('"', true) => quoted = false,
            ('"', false) if field.is_empty() => quoted = true,
            (',', false) => row.push(std::mem::take(&mut field)),
            ('\r', false) if chars.peek() == Some(&'\n') => {}
            ('\n', false) => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            (c, _) => field.push(c),
        }
    }
    if quoted {
        return Err(Error::file(path, "a quoted field has no end"));
    }
    if !field.is_empty() || !row.is_empty() {
        row.push(field);
        rows.push(row);
    }
    rows.retain(|row| row.len() > 1 || !row[0].is_empty());
    let mut rows = rows.into_iter();
    let columns = rows.next().ok_or_else(|| Error::file(path, "the file has no header"))?;
    let rows: Vec<Vec<String>> = rows.collect();
    if let Some(i) = rows.iter().position(|row| row.len() != columns.len()) {
        let why = format!("row {} has {} fields, the header {}", i + 1, rows[i].len(), columns.len());
        return Err(Error::file(path, why));
    }
    Ok(Table { columns, rows })
}
