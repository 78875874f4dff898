//! Gives this package's tests a run path to `libmlx` and OpenBLAS.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in std::env::var("DEP_LUCID_CPU_LINK_ARGS").unwrap_or_default().split(';').filter(|a| !a.is_empty()) {
        println!("cargo:rustc-link-arg={arg}");
    }
}
