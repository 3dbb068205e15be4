//! Kernels to machine code: NVRTC, for the architecture of the card.

use crate::cache::{Cache, key};
use crate::launch::{Kernel, SOURCES};
use crate::preflight::compiler_version;
use cudarc::nvrtc::result as nvrtc;
use cudarc::nvrtc::sys;
use gpumem_core::error::Error;
use std::ffi::{CStr, CString, c_char};

/// Machine code for one architecture, and the kernel's entry point in it.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// A cubin.
    pub code: Vec<u8>,
    /// The entry point.
    pub entry: CString,
}

/// The options that a kernel is compiled with for compute capability `(major, minor)`.
pub fn options(kernel: &Kernel, (major, minor): (i32, i32)) -> Vec<String> {
    let constants = kernel.constants.iter().map(|(name, value)| format!("-D{name}={value}"));
    [format!("-arch=sm_{major}{minor}"), "-std=c++17".into()].into_iter().chain(constants).collect()
}

/// Compiles a kernel, or takes it from the cache.
///
/// # Errors
/// [`Error::Device`] with the compiler's log.
pub fn compile(kernel: &Kernel, capability: (i32, i32), cache: &Cache) -> Result<Compiled, Error> {
    let failure = |what: String| Error::Device { device: "CUDA", what };
    let source =
        SOURCES.iter().find(|(file, _)| *file == kernel.file).ok_or(Error::Damaged("a kernel has no source"))?.1;
    let options = options(kernel, capability);
    let entry = CString::new(kernel.entry).map_err(|_| Error::Damaged("a kernel has no name"))?;
    let version = compiler_version().map_or_else(String::new, |(major, minor)| format!("{major}.{minor}"));
    let headers: Vec<&(&str, &str)> = SOURCES.iter().filter(|(file, _)| file.ends_with(".cuh")).collect();
    let mut parts: Vec<&str> = vec![kernel.file, source, &version];
    parts.extend(options.iter().map(String::as_str));
    parts.extend(headers.iter().map(|(_, text)| *text));
    let key = key(&parts);
    if let Some(code) = cache.get(&key) {
        return Ok(Compiled { code, entry });
    }
    let code = Program::new(kernel.file, source, &headers)
        .and_then(|program| program.compile(&options))
        .map_err(|log| failure(format!("kernel `{}` does not compile: {log}", kernel.entry)))?;
    cache.put(&key, &code);
    Ok(Compiled { code, entry })
}

/// What the assembler says of a kernel for one architecture: registers, shared memory and spills of every entry point of
/// its file.
///
/// # Errors
/// [`Error::Device`] with the compiler's log if it does not compile.
pub fn resources(kernel: &Kernel, capability: (i32, i32)) -> Result<String, Error> {
    let mut options = options(kernel, capability);
    options.push("--ptxas-options=-v".into());
    let what = |log| Error::Device { device: "CUDA", what: format!("`{}` does not compile: {log}", kernel.file) };
    let program = Program::new(kernel.file, source(kernel)?, &headers()).map_err(what)?;
    program.compile(&options).map_err(what)?;
    Ok(program.log())
}

fn source(kernel: &Kernel) -> Result<&'static str, Error> {
    let found = SOURCES.iter().find(|(file, _)| *file == kernel.file);
    found.map(|(_, text)| *text).ok_or(Error::Damaged("a kernel has no source"))
}

fn headers() -> Vec<&'static (&'static str, &'static str)> {
    SOURCES.iter().filter(|(file, _)| file.ends_with(".cuh")).collect()
}

/// A program of NVRTC.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(name: &str, source: &str, headers: &[&(&str, &str)]) -> Result<Program, String> {
        let text = |text: &str| CString::new(text).map_err(|_| "a source contains a zero byte".to_string());
        let (name, source) = (text(name)?, text(source)?);
        let contents: Vec<CString> = headers.iter().map(|(_, content)| text(content)).collect::<Result<_, _>>()?;
        let names: Vec<CString> = headers.iter().map(|(name, _)| text(name)).collect::<Result<_, _>>()?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<*const c_char>>();
        let (contents_at, names_at) = (pointers(&contents), pointers(&names));
        let mut program = std::ptr::null_mut();
        // SAFETY: all texts end with a zero byte and outlive the call, which copies them; both lists have as many entries as
        // is said.
        let result = unsafe {
            sys::nvrtcCreateProgram(
                &mut program,
                source.as_ptr(),
                name.as_ptr(),
                headers.len() as i32,
                contents_at.as_ptr(),
                names_at.as_ptr(),
            )
        };
        result.result().map(|()| Program(program)).map_err(|error| format!("{error:?}"))
    }

    /// What the compiler said.
    fn log(&self) -> String {
        // SAFETY: the program was created in `new` and is destroyed in `drop` only.
        let log = unsafe { nvrtc::get_program_log(self.0) }.unwrap_or_default();
        let bytes: Vec<u8> = log.iter().map(|&byte| byte as u8).collect();
        CStr::from_bytes_until_nul(&bytes).map_or_else(|_| String::new(), |log| log.to_string_lossy().into_owned())
    }

    fn compile(&self, options: &[String]) -> Result<Vec<u8>, String> {
        // SAFETY: the program was created in `new` and is destroyed in `drop` only.
        if let Err(error) = unsafe { nvrtc::compile_program(self.0, options) } {
            return Err(format!("{error:?}\n{}", self.log()));
        }
        let mut size = 0;
        // SAFETY: the program is compiled; `size` is a valid place for one integer.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) }.result().map_err(|error| format!("{error:?}"))?;
        let mut code = vec![0u8; size];
        // SAFETY: the buffer has the size that NVRTC gave.
        unsafe { sys::nvrtcGetCUBIN(self.0, code.as_mut_ptr().cast()) }
            .result()
            .map_err(|error| format!("{error:?}"))?;
        Ok(code)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was created in `new` and is used nowhere else. A failure to free it leaves nothing to do.
        let _ = unsafe { nvrtc::destroy_program(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_the_architecture_and_all_constants() {
        let kernel =
            Kernel::new("movement.cu", "copy").with("REAL", 1).with("COUNT", "12ull").with_float("SLOPE", 0.25);
        assert_eq!(
            options(&kernel, (8, 6)),
            ["-arch=sm_86", "-std=c++17", "-DREAL=1", "-DCOUNT=12ull", "-DSLOPE=2.5e-1"]
        );
    }

    #[test]
    fn a_kernel_without_a_source_is_an_error() {
        let error = compile(&Kernel::new("nothing.cu", "nothing"), (9, 0), &Cache::at(None)).unwrap_err();
        assert_eq!(error, Error::Damaged("a kernel has no source"));
    }
}
