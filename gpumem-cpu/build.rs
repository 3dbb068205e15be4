//! Tells the crate at which level it is optimised, which nothing in the language says: see `notice`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=GPUMEM_OPT_LEVEL={level}");
}
