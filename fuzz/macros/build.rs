//! Makes functions of what are macros elsewhere.

fn main() {
    println!("cargo:rustc-cfg=gpumem_library");
    println!("cargo:rerun-if-changed=build.rs");
}
