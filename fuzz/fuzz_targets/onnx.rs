#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gpumem_fuzz::onnx(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    gpumem_fuzz::main("onnx")
}
