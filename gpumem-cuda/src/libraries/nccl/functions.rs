//! The functions of NCCL that are called: names and types, without a library.

/// The oldest version that is accepted.
pub(in crate::libraries) const OLDEST: (i32, i32) = (2, 22);

/// Calls a macro with a row for each function: a field, the name in the library, and the type.
macro_rules! nccl_functions {
    ($callback:ident) => {
        $callback! {
            get_unique_id: "ncclGetUniqueId", unsafe extern "C" fn(*mut RankId) -> c_int;
            init: "ncclCommInitRankConfig", unsafe extern "C" fn(*mut Comm, c_int, RankId, c_int, *mut Config) -> c_int;
            async_error: "ncclCommGetAsyncError", unsafe extern "C" fn(Comm, *mut c_int) -> c_int;
            finalize: "ncclCommFinalize", unsafe extern "C" fn(Comm) -> c_int;
            destroy: "ncclCommDestroy", unsafe extern "C" fn(Comm) -> c_int;
            abort: "ncclCommAbort", unsafe extern "C" fn(Comm) -> c_int;
            group_start: "ncclGroupStart", unsafe extern "C" fn() -> c_int;
            group_end: "ncclGroupEnd", unsafe extern "C" fn() -> c_int;
            all_reduce: "ncclAllReduce", Reduce;
            reduce_scatter: "ncclReduceScatter", Reduce;
            all_gather: "ncclAllGather", Gather;
            error_string: "ncclGetErrorString", unsafe extern "C" fn(c_int) -> *const c_char;
            last_error: "ncclGetLastError", unsafe extern "C" fn(Comm) -> *const c_char;
        }
    };
}
pub(in crate::libraries) use nccl_functions;

/// Makes the list of names of the rows.
macro_rules! names {
    ($($field:ident: $name:literal, $type:ty;)*) => { [$($name,)*] };
}

/// The names of all of them.
pub(in crate::libraries) const FUNCTIONS: [&str; 13] = nccl_functions!(names);
