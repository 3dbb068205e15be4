//! NVRTC's functions, looked up in the one library that the preflight chose.
//!
//! cudarc is not used for this, because it opens NVRTC by its name again. If a toolkit of CUDA 13 is installed, it would use that one even if the
//! driver is of CUDA 12, or if the card is too old for it.

use super::preflight::{damaged_compiler, function, open_compiler};
use gpumem_core::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

type Handle = *mut c_void;
type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type Bytes = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;
type Texts = *const *const c_char;

/// NVRTC with its functions.
#[derive(Debug)]
pub(crate) struct Nvrtc {
    /// The library's version.
    pub version: (i32, i32),
    /// The architectures that `-arch=sm_` accepts, in ascending order: 90 for compute capability 9.0.
    pub architectures: Vec<i32>,
    create: unsafe extern "C" fn(*mut Handle, *const c_char, *const c_char, c_int, Texts, Texts) -> c_int,
    destroy: unsafe extern "C" fn(*mut Handle) -> c_int,
    compile: unsafe extern "C" fn(Handle, c_int, Texts) -> c_int,
    log_size: Size,
    log: Bytes,
    code_size: Size,
    code: Bytes,
    name_of: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Nvrtc {
    /// Returns the NVRTC of this process, and opens it the first time.
    ///
    /// # Errors
    /// [`Error::Library`] if it is missing, too old or damaged.
    pub fn get() -> Result<&'static Nvrtc, Error> {
        static OPEN: OnceLock<Result<Nvrtc, Error>> = OnceLock::new();
        let open = || {
            let (library, version) = open_compiler()?;
            Nvrtc::look_up(library, version).map_err(|what| damaged_compiler(&what))
        };
        OPEN.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    fn look_up(library: &'static libloading::Library, version: (i32, i32)) -> Result<Nvrtc, String> {
        Ok(Nvrtc {
            version,
            architectures: architectures(library)?,
            create: *function(library, "nvrtcCreateProgram")?,
            destroy: *function(library, "nvrtcDestroyProgram")?,
            compile: *function(library, "nvrtcCompileProgram")?,
            log_size: *function(library, "nvrtcGetProgramLogSize")?,
            log: *function(library, "nvrtcGetProgramLog")?,
            code_size: *function(library, "nvrtcGetCUBINSize")?,
            code: *function(library, "nvrtcGetCUBIN")?,
            name_of: *function(library, "nvrtcGetErrorString")?,
        })
    }

    /// Returns a program of one source, which can include `headers`, given as name and text.
    ///
    /// # Errors
    /// NVRTC's message.
    pub fn program(&self, name: &str, source: &str, headers: &[(&str, &str)]) -> Result<Program<'_>, String> {
        let text = |text: &str| CString::new(text).map_err(|_| "a source contains a zero byte".to_string());
        let (name, source) = (text(name)?, text(source)?);
        let contents: Vec<CString> = headers.iter().map(|(_, content)| text(content)).collect::<Result<_, _>>()?;
        let names: Vec<CString> = headers.iter().map(|(name, _)| text(name)).collect::<Result<_, _>>()?;
        let (contents_at, names_at) = (pointers(&contents), pointers(&names));
        let mut handle = std::ptr::null_mut();
        // SAFETY: all texts end with a zero byte and outlive the call, which copies them; both lists have the stated number of entries.
        let code = unsafe {
            (self.create)(
                &mut handle,
                source.as_ptr(),
                name.as_ptr(),
                headers.len() as c_int,
                contents_at.as_ptr(),
                names_at.as_ptr(),
            )
        };
        self.check(code)?;
        Ok(Program { nvrtc: self, handle })
    }

    fn check(&self, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: any code is allowed; the text is a constant of the library.
        let text = unsafe { (self.name_of)(code) };
        if text.is_null() {
            return Err(format!("error {code}"));
        }
        // SAFETY: the text is not null, and ends with a zero byte.
        Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

/// Returns the architectures that NVRTC can compile for.
fn architectures(library: &libloading::Library) -> Result<Vec<i32>, String> {
    let count_of = function::<unsafe extern "C" fn(*mut c_int) -> c_int>(library, "nvrtcGetNumSupportedArchs")?;
    let list = function::<unsafe extern "C" fn(*mut c_int) -> c_int>(library, "nvrtcGetSupportedArchs")?;
    let mut count = 0;
    // SAFETY: `count` is a valid place for the one integer that is written.
    let code = unsafe { count_of(&mut count) };
    let mut architectures: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the list has as many places as NVRTC reported.
    if code != 0 || architectures.is_empty() || unsafe { list(architectures.as_mut_ptr()) } != 0 {
        return Err("does not tell the architectures that it knows".into());
    }
    architectures.sort_unstable();
    Ok(architectures)
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

/// A source in NVRTC's memory.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: Handle,
}

impl Program<'_> {
    /// Compiles the program to a cubin.
    ///
    /// # Errors
    /// NVRTC's message, with its log.
    pub fn compile(&self, options: &[String]) -> Result<Vec<u8>, String> {
        let options: Vec<CString> = options
            .iter()
            .map(|option| CString::new(option.as_str()).map_err(|_| "an option contains a zero byte".to_string()))
            .collect::<Result<_, _>>()?;
        let at = pointers(&options);
        // SAFETY: the program was created in `program` and is destroyed in `drop` only; every option ends with a zero byte
        // and outlives the call.
        let code = unsafe { (self.nvrtc.compile)(self.handle, at.len() as c_int, at.as_ptr()) };
        self.nvrtc.check(code).map_err(|error| format!("{error}\n{}", self.log()))?;
        self.read(self.nvrtc.code_size, self.nvrtc.code)
    }

    /// Returns the compiler's log.
    pub fn log(&self) -> String {
        let bytes = self.read(self.nvrtc.log_size, self.nvrtc.log).unwrap_or_default();
        CStr::from_bytes_until_nul(&bytes).map_or_else(|_| String::new(), |log| log.to_string_lossy().into_owned())
    }

    fn read(&self, size_of: Size, get: Bytes) -> Result<Vec<u8>, String> {
        let mut size = 0;
        // SAFETY: the program was created in `program` and is destroyed in `drop` only; `size` is a valid place for one
        // integer.
        self.nvrtc.check(unsafe { size_of(self.handle, &mut size) })?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size that NVRTC reported for the contents.
        self.nvrtc.check(unsafe { get(self.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was created in `program` and is used nowhere else. A failure to free it leaves nothing to do.
        let _ = unsafe { (self.nvrtc.destroy)(&mut self.handle) };
    }
}
