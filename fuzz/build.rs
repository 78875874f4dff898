//! Gives the targets the engine's run path to MLX and OpenBLAS, so that they run as they are.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in std::env::var("DEP_LUCID_LINK_ARGS").unwrap_or_default().split(';').filter(|a| !a.is_empty()) {
        println!("cargo:rustc-link-arg={arg}");
    }
}
