//! Gives this package's tests a run path to `libmlx`, which the errors' crate is linked with.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in std::env::var("DEP_MLX_LINK_ARGS").unwrap_or_default().split(';').filter(|a| !a.is_empty()) {
        println!("cargo:rustc-link-arg={arg}");
    }
}
