//! Graphs as pictures: steps in rows by how far they are from the inputs, edges between them.
//!
//! Depends on the listing in [`text`](super::text) for what a box says. Nothing outside of the picture is referred to.

use super::{Graph, Value};
use std::collections::HashMap;
use std::fmt::Write;

const WIDTH: usize = 230;
const HEIGHT: usize = 44;
const GAP: usize = 26;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Graph {
    /// The graph as a self-contained SVG picture.
    pub fn to_svg(&self) -> String {
        // (what the box says, its values, what it reads)
        let mut boxes: Vec<(String, String, Vec<Value>, Vec<Value>)> = Vec::new();
        let typed = |v: Value| match self.infos.get(v as usize) {
            Some(info) => format!("%{v}: {}{:?}", info.dtype, &info.shape[..]),
            None => format!("%{v}"),
        };
        for &v in &self.inputs {
            boxes.push(("input".into(), typed(v), vec![v], Vec::new()));
        }
        for (v, _) in &self.constants {
            boxes.push(("constant".into(), typed(*v), vec![*v], Vec::new()));
        }
        for step in &self.steps {
            let outs = step.outs().to_vec();
            let kinds: Vec<String> = outs.iter().copied().map(typed).collect();
            boxes.push((step.label(), kinds.join(", "), outs, step.uses().to_vec()));
        }
        for &v in &self.outputs {
            boxes.push(("output".into(), typed(v), Vec::new(), vec![v]));
        }
        let mut row_of: HashMap<Value, usize> = HashMap::new();
        let mut place_of: HashMap<Value, (usize, usize)> = HashMap::new();
        let mut taken: Vec<usize> = Vec::new();
        let (mut shapes, mut edges) = (String::new(), String::new());
        let mut widest = 0;
        for (title, kind, outs, reads) in &boxes {
            let row = reads.iter().filter_map(|v| row_of.get(v)).max().map_or(0, |row| row + 1);
            while taken.len() <= row {
                taken.push(0);
            }
            let column = taken[row];
            taken[row] += 1;
            widest = widest.max(column + 1);
            let (x, y) = (GAP + column * (WIDTH + GAP), GAP + row * (HEIGHT + GAP));
            for v in reads {
                if let Some((from_x, from_y)) = place_of.get(v) {
                    let _ = writeln!(
                        edges,
                        "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{y}\"/>",
                        from_x + WIDTH / 2,
                        from_y + HEIGHT,
                        x + WIDTH / 2
                    );
                }
            }
            for v in outs {
                row_of.insert(*v, row);
                place_of.insert(*v, (x, y));
            }
            let _ = writeln!(
                shapes,
                "<g><rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"4\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text><text class=\"kind\" x=\"{}\" y=\"{}\">{}</text></g>",
                x + 8,
                y + 18,
                escaped(title),
                x + 8,
                y + 35,
                escaped(kind)
            );
        }
        let (width, height) = (GAP + widest * (WIDTH + GAP), GAP + taken.len() * (HEIGHT + GAP));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n<style>rect{{fill:#eef3fb;stroke:#4a6fa5}} line{{stroke:#999}} \
             text{{font:12px monospace;fill:#111}} .kind{{fill:#555}}</style>\n{edges}{shapes}</svg>\n"
        )
    }
}
