//! Plans: library calls that are prepared once for a program.

use crate::calls::Argument;
use cudarc::driver::sys::CUdeviceptr;
use gpumem_core::error::Error;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the address of a tensor on the card.
pub(crate) type Address<'a> = dyn Fn(Argument) -> Result<CUdeviceptr, Error> + 'a;

/// A call for which a library makes a plan.
pub(crate) trait Planned: Copy + Ord {
    /// The library.
    type Library;
    /// The prepared call.
    type Plan;

    /// Makes the plan; `None` if the library has no algorithm for the call.
    ///
    /// # Errors
    /// [`Error::Device`] with the call and the library's error.
    fn plan(&self, library: &Self::Library, address: &Address<'_>) -> Result<Option<Self::Plan>, Error>;
}

/// The plans of one program, each made when it is first requested.
pub(crate) struct Plans<'a, C: Planned> {
    library: Option<&'a C::Library>,
    address: &'a Address<'a>,
    /// The plan of each call; `None` if there is no algorithm for it.
    made: BTreeMap<C, Option<Arc<C::Plan>>>,
}

impl<'a, C: Planned> Plans<'a, C> {
    /// Returns an empty collection. Without a library, no call gets a plan.
    pub(crate) fn new(library: Option<&'a C::Library>, address: &'a Address<'a>) -> Plans<'a, C> {
        Plans { library, address, made: BTreeMap::new() }
    }

    /// Returns the plan of a call; `None` if the library has no algorithm for it.
    ///
    /// # Errors
    /// As for [`Planned::plan`].
    pub(crate) fn get(&mut self, call: &C) -> Result<Option<Arc<C::Plan>>, Error> {
        if let Some(plan) = self.made.get(call) {
            return Ok(plan.clone());
        }
        let Some(library) = self.library else { return Ok(None) };
        let plan = call.plan(library, self.address)?.map(Arc::new);
        self.made.insert(*call, plan.clone());
        Ok(plan)
    }
}
