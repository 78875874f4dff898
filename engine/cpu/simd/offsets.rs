//! Where the terms of a convolution's sums are.

/// Where the terms of a sum are, relative to a place.
#[derive(Debug)]
pub struct Offsets {
    pub(super) list: Vec<usize>,
    most: usize,
}

impl Offsets {
    /// From the distances.
    pub fn new(list: Vec<usize>) -> Offsets {
        Offsets { most: list.iter().copied().max().unwrap_or(0), list }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Elements that are read, from the first on, for the place before `end`.
    pub fn reach(&self, end: usize) -> usize {
        if self.list.is_empty() {
            0
        } else {
            self.most + end
        }
    }
}
