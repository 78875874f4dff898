//! Messages of the control channel: a length, then fields, each with its own length. Depends on nothing of the crate.
//!
//! Invariant: no length is believed before it is compared with the limit, and memory grows only with what arrives.

use std::io::{Error, ErrorKind, Read, Result, Write};

/// The version of the protocol, which both sides state first.
pub(super) const PROTOCOL: u64 = 1;
/// The longest message of a peer that has shown its token.
pub(super) const LIMIT: usize = 64 << 20;
/// The longest message of one that has not.
pub(super) const GREETING: usize = 4096;

/// A message's fields.
pub(super) type Fields = Vec<Vec<u8>>;

/// Writes a message in one call.
pub(super) fn send(to: &mut impl Write, fields: &[&[u8]]) -> Result<()> {
    let total: usize = fields.iter().map(|f| f.len() + 4).sum();
    if total > LIMIT {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("a message of {total} bytes; at most {LIMIT} are sent"),
        ));
    }
    let mut bytes = Vec::new();
    bytes.extend((total as u32).to_le_bytes());
    for field in fields {
        bytes.extend((field.len() as u32).to_le_bytes());
        bytes.extend_from_slice(field);
    }
    to.write_all(&bytes)
}

/// Reads a message of at most `limit` bytes.
pub(super) fn receive(from: &mut impl Read, limit: usize) -> Result<Fields> {
    let wrong = |why: &str| Error::new(ErrorKind::InvalidData, why.to_owned());
    let mut length = [0u8; 4];
    from.read_exact(&mut length)?;
    let total = u32::from_le_bytes(length) as usize;
    if total > limit {
        return Err(wrong("a message longer than is allowed"));
    }
    let mut body = Vec::new();
    if from.take(total as u64).read_to_end(&mut body)? != total {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let (mut rest, mut fields) = (body.as_slice(), Vec::new());
    while !rest.is_empty() {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(|| wrong("a field that is cut off"))?;
        let (field, tail) = tail
            .split_at_checked(u32::from_le_bytes(*head) as usize)
            .ok_or_else(|| wrong("a field that is cut off"))?;
        fields.push(field.to_vec());
        rest = tail;
    }
    Ok(fields)
}

/// A number as a field.
pub(super) fn number(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

/// The number of a field, if it is one.
pub(super) fn parse(field: Option<&Vec<u8>>) -> Option<u64> {
    Some(u64::from_le_bytes(field?.as_slice().try_into().ok()?))
}

/// The text of a field.
pub(super) fn text(field: Option<&Vec<u8>>) -> String {
    field.map(|f| String::from_utf8_lossy(f).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_lengths_are_not_believed() {
        let mut bytes = Vec::new();
        send(&mut bytes, &[b"set", &number(7), b""]).unwrap();
        let fields = receive(&mut bytes.as_slice(), GREETING).unwrap();
        assert_eq!(fields, [b"set".to_vec(), number(7).to_vec(), Vec::new()]);
        assert_eq!(parse(fields.get(1)), Some(7));
        assert!(receive(&mut [255u8, 255, 255, 255, 0].as_slice(), LIMIT).is_err());
        assert!(receive(&mut [8u8, 0, 0, 0, 255, 255, 255, 255, 1, 2, 3, 4].as_slice(), LIMIT).is_err());
        assert!(receive(&mut [8u8, 0, 0, 0, 1].as_slice(), LIMIT).is_err());
    }
}
