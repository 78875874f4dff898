//! Gives the benchmark a run path to MLX and OpenBLAS.

fn main() {
    for arg in std::env::var("DEP_LUCID_LINK_ARGS").unwrap_or_default().split(';').filter(|a| !a.is_empty()) {
        println!("cargo:rustc-link-arg={arg}");
    }
}
