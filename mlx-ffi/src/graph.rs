//! A look into graphs that have not been evaluated. Depends on the shim. Invariant: looking computes nothing.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::error::{check, Result};
use crate::eval::schedule_lock;
use crate::vector::Text;
use crate::{sys, Array};

fn handles(outputs: &[&Array]) -> SmallVec<[sys::mlx_array; 8]> {
    outputs.iter().map(|a| a.raw()).collect()
}

/// The primitives that evaluating the outputs together would run, by MLX's name for them, the most frequent first. A
/// primitive with several outputs counts once, an array that is evaluated counts as a leaf.
pub fn primitives(outputs: &[&Array]) -> Result<Vec<(String, usize)>> {
    let handles = handles(outputs);
    let mut names = Text::new();
    {
        let _lock = schedule_lock();
        // SAFETY: valid handles and an out-parameter for the shim to fill; the lock keeps the graph as it is.
        check(unsafe { sys::lucid_graph_primitives(names.out(), handles.as_ptr(), handles.len()) })?;
    }
    let text = names.to_string();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for name in text.lines() {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().map(|(n, c)| (n.to_owned(), c)).collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Ok(counts)
}

/// Each primitive that evaluating the outputs together would run: its name, the dtypes of its inputs, `>`, and the dtype of an
/// output.
pub fn nodes(outputs: &[&Array]) -> Result<Vec<String>> {
    let handles = handles(outputs);
    let mut text = Text::new();
    let _lock = schedule_lock();
    // SAFETY: valid handles and an out-parameter for the shim to fill; the lock keeps the graph as it is.
    check(unsafe { sys::lucid_graph_nodes(text.out(), handles.as_ptr(), handles.len()) })?;
    Ok(text.to_string().lines().map(str::to_owned).collect())
}

/// How many primitives evaluating the outputs together would run.
pub fn primitive_count(outputs: &[&Array]) -> Result<usize> {
    Ok(primitives(outputs)?.iter().map(|(_, count)| count).sum())
}

/// The graph below the outputs in Graphviz's language: primitives in boxes, and the shapes of what is evaluated.
pub fn export_to_dot(outputs: &[&Array]) -> Result<String> {
    let handles = handles(outputs);
    let mut text = Text::new();
    let _lock = schedule_lock();
    // SAFETY: valid handles and an out-parameter for the shim to fill; the lock keeps the graph as it is.
    check(unsafe { sys::lucid_graph_dot(text.out(), handles.as_ptr(), handles.len()) })?;
    Ok(text.to_string())
}
