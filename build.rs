//! Gives this package's tests, examples and benches a run path to `libmlx` and OpenBLAS, so that they run as they are. The same
//! arguments go to dependents, whose build script reads them from `DEP_LUCID_LINK_ARGS` (see mlx-ffi's crate documentation).

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let given = |name: &str| env::var(name).unwrap_or_default();
    let args = given("DEP_LUCID_CPU_LINK_ARGS");
    for arg in args.split(';').filter(|a| !a.is_empty()) {
        println!("cargo:rustc-link-arg={arg}");
    }
    println!("cargo:link_args={args}");
    println!("cargo:openblas={}", given("DEP_LUCID_CPU_OPENBLAS"));
    println!("cargo:mlx={}", given("DEP_MLX_ROOT"));
}
