//! Gives this package's tests, examples and benches a run path to `libmlx` and OpenBLAS, so that they run as they are. The same
//! arguments go to dependents, whose build script reads them from `DEP_LUCID_LINK_ARGS` (see mlx-ffi's crate documentation).
//! Also makes `op_doc!`, the documentation of the ops, of the texts in engine/ops/docs.

#[path = "engine/ops/docs/compose.rs"]
mod compose;

use std::env;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=engine/ops/docs");
    let given = |name: &str| env::var(name).unwrap_or_default();
    let args = given("DEP_LUCID_CPU_LINK_ARGS");
    for arg in args.split(';').filter(|a| !a.is_empty()) {
        println!("cargo:rustc-link-arg={arg}");
    }
    println!("cargo:link_args={args}");
    println!("cargo:openblas={}", given("DEP_LUCID_CPU_OPENBLAS"));
    println!("cargo:mlx={}", given("DEP_MLX_ROOT"));
    let source = compose::macro_source(Path::new("engine/ops/docs"))?;
    std::fs::write(Path::new(&given("OUT_DIR")).join("op_docs.rs"), source)?;
    Ok(())
}
