//! Graphs as text: a listing, and DOT for Graphviz.

use super::{Graph, Step, Value};
use std::fmt::{self, Write};

impl Step {
    /// What it is called.
    pub(super) fn label(&self) -> String {
        match self {
            Step::Op { prim, .. } | Step::MultiOp { prim, .. } => prim.name().to_string(),
            Step::View { op, .. } => format!("view.{}", op.name()),
            Step::Assign { dst, .. } => format!("write %{dst}"),
            Step::IndexInto { op, dst, .. } => format!("{}_ %{dst}", op.name()),
            Step::Draw { draw } => format!("draw #{draw}"),
            Step::Eval { .. } => "eval".to_string(),
            Step::Host { call } => format!("host #{call}"),
        }
    }
}

impl Graph {
    fn typed(&self, f: &mut impl Write, value: Value) -> fmt::Result {
        match self.infos.get(value as usize) {
            Some(info) => write!(f, "%{value}: {}{:?}@{}", info.dtype, &info.shape[..], info.device),
            None => write!(f, "%{value}"),
        }
    }

    fn listed(values: &[Value]) -> String {
        values.iter().map(|v| format!("%{v}")).collect::<Vec<_>>().join(", ")
    }

    fn line(&self, f: &mut impl Write, step: &Step) -> fmt::Result {
        match step {
            Step::Op { prim, inputs, out, .. } => {
                self.typed(f, *out)?;
                write!(f, " = {}({})", prim.name(), Graph::listed(inputs))
            }
            Step::MultiOp { prim, inputs, outs, .. } => {
                for (i, &out) in outs.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    self.typed(f, out)?;
                }
                write!(f, " = {}({})", prim.name(), Graph::listed(inputs))
            }
            Step::View { op, of, out, .. } => {
                self.typed(f, *out)?;
                write!(f, " = view.{}(%{of})", op.name())
            }
            Step::Assign { dst, src } => write!(f, "%{dst} <- %{src}"),
            Step::IndexInto { op, dst, rest } => write!(f, "{}_(%{dst}, {})", op.name(), Graph::listed(rest)),
            Step::Draw { draw } => write!(f, "draw #{draw}"),
            Step::Eval { values, wait } => write!(f, "eval({}, wait={wait})", Graph::listed(values)),
            Step::Host { call } => write!(f, "host #{call}"),
        }
    }

    /// The graph in Graphviz's language: a box for each step, an edge for each value that one reads.
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph lucid {\n  rankdir=TB;\n  node [shape=box, fontname=monospace];\n");
        for &v in &self.inputs {
            let _ = writeln!(text, "  v{v} [shape=ellipse, label=\"input %{v}\"];");
        }
        for (v, _) in &self.constants {
            let _ = writeln!(text, "  v{v} [shape=note, label=\"constant %{v}\"];");
        }
        for (at, step) in self.steps.iter().enumerate() {
            let mut label = String::new();
            let _ = self.line(&mut label, step);
            // A step of several values has a box of its own, which leads to a box for each.
            let name = step.out().map_or_else(|| format!("s{at}"), |v| format!("v{v}"));
            let _ = writeln!(text, "  {name} [label=\"{}\"];", label.replace('"', "'"));
            if step.out().is_none() {
                for v in step.outs() {
                    let _ = writeln!(text, "  {name} -> v{v};");
                }
            }
            for used in step.uses() {
                let _ = writeln!(text, "  v{used} -> {name};");
            }
        }
        for &v in &self.outputs {
            let _ = writeln!(text, "  out{v} [shape=ellipse, label=\"output\"];\n  v{v} -> out{v};");
        }
        text.push_str("}\n");
        text
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("graph(")?;
        for (i, &v) in self.inputs.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            self.typed(f, v)?;
        }
        f.write_str("):\n")?;
        for (v, _) in &self.constants {
            f.write_str("  ")?;
            self.typed(f, *v)?;
            f.write_str(" = constant\n")?;
        }
        for (at, step) in self.steps.iter().enumerate() {
            if at == self.split {
                f.write_str("  --- second part ---\n")?;
            }
            f.write_str("  ")?;
            self.line(f, step)?;
            f.write_char('\n')?;
        }
        writeln!(f, "  return {}", Graph::listed(&self.outputs))
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
