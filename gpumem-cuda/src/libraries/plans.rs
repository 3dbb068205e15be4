//! What a library was made ready for, once a program.

use crate::calls::Argument;
use cudarc::driver::sys::CUdeviceptr;
use gpumem_core::error::Error;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a tensor is on the card.
pub(crate) type Address<'a> = dyn Fn(Argument) -> Result<CUdeviceptr, Error> + 'a;

/// A call that a library makes a plan for.
pub(crate) trait Planned: Copy + Ord {
    /// The library.
    type Library;
    /// What it made ready.
    type Plan;

    /// Makes the plan; `None` if the library has no algorithm for it.
    ///
    /// # Errors
    /// [`Error::Device`] with the call and what the library said.
    fn plan(&self, library: &Self::Library, address: &Address<'_>) -> Result<Option<Self::Plan>, Error>;
}

/// The plans of one program, made as they are asked for.
pub(crate) struct Plans<'a, C: Planned> {
    library: Option<&'a C::Library>,
    address: &'a Address<'a>,
    /// With `None` for calls that there is no algorithm for.
    made: BTreeMap<C, Option<Arc<C::Plan>>>,
}

impl<'a, C: Planned> Plans<'a, C> {
    /// Without the library there is no algorithm for anything.
    pub(crate) fn new(library: Option<&'a C::Library>, address: &'a Address<'a>) -> Plans<'a, C> {
        Plans { library, address, made: BTreeMap::new() }
    }

    /// The plan of a call; `None` if the library has no algorithm for it.
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
