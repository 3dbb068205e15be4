//! Functions of the driver that are called directly, not through cudarc.

use super::preflight::{function, open_driver};
use crate::error::failure;
use cudarc::driver::sys::{CUevent, CUgraph, CUgraphNode, CUresult, cuGraphGetNodes, cuGraphNodeGetType};
use cudarc::driver::{CudaEvent, DriverError};
use gpumem_core::error::Error;
use libloading::{Library, Symbol};

/// Returns the microseconds between two timing events of one stream, after waiting for the second. cudarc looks this function up by a name that
/// only drivers of CUDA 12.8 and newer have.
pub(crate) fn elapsed_us(start: &CudaEvent, end: &CudaEvent) -> Result<f64, Error> {
    let doing = "timing a launch";
    end.synchronize().map_err(failure(doing))?;
    let elapsed = elapsed(open_driver()?)?;
    let mut ms = 0f32;
    // SAFETY: both events are alive, and `ms` is a place for the number.
    let code = unsafe { elapsed(&mut ms, start.cu_event(), end.cu_event()) };
    code.result().map_err(failure(doing))?;
    Ok(f64::from(ms) * 1e3)
}

type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;

fn elapsed(driver: &Library) -> Result<Symbol<'_, Elapsed>, Error> {
    function(driver, "cuEventElapsedTime").map_err(|what| Error::failed("CUDA", format!("the driver {what}")))
}

/// Returns the kinds of a graph's nodes, in no order. They are numbers, because newer drivers know more of them.
///
/// # Safety
/// The graph is alive.
// SAFETY: the only caller owns the graph, which is destroyed with it.
pub(crate) unsafe fn node_types(graph: CUgraph) -> Result<Vec<u32>, Error> {
    let failure = |error: DriverError| failure("looking at a graph")(error);
    let mut count = 0;
    // SAFETY: by contract the graph is alive; with no array given, the driver counts the nodes.
    unsafe { cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) }.result().map_err(failure)?;
    let mut nodes: Vec<CUgraphNode> = vec![std::ptr::null_mut(); count];
    if count > 0 {
        // SAFETY: as above; the array has `count` places.
        unsafe { cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) }.result().map_err(failure)?;
    }
    let kind = |&node: &CUgraphNode| {
        let mut kind = 0u32;
        // SAFETY: the node belongs to the graph; the driver's enumeration is a C one, of 32 bits.
        unsafe { cuGraphNodeGetType(node, (&raw mut kind).cast()) }.result().map_err(failure)?;
        Ok(kind)
    };
    nodes.iter().take(count).map(kind).collect()
}

/// Returns the name of a kind of node: `CU_GRAPH_NODE_TYPE_..` of the driver's header.
pub(crate) fn node_name(kind: u32) -> &'static str {
    const NAMES: [&str; 14] = [
        "kernel",
        "memcpy",
        "memset",
        "host",
        "graph",
        "empty",
        "wait_event",
        "event_record",
        "semaphores_signal",
        "semaphores_wait",
        "mem_alloc",
        "mem_free",
        "batch_mem_op",
        "conditional",
    ];
    NAMES.get(kind as usize).copied().unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUgraphNodeType as Kind;

    #[test]
    fn nodes_are_called_as_the_driver_calls_them() {
        for (kind, name) in [
            (Kind::CU_GRAPH_NODE_TYPE_KERNEL, "kernel"),
            (Kind::CU_GRAPH_NODE_TYPE_MEMCPY, "memcpy"),
            (Kind::CU_GRAPH_NODE_TYPE_MEMSET, "memset"),
            (Kind::CU_GRAPH_NODE_TYPE_EVENT_RECORD, "event_record"),
            (Kind::CU_GRAPH_NODE_TYPE_CONDITIONAL, "conditional"),
        ] {
            assert_eq!(node_name(kind as u32), name);
        }
        assert_eq!(node_name(77), "other");
    }

    #[test]
    fn a_driver_that_cannot_time_says_so() {
        let program = libloading::os::unix::Library::this().into();
        let error = elapsed(&program).unwrap_err().to_string();
        assert!(error.contains("the driver has no function cuEventElapsedTime"), "{error}");
    }
}
