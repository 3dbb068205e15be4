//! Sets the flag that builds the macros as functions of a library.

fn main() {
    println!("cargo:rustc-cfg=gpumem_library");
    println!("cargo:rerun-if-changed=build.rs");
}
